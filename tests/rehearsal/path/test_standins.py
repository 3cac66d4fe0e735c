import os
import subprocess
import sys
from pathlib import Path

STANDINS = Path(__file__).resolve().parents[3] / "spec_toolkit" / "rehearsal" / "path"


def run(code: str) -> str:
    """What `code` prints in a process that has the stand-ins on its path."""
    environ = {**os.environ, "PYTHONPATH": str(STANDINS), "SGLANG_USE_CPU_ENGINE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


KERNEL = """
import triton, triton.language as tl
{decorator}
def add_rows(x_ptr, BLOCK: tl.constexpr): ...
try:
    add_rows[(4,)](1, BLOCK=2)
except RuntimeError as refused:
    print(type(refused).__name__, refused)
"""


def test_launching_a_triton_kernel_raises_and_names_it():
    for decorator in ("@triton.jit", "@triton.jit(do_not_specialize=['x_ptr'])"):
        assert run(KERNEL.format(decorator=decorator)).startswith(
            "KernelLaunchedError triton: kernel __main__.add_rows"
        )


def test_an_autotuned_kernel_is_a_kernel_too():
    stacked = "@triton.autotune(configs=[triton.Config({'BLOCK': 64}, num_warps=8)], key=['n'])\n@triton.jit"
    assert "add_rows was launched" in run(KERNEL.format(decorator=stacked))
    assert "add_rows was launched" in run(KERNEL.format(decorator="@triton.heuristics({})\n@triton.jit"))


def test_triton_offers_what_modules_ask_for_while_they_are_imported():
    code = """
import triton
from triton.language.extra import libdevice
from triton.runtime.jit import JITFunction
from triton.experimental import gluon
assert triton.language.float32 is not None and triton.cdiv(7, 2) == 4 and triton.next_power_of_2(5) == 8
class Subclass(triton.language.tensor): ...
@triton.language.core.builtin
def kept(): return 41
print(kept() + 1, triton.Config({'A': 1}).kwargs, hasattr(triton, '__file__'), isinstance(triton.jit(kept), JITFunction))
"""
    assert run(code) == "42 {'A': 1} True True"


def test_torchvision_imports_and_refuses_to_work():
    code = """
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional
print(InterpolationMode.BICUBIC)
try: functional.resize(1)
except RuntimeError as refused: print(refused)
"""
    assert run(code).splitlines()[1].startswith("torchvision: torchvision.transforms.v2.functional.resize was called")


def test_datasets_refuses_to_load():
    code = "import datasets\ntry: datasets.load_dataset('x')\nexcept RuntimeError as refused: print(refused)"
    assert "load_dataset was called" in run(code)


def test_a_missing_kernel_is_named():
    code = """
import sgl_kernel, torch
for missing in (lambda: sgl_kernel.top_k, lambda: torch.ops.sgl_kernel.fused_experts_cpu):
    try: missing()
    except AttributeError as refused: print(refused)
"""
    first, second = run(code).splitlines()
    assert first.startswith("sgl_kernel.top_k: the rehearsal has no such kernel")
    assert "fused_experts_cpu" in second


def test_sglang_cannot_mistake_the_kernels_for_the_compiled_build():
    assert run("import sgl_kernel, torch; print(hasattr(torch.ops.sgl_kernel, 'convert_weight_packed'))") == "False"
