"""What a function's source says, as one hash: does the engine's code still read as it did when a patch was written?

Pure but for reading files. It parses and never imports, so a target can be checked before the engine is, and by a machine that
could not run it. It stands in the lowest layer because both sides of the fence need the same answer: the launcher's room
(`engine.patches`) on a laptop, and the plugin inside each engine process, and neither may import the other.

The hash is over the syntax tree without what does not run: positions, comments, docstrings and bare strings. Fields that are
empty are left out, because Python adds fields from version to version (`type_params`) while an empty one means what it meant
before: the hash is the same on 3.10 to 3.13. A definition under `if`, `try` or `with` is hashed with the conditions above it;
where a name is defined twice, every definition counts. What a function calls, its class' bases and its module's constants are
not in it.
"""

import ast
import hashlib
import importlib.util
import json
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_NOT_RUN = frozenset({"ctx", "kind", "type_comment", "type_ignores"})


class TargetMissing(LookupError):  # noqa: N818 - a fact about the engine, which both callers answer
    """The dotted name is not defined by a `def` or `class` in the engine's sources."""


def package_folder(package: str) -> Path:
    """Where an installed top-level package lies. Finds it without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise TargetMissing(f"package {package!r} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def fingerprint(target: str, folder: Path | None = None) -> str:
    """SHA-256 of the definition behind `package.module.[Class.]function`; `folder` is the package's, if not the installed one."""
    package, *rest = target.split(".")
    source, names = _module_file(target, folder or package_folder(package), rest)
    scopes: list[tuple[Sequence[object], ast.AST]] = [((), _parsed(source))]
    for name in names:
        scopes = [
            ((*outer, *inner), definition)
            for outer, scope in scopes
            for inner, definition in _definitions(scope)
            if definition.name == name
        ]
    if not scopes:
        raise TargetMissing(f"{'.'.join(names)} is not defined in {source.name}")
    text = json.dumps([[conditions, _canonical(definition)] for conditions, definition in scopes])
    return hashlib.sha256(text.encode()).hexdigest()


def _module_file(target: str, folder: Path, rest: list[str]) -> tuple[Path, list[str]]:
    """The file that defines the target, and the names inside it."""
    while rest and (folder / rest[0]).is_dir():
        folder, rest = folder / rest[0], rest[1:]
    module = folder / f"{rest[0]}.py" if rest else folder
    source, names = (module, rest[1:]) if module.is_file() else (folder / "__init__.py", rest)
    if not names or not source.is_file():
        raise TargetMissing(f"no module for {target} under {folder.name}/")
    return source, names


@lru_cache(maxsize=16)
def _parsed(source: Path) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape in the engine's source is not ours to report
        return ast.parse(source.read_bytes(), filename=str(source))


def _definitions(scope: ast.AST) -> Iterator[tuple[tuple[object, ...], _Definition]]:
    """Each definition directly in this scope, with the conditions it stands under."""
    for field, value in ast.iter_fields(scope):
        for node in value if isinstance(value, list) else ():
            if isinstance(node, _Definition):
                yield _condition(scope, field), node
            elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
                for conditions, definition in _definitions(node):
                    yield (*_condition(scope, field), *conditions), definition


def _condition(scope: ast.AST, field: str) -> tuple[object, ...]:
    if isinstance(scope, ast.Module | _Definition):
        return ()
    test = getattr(scope, "test", None)
    return (type(scope).__name__, field, *([_canonical(test)] if test is not None else []))


def _canonical(value: object) -> object:
    """Nested lists of plain values: the tree without what does not run."""
    if isinstance(value, ast.AST):
        fields = [
            [name, _canonical(item)]
            for name, item in ast.iter_fields(value)
            if name not in _NOT_RUN and item is not None and item != []
        ]
        return [type(value).__name__, *fields]
    if isinstance(value, list):
        return [_canonical(item) for item in value if not _is_bare_string(item)]
    return repr(value)


def _is_bare_string(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
