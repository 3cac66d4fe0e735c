"""Names that can be imported, annotated with and subclassed, and do nothing: what the import stand-ins are made of."""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Mapping, Sequence


class InertName:
    """A dotted name of an absent package. Attributes, subscripts and unions give inert names again; `call` decides calls."""

    def __init__(self, name: str, call: Callable[..., object]) -> None:
        self._name = name
        self._call = call

    def __getattr__(self, attribute: str) -> "InertName":
        if attribute.startswith("__"):  # protocols are probed with getattr; an inert name has none
            raise AttributeError(attribute)
        return InertName(f"{self._name}.{attribute}", self._call)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._call(self._name, *args, **kwargs)

    def __getitem__(self, key: object) -> "InertName":
        return InertName(f"{self._name}[]", self._call)

    def __or__(self, other: object) -> "InertName":
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)

    def __repr__(self) -> str:
        return f"<{self._name}: stand-in>"


class InertModule(types.ModuleType):
    """A submodule of an absent package: every name in it is inert unless given."""

    def __init__(self, name: str, given: Mapping[str, object], call: Callable[..., object]) -> None:
        super().__init__(name)
        self.__path__: Sequence[str] = []
        self.__dict__.update(given)
        self._call = call

    def __getattr__(self, attribute: str) -> InertName:
        if attribute.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        return InertName(f"{self.__name__}.{attribute}", self._call)


class InertSubmodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every submodule of one package, however deep, and makes it an InertModule."""

    def __init__(
        self, package: str, call: Callable[..., object], given: Mapping[str, Mapping[str, object]] | None = None
    ) -> None:
        self._prefix = f"{package}."
        self._call = call
        self._given = given or {}

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(self._prefix):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return InertModule(spec.name, self._given.get(spec.name, {}), self._call)

    def exec_module(self, module: types.ModuleType) -> None:
        pass  # nothing to run: the module is complete when created
