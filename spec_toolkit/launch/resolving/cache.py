"""Answers of the engine's resolver that need not be asked for again. Touches the disk; whatever is wrong there costs time, never an answer.

A key holds everything an answer follows from: the engine as installed, the question, the places it names, and our own code that asks.
"""

import hashlib
import importlib.util
import os
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from spec_toolkit.launch.resolving.records import Answer, Outcome, Question, Resolution

_MOST = 256  # answers of some 25 kB
_READ_BY_THE_ENGINE = ("config.json", "hf_quant_config.json", "generation_config.json", "model.safetensors.index.json")
_RESOLVES = ("srt/*.py", "srt/arg_groups/**/*.py", "srt/configs/*.py", "srt/utils/**/*.py", "srt/speculative/*.py")
_DECIDES_TOO = ("transformers", "torch")  # read and judge a model's configuration on the engine's behalf

Kept = TypeVar("Kept", Answer, Resolution)


def cache_folder() -> Path | None:
    """None for a user without a home, as a pod may run: then nothing is kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # as the XDG specification says: unset, empty and relative are the same
        try:
            base = Path("~/.cache").expanduser()
        except RuntimeError:
            return None
    return base / "spec-toolkit" / "resolve"


def engine_identity() -> str | None:
    """The engine as it is installed here, and what it lets read a model's configuration; None where there is no engine.

    By the sizes and times of the files that arguments and configurations go through: an engine installed from a checkout is edited in
    place, and asking for a package's version takes longer than all the rest. An edit of a kernel or a model class is not seen.
    """
    engine = _package("sglang")
    if engine is None:
        return None
    files = [engine / "version.py", *(file for part in _RESOLVES for file in sorted(engine.glob(part)))]
    files += [folder / "__init__.py" for name in _DECIDES_TOO if (folder := _package(name)) is not None]
    return hashlib.sha256("\n".join(map(_stamp, files)).encode()).hexdigest()


def _package(name: str) -> Path | None:
    found = importlib.util.find_spec(name)
    return Path(found.origin).parent if found is not None and found.origin is not None else None


def key_of(question: Question, engine: str) -> str:
    digest = hashlib.sha256(engine.encode())
    digest.update(msgspec.json.encode(_normal(question), order="sorted"))
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    for place in question.places:
        for file in (Path(place), *(Path(place) / name for name in _READ_BY_THE_ENGINE)):
            with suppress(OSError):
                digest.update(str(file).encode() + file.read_bytes())
    for hook in question.hooks:
        with suppress(OSError):
            digest.update(Path(hook["file"]).read_bytes())
    return digest.hexdigest()


class Cache:
    def __init__(self, folder: Path | None) -> None:
        """None: nothing is read, and nothing kept."""
        self._folder = folder

    def read(self, key: str) -> Answer | None:
        """None where there is none, or one that cannot be read."""
        return self._read(key, Answer)

    def read_all(self, key: str) -> Resolution | None:
        return self._read(key, Resolution)

    def write(self, key: str, answer: Answer) -> None:
        """What the world, not the launch, is to blame for is not kept."""
        if answer.outcome is not Outcome.UNANSWERED:
            self._write(key, answer)

    def write_all(self, key: str, resolution: Resolution) -> None:
        if resolution.answered and resolution.of_tables:
            self._write(key, resolution)

    def _read(self, key: str, kind: type[Kept]) -> Kept | None:
        if self._folder is None:
            return None
        path = self._folder / f"{key}.json"
        try:
            kept = msgspec.json.decode(path.read_bytes(), type=kind)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        with suppress(OSError):
            os.utime(path)
        return kept

    def _write(self, key: str, kept: Answer | Resolution) -> None:
        if self._folder is None:
            return
        path = self._folder / f"{key}.json"
        part = path.with_suffix(f".{os.getpid()}.part")
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(kept))
            part.replace(path)
            self._shrink(self._folder)

    @staticmethod
    def _shrink(folder: Path) -> None:
        """The answers used longest ago go; so do parts that a killed process left."""
        entries = sorted(folder.iterdir(), key=lambda entry: entry.stat().st_mtime, reverse=True)
        for entry in entries[_MOST:]:
            entry.unlink(missing_ok=True)


def _normal(question: Question) -> Question:
    """`--flag=value` and `--flag value` are one question."""
    argv: list[str] = []
    for word in question.argv:
        flag, equals, value = word.partition("=")
        argv += [flag, value] if equals and flag.startswith("--") else [word]
    return msgspec.structs.replace(question, argv=tuple(argv))


def _stamp(file: Path) -> str:
    try:
        status = file.stat()
    except OSError:
        return f"{file}: none"
    return f"{file}: {status.st_size} {status.st_mtime_ns}"
