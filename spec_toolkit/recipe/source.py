"""Reads the bytes of a recipe file and turns them into text, refusing what is no recipe. Touches the disk, never waits on it."""

import os
import re
import stat
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from spec_toolkit.errors import Finding, RecipeError, Verdict

LARGEST_BYTES = 16 * 1024  # a recipe has at most 80 lines; this bounds the time of every later step

# What YAML 1.1 calls printable, less the direction marks that make a line read differently from what it says.
_UNPRINTABLE = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]"
)
_OTHER_ENCODINGS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"), (b"\x00\x00\xfe\xff", "UTF-32"))


def read_source(path: Path, *, largest: int = LARGEST_BYTES, why: str = "a recipe has at most 80 lines") -> bytes:
    """The content of a regular file of at most `largest` bytes (`why` so many); RecipeError for anything else."""
    try:
        # Without O_NONBLOCK, opening a named pipe waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _refused(path, "no such file", remedy=_nearby(path)) from None
    except OSError as error:
        raise _refused(path, f"cannot be opened ({_reason(error)})") from None
    except ValueError:
        raise _refused(path, "is no file name; it holds a NUL byte") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise _refused(path, f"is {_kind_of_file(mode)}, not a file", remedy="Name a file.")
        content = _read_at_most(descriptor, largest + 1)
    except OSError as error:
        raise _refused(path, f"cannot be read ({_reason(error)})") from None
    finally:
        os.close(descriptor)
    if len(content) > largest:
        raise _refused(path, f"is larger than {largest // 1024} KiB", why=why)
    return content


def _read_at_most(descriptor: int, most: int) -> bytes:
    content = bytearray()
    while len(content) < most and (piece := os.read(descriptor, most - len(content))):
        content += piece
    return bytes(content)


def decode_source(content: bytes, where: str) -> str:
    """UTF-8 text without control characters; RecipeError with the line of the first byte that is something else."""
    for mark, name in _OTHER_ENCODINGS:
        if content.startswith(mark):
            raise RecipeError(_encoding(f"{where}:1", f"is {name} text", "Save it as UTF-8."))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{content[error.start]:02x} is not UTF-8 text"
        raise RecipeError(_encoding(f"{where}:{line}", found, "Save the file as UTF-8.")) from None
    unprintable = tuple(_unprintable(text, where))
    if unprintable:
        raise RecipeError(*unprintable)
    return text


def _unprintable(text: str, where: str) -> Iterator[Finding]:
    """One finding for each of the first ten lines that hold a character which cannot be seen."""
    spoiled = ((number, _UNPRINTABLE.search(line)) for number, line in enumerate(text.split("\n"), start=1))
    for number, match in islice(((n, m) for n, m in spoiled if m), 10):
        yield _encoding(f"{where}:{number}", f"holds the control character U+{ord(match.group()):04X}", "Delete it.")


def _encoding(where: str, found: str, remedy: str) -> Finding:
    return Finding(rule="recipe.encoding", verdict=Verdict.REFUSE, where=where, found=found, remedy=remedy)


def _refused(path: Path, found: str, *, why: str = "", remedy: str = "") -> RecipeError:
    finding = Finding(
        rule="recipe.file", verdict=Verdict.REFUSE, where=printable(str(path)), found=found, why=why, remedy=remedy
    )
    return RecipeError(finding)


def printable(name: str, longest: int = 200) -> str:
    """A name or value as it may stand in a message: on one line, of bounded length, with nothing a terminal would obey."""
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in name[: longest + 1]
    )
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or 0).lower()


def _kind_of_file(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _nearby(path: Path) -> str:
    """The files of the same folder whose names look most like this one."""
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in {".yaml", ".yml"}]
    except OSError:
        return ""
    close = get_close_matches(path.name, sorted(names), n=3)
    return f"Did you mean {' or '.join(repr(str(path.with_name(name))) for name in close)}?" if close else ""
