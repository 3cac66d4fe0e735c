"""Packages that hold kernels or compile them: resolving needs their names and nothing of what they do. Runs in the child only.

They are stood in for even where they are installed: some take seconds to import, some ask for a device, and an answer must not depend
on which of them a machine has.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

COMPILED = (
    *("sgl_kernel", "deep_gemm", "flashinfer", "flash_attn", "flash_mla", "triton", "tilelang", "cutlass"),
    *("quack", "torchvision", "cuda", "deep_ep", "mooncake"),
)
# Torch's compiler and its distributed tensors: imported with the engine and the models it never builds here, and a third of the whole
# import. Answers are the same without them.
UNUSED = ("torch._dynamo", "torch._inductor", "torch.distributed.tensor")
# What the engine compares before it goes on; far above any of its floors.
_VERSION = "99.0.0"


class Name:
    """Can be called, subscripted, subclassed and used as a decorator; is empty and false."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: object, **kwargs: object) -> object:
        decorates = len(args) == 1 and callable(args[0]) and not kwargs
        return args[0] if decorates else Name(f"{self._name}()")

    def __getattr__(self, attribute: str) -> "Name":
        if attribute.startswith("__"):  # protocols are probed for; this follows none
            raise AttributeError(attribute)
        return Name(f"{self._name}.{attribute}")

    def __getitem__(self, key: object) -> "Name":
        return self

    def __iter__(self) -> "Name":
        return self

    def __next__(self) -> object:
        raise StopIteration

    def __bool__(self) -> bool:
        return False

    def __or__(self, other: object) -> "Name":
        return self

    __ror__ = __or__

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __subclasscheck__(self, subclass: type) -> bool:
        return False

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)

    def __repr__(self) -> str:
        return f"<{self._name}: not here>"


class _Module(types.ModuleType):
    __version__ = _VERSION

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, attribute: str) -> Name:
        if attribute.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        return Name(f"{self.__name__}.{attribute}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = tuple(packages)

    def find_spec(
        self,
        fullname: str,
        path: object = None,  # noqa: ARG002 - the protocol's
        target: object = None,  # noqa: ARG002 - the protocol's
    ) -> importlib.machinery.ModuleSpec | None:
        if not any(fullname == package or fullname.startswith(f"{package}.") for package in self._packages):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass  # complete when created


def stand_in(packages: Sequence[str] = (*COMPILED, *UNUSED)) -> None:
    sys.meta_path.insert(0, _Finder(packages))


@contextmanager
def standing_in(packages: Sequence[str]) -> Iterator[None]:
    """For as long as something is imported that names them; whoever imports them afterwards gets the real ones."""
    finder = _Finder(packages)
    before = set(sys.modules)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if isinstance(sys.modules[name], _Module):
                del sys.modules[name]
