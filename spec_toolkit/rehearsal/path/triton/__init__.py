"""Stand-in for Triton on a machine without a GPU.

SGLang imports Triton at module level in some 440 files and launches none of its kernels on `--device cpu`. Here those
modules import; launching a kernel raises and names it.
"""

import importlib
import types
from collections.abc import Callable

import rehearsal_guard

rehearsal_guard.permit("triton")

from rehearsal_inert import InertName, InertSubmodules  # noqa: E402 - nothing else may load where the guard refuses

__version__ = "3.8.0+rehearsal"


class KernelLaunchedError(RuntimeError):
    """A Triton kernel was launched, but a rehearsal has no GPU: a CPU path is missing, here or in a patch."""


class Kernel:
    """What `@triton.jit` gives: it can be named and indexed by a grid, and never launched."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.fn = function
        self.__name__ = getattr(function, "__name__", "kernel")
        self.__module__ = getattr(function, "__module__", "?")
        self.__doc__ = getattr(function, "__doc__", None)

    def __getitem__(self, grid: object) -> "Kernel":
        return self

    def __call__(self, *args: object, **kwargs: object) -> object:
        raise KernelLaunchedError(
            f"triton: kernel {self.__module__}.{self.__name__} was launched; a rehearsal runs on the CPU, where it cannot run."
        )

    def __getattr__(self, attribute: str) -> InertName:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return InertName(f"{self.__name__}.{attribute}", _call_inert)


class Config:
    """One autotuning choice; SGLang builds lists of them at import and reads them back only when it tunes."""

    def __init__(
        self,
        kwargs: dict[str, object],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[..., object] | None = None,
        **_: object,
    ) -> None:
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages
        self.num_ctas, self.maxnreg, self.pre_hook = num_ctas, maxnreg, pre_hook


class OutOfResources(Exception):  # noqa: N818 - Triton's name
    """Raised by Triton's autotuner; SGLang names it in except clauses."""


class CompiledKernel:
    """torch._inductor builds a typing.Union from this name, so it has to be a class."""


class _NoDriver:
    @property
    def active(self) -> object:
        raise RuntimeError("triton: 0 active drivers; a rehearsal runs on the CPU.")


def _call_inert(name: str, *args: object, **kwargs: object) -> object:
    """A bare decorator hands its function back; any other call gives an inert name, as `tl.constexpr(4)` must at import."""
    if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType):
        return args[0]
    return InertName(f"{name}()", _call_inert)


def jit(function: Callable[..., object] | None = None, **_: object) -> object:
    """`@jit` and `@jit(...)` alike."""
    return Kernel if function is None else Kernel(function)


def autotune(*_: object, **__: object) -> Callable[[object], object]:
    return lambda function: function if isinstance(function, Kernel) else Kernel(function)  # type: ignore[arg-type] - a function


heuristics = autotune


def cdiv(x: int, y: int) -> int:
    return (x + y - 1) // y


def next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length() if n > 0 else 0


InertSubmodules(
    "triton",
    _call_inert,
    given={
        "triton.compiler": {"CompiledKernel": CompiledKernel},
        "triton.compiler.compiler": {"CompiledKernel": CompiledKernel},
        "triton.runtime": {"driver": _NoDriver(), "JITFunction": Kernel, "KernelInterface": Kernel},
        "triton.runtime.jit": {"JITFunction": Kernel, "KernelInterface": Kernel, "constexpr_function": lambda f: f},
        "triton.runtime.errors": {"OutOfResources": OutOfResources},
        "triton.runtime.autotuner": {"OutOfResources": OutOfResources, "autotune": autotune},
        "triton.experimental.gluon": {"jit": jit},
    },
).install()

_SUBMODULES = ("language", "runtime", "knobs", "testing", "tools", "compiler", "backends", "experimental")


def __getattr__(attribute: str) -> object:
    if attribute.startswith("__"):
        raise AttributeError(f"module 'triton' has no attribute {attribute!r}")
    if attribute in _SUBMODULES:  # the real package imports these itself: `triton.language` works after `import triton`
        return importlib.import_module(f"triton.{attribute}")
    return InertName(f"triton.{attribute}", _call_inert)
