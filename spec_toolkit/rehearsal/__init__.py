"""Not a package to import: the CPU engine is reached by path only.

`path/` shadows Triton, torchvision, datasets and SGLang's kernels. Were this folder importable, one stray import could
put the stand-ins in front of the real packages on a GPU machine; the launcher alone names the folder, for a child process.
"""

raise ImportError(
    "spec_toolkit.rehearsal is not importable: its stand-ins would shadow the real kernels. The launcher starts "
    "rehearsal/serve.py by path and puts rehearsal/path on that child's PYTHONPATH."
)
