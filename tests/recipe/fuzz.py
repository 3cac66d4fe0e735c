"""Feeds the loader files that no person wrote: `python tests/recipe/fuzz.py 10000 [seed]`.

Every file must end in a loaded recipe or in a RecipeError with findings, and soon. Prints what happened; ends with 1 after anything else.
"""

# ruff: noqa: T201 - a command that prints what it found

import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from spec_toolkit.errors import RecipeError
from spec_toolkit.facts.known import load_tables
from spec_toolkit.planning.plan import make_plan
from spec_toolkit.recipe.catalogue import catalogue
from spec_toolkit.recipe.load import load_recipe
from spec_toolkit.recipe.source import LARGEST_BYTES

LONGEST_SECONDS = 2.0  # of processor time for one file; the usual is a thousandth of it

NASTY = [
    "yes", "no", "on", "off", "~", "null", "1_000", "0o17", "017", "0x1F", "1:30", "1:30.5", ".inf", "-.inf", ".nan", "1e400", "1.0e+400",
    "2024-01-01", "2024-01-01T00:00:00Z", "9" * 20, "9" * 5000, "-0", "+1", "3.0", "1e3", "<<", "=", "*a", "&a", "&a x", "!!python/object:os.system",
    "!!binary aGk=", "!x", "!<tag:x>", "[", "]", "{", "}", "[]", "{}", "{a: {b: {c: d}}}", "'", '"', '"\\ud800"', '"\\x00"', "|", ">", "|-\n  a\n  b",
    "? ", "- ", ": ", "#", "%YAML 1.2", "---", "...", "@", "`", "\t", "\u2028", "\u202e", "\ufeff", "\x85", "\x00", "\x1b[2J", "é", "💥", "a" * 3000,
    "1", "2", "5", "48", "96", "relaxed", "rejection", "none", "dspark", "eagle3", "cpu", "0.9", "h100", "[full]", "[64, 1]", "0.5.24", "true", "false",
    "rehearsal:../../etc", "../../../etc/passwd", "--admin-api-key", "$(id)", "${HOME}", "{{ x }}", "sha256:" + "0" * 64, "0" * 40, "1" * 40,
]  # fmt: skip
BOMBS = [
    b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(b"%c: &%c [%s]\n" % (c + 1, c + 1, b",".join([b"*%c" % c] * 9)) for c in range(97, 112)),
    b"[" * 60_000, b"{" * 60_000, b"{a: " * 15_000, b"- " * 30_000, b"? " * 30_000, b"a: " * 20_000, b"? [" * 20_000, b"!a " * 20_000, b"&a " * 20_000,
    b"".join(b" " * n + b"a:\n" for n in range(340)), b"'" + b"a\n" * 30_000, b'"' + b"\\\n" * 30_000, b"a: |\n" + b" x\n" * 20_000,
    b"#" * 60_000, b"\n" * 60_000, b"\r" * 60_000, b"---\n" * 15_000, b"a: b\n" * 12_000, b"".join(b"k%d: v\n" % n for n in range(7000)),
    b"draft: [" + b"{}," * 20_000 + b"]", b"draft: {" + b"x: 1," * 12_000 + b"}", b"\xff\xfe" + b"a\0" * 1000, b"\x00" * 1000, b"\xc3\x28" * 1000,
    b"engine: {extra_args: [" + b"{flag: --x, why: y}, " * 3000 + b"]}", b"a" * (LARGEST_BYTES + 1), b"1:" * 30_000, b"1_" * 30_000, b"- 1\n" * 15_000,
]  # fmt: skip


def by_bytes(recipe: bytes, dice: random.Random) -> bytes:
    content = bytearray(recipe)
    for _ in range(dice.randint(1, 12)):
        place = dice.randrange(len(content) + 1)
        match dice.randrange(4):
            case 0:
                content[place:place] = dice.randbytes(dice.randint(1, 4))
            case 1:
                del content[place : place + dice.randint(1, 30)]
            case 2:
                content[place : place + 1] = bytes([dice.randrange(256)])
            case _:
                start = dice.randrange(len(content) + 1)
                content[place:place] = content[start : start + dice.randint(1, 200)]
    return bytes(content)


def by_tokens(recipe: bytes, dice: random.Random) -> bytes:
    tokens = recipe.decode().replace(":", " : ").split(" ")
    for _ in range(dice.randint(1, 6)):
        place = dice.randrange(len(tokens))
        tokens[place] = dice.choice([*NASTY, dice.choice(tokens), tokens[place][::-1]])
    return " ".join(tokens).replace(" : ", ":").encode("utf-8", "surrogatepass")


def by_values(recipe: bytes, dice: random.Random) -> bytes:
    """The value of one to three keys is replaced, which keeps the file YAML more often than not."""
    lines = recipe.decode().split("\n")
    keyed = [n for n, line in enumerate(lines) if ":" in line and not line.startswith("#")]
    for number in dice.sample(keyed, dice.randint(1, 3)):
        lines[number] = lines[number].partition(":")[0] + ": " + dice.choice(NASTY)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def by_lines(recipe: bytes, dice: random.Random) -> bytes:
    lines = recipe.split(b"\n")
    for _ in range(dice.randint(1, 5)):
        place = dice.randrange(len(lines))
        match dice.randrange(5):
            case 0:
                del lines[place]
            case 1:
                lines.insert(place, dice.choice(lines))
            case 2:
                lines[place] = b" " * dice.randint(1, 5) + lines[place]
            case 3:
                lines[place] = lines[place].lstrip()
            case _:
                other = dice.randrange(len(lines))
                lines[place], lines[other] = lines[other], lines[place]
        lines = lines or [b""]
    return b"\n".join(lines)


def at_random(_recipe: bytes, dice: random.Random) -> bytes:
    alphabet = dice.choice([bytes(range(256)), b"{}[],:&*!|>'\"%@`#?- \n\tab01", b"a:\n -"])
    return bytes(dice.choices(alphabet, k=dice.randint(0, 3000)))


def bomb(_recipe: bytes, dice: random.Random) -> bytes:
    return dice.choice(BOMBS)[:LARGEST_BYTES]


WAYS: list[tuple[Callable[[bytes, random.Random], bytes], int]] = [
    (by_bytes, 25), (by_tokens, 20), (by_values, 25), (by_lines, 15), (at_random, 12), (bomb, 3),
]  # fmt: skip


def files(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    dice = random.Random(seed)  # noqa: S311 - it makes files, not secrets
    recipes = [entry.path.read_bytes() for entry in catalogue()]
    ways, weights = zip(*WAYS, strict=True)
    yield from ((f"bomb {number}", content[:LARGEST_BYTES]) for number, content in enumerate(BOMBS[:count]))
    for _ in range(count - len(BOMBS)):
        (way,) = dice.choices(ways, weights)
        yield way.__name__, way(dice.choice(recipes), dice)


def run(count: int, seed: int) -> int:
    outcomes: Counter[str] = Counter()
    slowest = (0.0, "none", 0)
    tables = load_tables()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.yaml"
        for way, content in files(count, seed):
            path.write_bytes(content)
            began = time.process_time()
            try:
                plan = make_plan(load_recipe(path), tables)
                outcome = "planned" if plan.may_launch else "planned and refused"
                text = "\n".join(finding.sentence() for finding in plan.findings)
            except RecipeError as error:
                outcome, text = "refused by the loader", str(error)
            except BaseException:  # noqa: BLE001 - whatever it is, it is what we look for
                outcome, text = "TRACEBACK", ""
                print(f"{way}: {content[:300]!r}\n{traceback.format_exc()}", file=sys.stderr)
            seconds = time.process_time() - began
            slowest = max(slowest, (seconds, way, len(content)))
            if seconds > LONGEST_SECONDS:
                outcome = "TOO SLOW"
            elif outcome == "refused by the loader" and not text:
                outcome = "REFUSED WITHOUT A WORD"
            elif any(not character.isprintable() and character != "\n" for character in text):
                outcome = "UNPRINTABLE MESSAGE"
            outcomes[outcome] += 1
    print(
        f"{count:,} files, seed {seed}: "
        + ", ".join(f"{number:,} {outcome}" for outcome, number in outcomes.most_common())
    )
    print(
        f"tracebacks {outcomes['TRACEBACK']}; slowest {slowest[0] * 1000:.0f} ms of processor time ({slowest[1]}, {slowest[2]:,} bytes)"
    )
    return int(any(outcome.isupper() for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
