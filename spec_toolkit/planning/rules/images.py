"""Rules about the image an engine runs from: which one it is, what it can read, which GPUs its kernels are built for. Pure."""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, note, refuse
from spec_toolkit.planning.situation import Situation
from spec_toolkit.recipe.image_tag import sglang_of

_MOVING = frozenset({"latest", "dev", "nightly", "main", "master", "edge", "stable"})


def floating_tag(situation: Situation) -> Iterator[Finding]:
    image = situation.pins.image
    if image is None or "@sha256:" in image:
        return
    tag = tag_of(image)
    if tag is None or tag in _MOVING or tag.startswith(tuple(f"{word}-" for word in _MOVING)):
        found = f"is {image}" + ("" if tag else ", without a tag: that is latest")
        why = "the tag moves, and the next pod may run another engine"
        yield refuse("pins.image-floating", "pins.image", found, why, "Write a version's tag, better its digest.")
    else:
        why = "a tag can be moved, a digest cannot"
        yield note("pins.image-digest", "pins.image", f"is {image}", why)


def versions(situation: Situation) -> Iterator[Finding]:
    named, pinned = sglang_of(situation.pins.image), situation.pins.sglang
    if named is not None and pinned is not None and named != pinned:
        found, why = f"is {situation.pins.image}", f"its tag names sglang {named}, and {pinned} is pinned"
        yield refuse("pins.image-version", "pins.image", found, why, f"Use the image of {pinned}.")


def model_types(situation: Situation) -> Iterator[Finding]:
    """The configuration of a model is read by the image's transformers; a kind it does not know is a KeyError at start."""
    known = situation.pins.transformers_model_types
    for whose, model in (("target", situation.target), ("draft", situation.draft)):
        if known is not None and model is not None and model.model_type is not None and model.model_type not in known:
            yield refuse(
                "pins.image-model-type",
                f"{whose}.model_type",
                f"is {model.model_type}",
                f"the image's transformers reads {', '.join(sorted(known))}",
                "Use an image that is newer than the model.",
            )


def architectures(situation: Situation) -> Iterator[Finding]:
    built, facts = situation.pins.compute_capabilities, situation.site.facts
    capability = facts.compute_capability.v if facts is not None else None
    if built is None or capability is None or any(_runs(one, capability) for one in built):
        return
    names = ", ".join(_version(one) for one in sorted(built))
    found = f"is {situation.site.gpu}, of compute capability {_version(capability)}"
    why = f"the image's kernels are built for {names}, and it would end after its weights are loaded"
    yield refuse("pins.image-architecture", "site.gpu", found, why, "Use an image built for this GPU.")


def _runs(built: tuple[int, int], capability: tuple[int, int]) -> bool:
    """Binaries run on the later GPUs of their generation."""
    return built[0] == capability[0] and built[1] <= capability[1]


def tag_of(image: str) -> str | None:
    name = image.partition("@")[0].rpartition("/")[2]
    return name.partition(":")[2] or None


def _version(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


RULES = (floating_tag, versions, model_types, architectures)
