"""Fingerprints against a small package on disk."""

import sys
from pathlib import Path

import pytest

from spec_toolkit.fingerprint import TargetMissing, fingerprint, package_folder

BASE = '''
import functools

LIMIT = 3

@functools.cache
def step(batch, width=4):
    """Says what it does."""
    # says why
    if batch:
        return [batch, width, "text", None]
    return []


class Worker:
    size = 2

    def run(self, batch):
        return step(batch)

    @staticmethod
    def plain():
        pass


if LIMIT > 2:
    def chosen():
        return 1
else:
    def chosen():
        return 2

try:
    import nothing_like_this
except ImportError:
    def fallback():
        return 0
'''

STEP, RUN, CHOSEN = "engine.work.step", "engine.work.Worker.run", "engine.work.chosen"


def package(folder: Path, source: str) -> Path:
    engine = folder / "engine"
    engine.mkdir(parents=True, exist_ok=True)
    (engine / "__init__.py").write_text("def at_the_top():\n    return 1\n")
    (engine / "work.py").write_text(source)
    return engine


def changed(tmp_path: Path, target: str, old: str, new: str) -> bool:
    """Whether replacing `old` changes the target's fingerprint."""
    assert old in BASE
    before = fingerprint(target, package(tmp_path / "before", BASE))
    return fingerprint(target, package(tmp_path / "after", BASE.replace(old, new, 1))) != before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("    # says why\n", "", id="comment"),
        pytest.param("Says what it does.", "Says something else.", id="docstring"),
        pytest.param('    """Says what it does."""\n', "", id="docstring-removed"),
        pytest.param("[batch, width,", "[\n        batch,\n        width,", id="layout"),
        pytest.param('"text"', "'text'", id="quotes"),
        pytest.param("LIMIT = 3", "LIMIT = 3\n\n\nOTHER = 1", id="moved-down"),
        pytest.param("LIMIT = 3", "LIMIT = 4", id="near-miss-a-constant-it-could-read"),
        pytest.param("return step(batch)", "return step(2)", id="near-miss-its-caller"),
    ],
)
def test_what_does_not_run_in_the_function_does_not_count(tmp_path, old, new):
    assert not changed(tmp_path, STEP, old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("return [batch, width", "return [width, batch", id="body"),
        pytest.param("width=4", "width=5", id="default"),
        pytest.param("width=4", "breadth=4", id="parameter-name"),
        pytest.param("batch, width=4", "batch, *, width=4", id="keyword-only"),
        pytest.param("@functools.cache", "@functools.lru_cache", id="decorator"),
        pytest.param("@functools.cache\n", "", id="decorator-removed"),
        pytest.param("def step(", "async def step(", id="async"),
        pytest.param('"text"', 'b"text"', id="kind-of-constant"),
        pytest.param("None]", "False]", id="none-is-not-false"),
        pytest.param("    return []", "    return ()", id="empty-list-is-not-empty-tuple"),
        pytest.param("if batch:", "if not batch:", id="condition"),
    ],
)
def test_what_runs_counts(tmp_path, old, new):
    assert changed(tmp_path, STEP, old, new)


def test_conditions_above_a_definition_count(tmp_path):
    assert changed(tmp_path, CHOSEN, "LIMIT > 2", "LIMIT > 3")


def test_every_definition_of_a_name_counts(tmp_path):
    assert changed(tmp_path, CHOSEN, "return 2", "return 3")


def test_definitions_under_try_are_found(tmp_path):
    assert fingerprint("engine.work.fallback", package(tmp_path, BASE))


def test_a_method_is_found_in_its_class_only(tmp_path):
    engine = package(tmp_path, BASE + "\n\nclass Other:\n    def walk(self):\n        return 1\n")
    assert fingerprint(RUN, engine)
    with pytest.raises(TargetMissing, match=r"Worker\.walk is not defined in work\.py"):
        fingerprint("engine.work.Worker.walk", engine)


def test_a_function_inside_a_function_is_no_method(tmp_path):
    engine = package(tmp_path, "def outer():\n    def inner():\n        return 1\n    return inner\n")
    assert fingerprint("engine.work.outer", engine)


def test_a_function_of_a_package_itself_is_found(tmp_path):
    assert fingerprint("engine.at_the_top", package(tmp_path, BASE))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        pytest.param("engine.work.walk", r"walk is not defined in work\.py", id="renamed"),
        pytest.param("engine.play.step", r"play\.step is not defined in __init__\.py", id="module-gone"),
        pytest.param("engine.work", r"no module for engine\.work under engine/", id="a-module-is-no-target"),
        pytest.param("engine", r"no module for engine under engine/", id="a-package-is-no-target"),
        pytest.param("engine.work.LIMIT", r"LIMIT is not defined in work\.py", id="a-constant-is-no-definition"),
    ],
)
def test_a_missing_target_is_named(tmp_path, target, message):
    with pytest.raises(TargetMissing, match=message):
        fingerprint(target, package(tmp_path, BASE))


def test_a_missing_package_is_named():
    with pytest.raises(TargetMissing, match="package 'no_such_engine' is not installed"):
        package_folder("no_such_engine")


def test_nothing_of_the_target_is_imported(tmp_path, monkeypatch):
    package(tmp_path, "raise SystemExit\n\ndef step():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert fingerprint(STEP)
    assert "engine" not in sys.modules


def test_the_hash_is_the_same_on_every_python(tmp_path):
    """Written down from 3.11; the walker leaves out what other versions add."""
    expected = "88b53a0421288884cc107af1678a315b2ecf3a329da46e5cb6ff5f8c8e025319"
    assert fingerprint(STEP, package(tmp_path, BASE)) == expected
