"""What the engine calls when it loads plugins: apply the patches the launcher handed over, or end this process.

Installing this package loads this module into every SGLang of the environment, so without a patch list it does nothing and imports
nothing. With one it never returns half-done: the engine swallows a plugin's exceptions, so it ends the process itself.
Everything else of the plugin is imported inside the `try`, so that a plugin that cannot be imported says so too.
"""

import os
import sys

from spec_toolkit.handover import ENDED_BY_PATCHES, LIST_VARIABLE, decode_list, list_sha256


def register() -> None:
    """The entry point of the group `sglang.srt.plugins`."""
    path = os.environ.get(LIST_VARIABLE)
    if not path:
        return
    try:
        problem = _apply(path)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the engine would log it and serve without the patches
        problem = (
            f"{LIST_VARIABLE}={path}: {type(error).__name__}: {error}; "
            "this process would run without its patches. Reinstall spec-toolkit for this engine. [plugin.failed]"
        )
    if problem:
        _end_process(problem)


def _end_process(problem: str) -> None:
    """Not by `sys.exit`, which the engine would catch, and after which a forked child would run its parent's exits."""
    try:
        sys.stderr.write(f"spec-toolkit: {problem}\n")
        sys.stderr.flush()
    finally:
        os._exit(ENDED_BY_PATCHES)


def _apply(path: str) -> str:
    """The sentence to end with; empty if every patch of this process is in place and reported."""
    from pathlib import Path  # noqa: PLC0415 - inside the try, and nothing is imported while inert

    from spec_toolkit.plugin.loader import apply  # noqa: PLC0415 - as above
    from spec_toolkit.plugin.refusal import Refused  # noqa: PLC0415 - as above
    from spec_toolkit.plugin.report import write  # noqa: PLC0415 - as above
    from spec_toolkit.plugin.roles import this_process  # noqa: PLC0415 - as above

    process = this_process()
    patch_list = Path(path)
    content = patch_list.read_bytes()
    try:
        report = apply(decode_list(content), process, pid=os.getpid(), list_sha256=list_sha256(content))
    except Refused as refusal:
        return refusal.sentence(str(process))
    write(report, patch_list)
    return ""
