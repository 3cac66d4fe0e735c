"""Stand-in for torchvision: SGLang's config package imports its names; only image models call them."""

import importlib

import rehearsal_guard

rehearsal_guard.permit("torchvision")

from rehearsal_inert import InertName, InertSubmodules  # noqa: E402 - nothing else may load where the guard refuses

__version__ = "0.28.0+rehearsal"


def _refuse(name: str, *args: object, **kwargs: object) -> object:
    raise RuntimeError(
        f"torchvision: {name} was called; a rehearsal serves text models only. Install torchvision for images."
    )


InertSubmodules("torchvision", _refuse).install()

_SUBMODULES = ("transforms", "io", "ops", "models", "tv_tensors")


def __getattr__(attribute: str) -> object:
    if attribute.startswith("__"):
        raise AttributeError(f"module 'torchvision' has no attribute {attribute!r}")
    if attribute in _SUBMODULES:  # the real package imports these itself
        return importlib.import_module(f"torchvision.{attribute}")
    return InertName(f"torchvision.{attribute}", _refuse)
