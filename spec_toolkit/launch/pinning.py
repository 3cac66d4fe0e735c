"""Pins a recipe: finds what its names stand for now and writes that into its file. Touches the network and the file.

Only what hub, registry or disk said is written. What a recipe already pins is kept: a person who wants a later commit deletes the line.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import Struct

from spec_toolkit.errors import FactsError, Finding, RecipeError
from spec_toolkit.facts.checkpoint import content_hash, model_folder
from spec_toolkit.facts.hub import Origin, resolve_revision
from spec_toolkit.facts.hub_files import fetch_description
from spec_toolkit.facts.registry import image_digest
from spec_toolkit.facts.tokenizer import tokenizer_hash
from spec_toolkit.recipe.edit import set_values
from spec_toolkit.recipe.load import load_recipe
from spec_toolkit.recipe.source import read_source
from spec_toolkit.terms import Method

_FETCH_SECONDS = 120.0  # some vocabularies are tens of MB
_MARK = b"\xef\xbb\xbf"  # UTF-8's byte-order mark, which some editors put before a text
_ENGINE_IMAGE = "lmsysorg/sglang"  # SGLang's own, by version


class Pin(Struct, frozen=True, kw_only=True):
    key: str
    value: str
    says: str  # who said so, and of what


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """What became of each of a recipe's pins."""

    path: Path
    kept: tuple[str, ...]  # keys that are written already
    pins: tuple[Pin, ...]  # found now
    open: tuple[Finding, ...]  # why the others stay open
    text: str  # the recipe with what was found
    written: bool = False


def find_pins(path: Path) -> Pinned:
    """RecipeError where the file is no recipe, or is written so that only a person can edit it."""
    loaded = load_recipe(path)
    target, draft, engine = loaded.recipe.target, loaded.recipe.draft, loaded.recipe.engine
    search = _Search()
    commit = search.find("target.revision", target.revision, lambda: _revision("target.revision", target.model))
    search.find("target.tokenizer", target.tokenizer, lambda: _tokenizer(target.model, commit))
    if draft.model != "same" and draft.method is not Method.NONE:
        search.find("draft.revision", draft.revision, lambda: _revision("draft.revision", draft.model))
    if not loaded.recipe.is_rehearsal:
        image = engine.image or f"{_ENGINE_IMAGE}:v{engine.sglang}"
        search.find("engine.image", engine.image if "@" in image else None, lambda: _image(image))
    return Pinned(
        path=path,
        kept=tuple(search.kept),
        pins=tuple(search.pins),
        open=tuple(search.open),
        text=set_values(loaded.text, {pin.key: pin.value for pin in search.pins}, str(path)),
    )


def write_pins(path: Path) -> Pinned:
    """As `find_pins`, and the file holds what was found; it is replaced whole, with its mode, or not at all."""
    before = read_source(path)
    found = find_pins(path)
    if not found.pins:
        return found
    mark = _MARK if before.startswith(_MARK) else b""
    _write(path.resolve(), before, mark + found.text.encode())
    return replace(found, written=True)


@dataclass(frozen=True, slots=True)
class _Search:
    kept: list[str] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    open: list[Finding] = field(default_factory=list)

    def find(self, key: str, written: str | None, ask: Callable[[], Pin]) -> str | None:
        """The value that is written or was found; what nobody tells stays open, and the others are asked all the same."""
        if written is not None:
            self.kept.append(key)
            return written
        try:
            pin = ask()
        except FactsError as error:
            self.open.extend(error.findings)
            return None
        self.pins.append(pin)
        return pin.value


def _revision(key: str, model: str) -> Pin:
    folder = model_folder(model)
    if folder is not None:
        return Pin(key=key, value=content_hash(folder), says=f"the files of {folder}")
    resolved = resolve_revision(model, None)
    if resolved.origin is not Origin.HUB:  # an old download says what was main once
        raise FactsError.of(
            "facts.revision",
            f"{model}@main",
            "the hub did not answer, and the cache on this machine may be behind it",
            why="a pin is of what the name stands for now",
            remedy="Try again where the hub can be reached (HF_ENDPOINT).",
        )
    return Pin(key=key, value=resolved.commit, says=f"branch main of {model}, as the hub has it now")


def _tokenizer(model: str, commit: str | None) -> Pin:
    key, folder = "target.tokenizer", model_folder(model)
    if folder is not None:
        return Pin(key=key, value=tokenizer_hash(folder), says=f"the files of {folder}")
    if commit is None:
        raise FactsError.of(
            "facts.tokenizer",
            model,
            "its commit is not known",
            why="tokenizer and weights are of one commit",
            remedy="It is found once target.revision is.",
        )
    fetched = fetch_description(model, commit, deadline_seconds=_FETCH_SECONDS)
    if "tokenizer.json" not in fetched.files:
        raise FactsError.of(
            "facts.tokenizer",
            f"{model}@{commit[:12]}",
            "has no tokenizer.json",
            why="the hash is over what it says",
            remedy="Leave target.tokenizer open.",
        )
    value = tokenizer_hash(fetched.folder)
    return Pin(
        key=key, value=value, says=f"vocabulary, merges, special tokens and chat template of {model} at that commit"
    )


def _image(image: str) -> Pin:
    digest = image_digest(image)
    return Pin(key="engine.image", value=f"{image}@{digest}", says=f"what {image} stands for now")


def _write(path: Path, before: bytes, after: bytes) -> None:
    """OSError where the disk refuses; RecipeError where somebody else wrote the file meanwhile."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(after)
            file.flush()
            os.fchmod(file.fileno(), path.stat().st_mode & 0o7777)
            os.fsync(file.fileno())
        _refuse_if_changed(path, before)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _refuse_if_changed(path: Path, before: bytes) -> None:
    if read_source(path) != before:
        found = "was written by somebody else meanwhile"
        raise RecipeError.of("recipe.changed", str(path), found, remedy="Pin it again.")
