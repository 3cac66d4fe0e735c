"""The house: every file stands in a room of ARCHITECTURE.md, says what its room may say, and travels as far as it should."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOP_FOLDERS = {"recipes", "spec_toolkit", "patches", "k8s", "tests", "runbooks"}
DESK = 320  # lines of a module; "about 300"
CATCH_ALL = {"utils", "util", "helpers", "helper", "common", "misc", "shared", "base"}

# Words of the engine, in a program: flags, metrics, and the keys of an answer's meta_info.
ENGINE_SPELLING = re.compile(r"--speculative-|\bsglang:[a-z_]+|[\"']spec_(?!toolkit\b)[a-z_]+[\"']")
SPEAKS_ENGINE = (
    "spec_toolkit/engine/",
    "spec_toolkit/facts/tables/",
    "spec_toolkit/plugin/",
    "spec_toolkit/rehearsal/",
)
PRINT = re.compile(r"(?<![\w.\"'`])print\(")
MAY_PRINT = ("spec_toolkit/cli/", "spec_toolkit/report/", "spec_toolkit/rehearsal/")

FILES = subprocess.run(
    ["/usr/bin/env", "git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout.splitlines()
PRODUCT = sorted(file for file in FILES if re.match(r"(spec_toolkit|patches)/.*\.py$", file) and (ROOT / file).exists())
TESTS = sorted(file for file in FILES if re.match(r"tests/.*/test_\w+\.py$", file) and (ROOT / file).exists())


def rooms_in(architecture: str) -> list[str]:
    (block,) = re.findall(r"^```rooms\n(.*?)^```$", architecture, re.MULTILINE | re.DOTALL)
    return [line.split()[0] for line in block.splitlines()]


ROOMS = rooms_in((ROOT / "ARCHITECTURE.md").read_text())


def outside(pattern: re.Pattern[str], file: str, text: str, allowed: tuple[str, ...]) -> list[str]:
    """Lines of a file that say what only other rooms may."""
    lines = enumerate(text.splitlines(), 1)
    return [] if file.startswith(allowed) else [f"{file}:{number}" for number, line in lines if pattern.search(line)]


def test_every_module_stands_in_a_room():
    homeless = [file for file in PRODUCT if not file.startswith(tuple(ROOMS)) and file != "spec_toolkit/__init__.py"]
    assert not homeless


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_there(room):
    assert (ROOT / room).is_file() if room.endswith(".py") else (ROOT / room).is_dir()


def test_the_top_holds_only_the_agreed_folders():
    assert {file.split("/")[0] for file in FILES if "/" in file and not file.startswith(".")} <= TOP_FOLDERS


def test_tests_stand_in_the_same_rooms():
    lost = []
    for file in TESTS:
        room = Path(file).parent.relative_to("tests")
        if not any((ROOT / parent / room).is_dir() for parent in ("spec_toolkit", ".")):
            lost.append(file)
    assert not lost


@pytest.mark.parametrize("file", PRODUCT)
def test_a_module_fits_on_a_desk(file):
    assert len((ROOT / file).read_text().splitlines()) <= DESK


def test_no_module_is_a_catch_all():
    assert not [file for file in PRODUCT if CATCH_ALL & {part.removesuffix(".py") for part in file.split("/")}]


def test_the_engines_spellings_stay_in_the_rooms_that_speak_engine():
    product = [file for file in PRODUCT if file.startswith("spec_toolkit/")]
    assert not [at for f in product for at in outside(ENGINE_SPELLING, f, (ROOT / f).read_text(), SPEAKS_ENGINE)]


def test_only_cli_and_report_print():
    assert not [at for file in PRODUCT for at in outside(PRINT, file, (ROOT / file).read_text(), MAY_PRINT)]


@pytest.mark.parametrize(
    ("pattern", "line", "caught"),
    [
        pytest.param(ENGINE_SPELLING, 'argv += ["--speculative-num-steps", "3"]', True, id="flag"),
        pytest.param(ENGINE_SPELLING, 'metrics["sglang:spec_accept_length"]', True, id="metric"),
        pytest.param(ENGINE_SPELLING, "meta['spec_verify_ct']", True, id="meta-info-key"),
        pytest.param(ENGINE_SPELLING, 'PLUGIN_NAME = "spec_toolkit"', False, id="near-miss-our-own-name"),
        pytest.param(ENGINE_SPELLING, "sglang: 0.5.23", False, id="near-miss-a-pin"),
        pytest.param(ENGINE_SPELLING, 'path / "spec.json"', False, id="near-miss-a-file"),
        pytest.param(PRINT, "    print(line)", True, id="print"),
        pytest.param(PRINT, "fingerprint(source)", False, id="near-miss-fingerprint"),
        pytest.param(PRINT, "console.print(table)", False, id="near-miss-a-method"),
    ],
)
def test_these_lines_are_told_apart(pattern, line, caught):
    assert bool(outside(pattern, "spec_toolkit/launch/x.py", line, SPEAKS_ENGINE)) is caught
    assert not outside(pattern, "spec_toolkit/rehearsal/x.py", line, SPEAKS_ENGINE)


def test_arrows_point_down():
    lint = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
