"""`spec-toolkit rehearse` end to end on the real engine: the page's record, a planted fault, Ctrl-C."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spec_toolkit.shipped import rehearsal, shipped

pytestmark = pytest.mark.engine

SECONDS = 540


PACKAGE = rehearsal().parent


def starting(package: Path, *words: str, **environment: str) -> dict[str, Any]:
    """A rehearsal by the package at that place: `-m` looks in the working folder first."""
    return {
        "args": [sys.executable, "-m", "spec_toolkit.cli.main", "rehearse", *words],
        "env": {**os.environ, "PYTHONPATH": str(package.parent), **environment},
        "cwd": package.parent,
        "text": True,
    }


def rehearse(*words: str, package: Path = PACKAGE) -> tuple[int, str, str]:
    done = subprocess.run(**starting(package, *words), capture_output=True, timeout=SECONDS, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("recipe", "ranks"),
    [
        pytest.param("recipes/deepseek_v3_h200.yaml", 2, id="deepseek-v3"),
        pytest.param("deepseek_v3_h200_throughput", 2, id="attention-dp", marks=pytest.mark.matrix),
        pytest.param("glm52_fp8_h200", 2, id="glm-5.2", marks=pytest.mark.matrix),
        pytest.param("gemma4_31b_h200", 2, id="gemma-4", marks=pytest.mark.matrix),
    ],
)
def test_a_production_recipe_rehearses(recipe: str, ranks: int, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer, story = rehearse(recipe, "--prompts", "2", "--json")  # ten prompts: eight at a time
    assert code == 0, f"{answer}\n{story}"
    found = json.loads(answer)
    with capsys.disabled():
        sys.stdout.write(f"\n  {found['name']}: {found['seconds']:.0f} s; {found['sampled']['sentence']}\n")
        sys.stdout.writelines(f"  {one['what']}: {one['sentence']}\n" for one in found["greedy"])
    assert found["passed"]
    assert {one["ranks"] for one in found["greedy"]} == {1, ranks}
    assert {one["concurrency"] for one in found["greedy"]} == {1, 8}
    assert all(one["prompts"] >= 8 for one in found["greedy"])
    assert all(one["compared_tokens"] > 100 for one in found["greedy"])
    lower = [one["steps"] for one in found["greedy"] if one["steps"] != max(found["steps"], default=one["steps"])]
    assert sorted(lower) == found["steps"][:-1]  # each step count the policy may fall to
    assert min(found["sampled"]["answers"]) >= 100
    assert len(found["buckets"]) == 5
    assert all(bucket["alone"]["emitted_length"] > 1.2 for bucket in found["buckets"])
    assert [engine["speculates"] for engine in found["engines"]] == [False, True, True]
    assert "ready" in story


# The verify kernel with one comparison wrong: a node's first child is accepted whatever it carries.
GOOD = "while node != NO_NODE and tokens[node] != token:"
BAD = "while False:"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the toolkit and its patches, to be spoiled."""
    package = tmp_path / "spec_toolkit"
    left = shutil.ignore_patterns("models", "training", "install", "__pycache__")
    shutil.copytree(PACKAGE, package, ignore=left)
    (package / "rehearsal" / "models").symlink_to(rehearsal() / "models")
    shutil.copytree(shipped("patches"), tmp_path / "patches", ignore=left)
    for folder in ("recipes", "runbooks"):
        (tmp_path / folder).symlink_to(shipped(folder))
    return package


@pytest.fixture
def broken(copied: Path) -> Path:
    """Its verify kernel is wrong."""
    kernel = copied / "rehearsal" / "path" / "sgl_kernel" / "tree.py"
    source = kernel.read_text(encoding="utf-8")
    assert source.count(GOOD) == 1
    kernel.write_text(source.replace(GOOD, BAD), encoding="utf-8")
    return copied


def test_a_fault_in_the_verify_kernel_turns_the_page_red(broken: Path) -> None:
    """A recipe that is a rehearsal already, and is taken as it stands."""
    code, answer, story = rehearse("rehearsal/deepseek_v3_cpu", "--prompts", "1", package=broken)
    assert code == 1, f"{answer}\n{story}"
    assert answer.startswith("deepseek_v3_cpu [rehearsal]: NOT LOSSLESS")
    assert "This is not rounding. See runbooks/outputs-differ.md" in answer
    assert "Not as the recipe has it" not in answer


@pytest.mark.matrix
def test_a_draft_that_faults_turns_the_page_red_although_no_answer_changes(copied: Path) -> None:
    """One fault, planted from the start; the patch that isolates it keeps every token right."""
    hooks = copied.parent / "patches" / "sglang_0_5_23" / "inject_draft_faults" / "hooks.py"
    command = '{"fault_point": int(FaultPoint.DRAFT_AFTER), "fault_rank": -1, "fault_after": 40, "fault_times": 1}'
    hooks.write_text(f"{hooks.read_text(encoding='utf-8')}\n\nINJECTION.take({command})\n", encoding="utf-8")
    code, answer, story = rehearse("rehearsal/deepseek_v3_cpu_drills", "--prompts", "1", "--json", package=copied)
    assert code == 1, f"{answer}\n{story}"
    found = json.loads(answer)
    assert all(one["passed"] for one in found["greedy"])
    (trouble,) = found["troubles"]
    assert (trouble["engine"], trouble["after"], trouble["rank"]) == ("speculating", "one at a time", "0.0")
    assert "its draft faulted" in trouble["sentence"]
    assert "planted at draft_after" in trouble["sentence"]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where temporary files go; short, since a socket's path holds 107 characters."""
    with tempfile.TemporaryDirectory(prefix="rehearse-") as folder:
        yield Path(folder)


def using(folder: Path) -> list[str]:
    """Command lines of processes that name it in their arguments or environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
            if str(folder).encode() in line + (process / "environ").read_bytes():
                found.append(line.replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        pytest.param("the engine is imported once", signal.SIGINT, id="while-it-imports"),
        pytest.param("the engine is imported once", signal.SIGTERM, id="sigterm-while-it-imports"),
        pytest.param("speculating: ready", signal.SIGINT, id="while-engines-answer", marks=pytest.mark.matrix),
        pytest.param("speculating: ready", signal.SIGTERM, id="sigterm-while-engines-answer", marks=pytest.mark.matrix),
    ],
)
def test_ctrl_c_and_sigterm_end_everything_and_leave_nothing(
    moment: str, number: signal.Signals, scratch: Path
) -> None:
    running = subprocess.Popen(
        **starting(PACKAGE, "deepseek_v3_h200", TMPDIR=str(scratch)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        for line in running.stderr:
            if moment in line:
                break
        running.send_signal(number)
        _, rest = running.communicate(timeout=120)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130, rest
    assert "Traceback" not in rest
    assert list(scratch.iterdir()) == []
    deadline = time.monotonic() + 60
    while (
        using(scratch) and time.monotonic() < deadline
    ):  # cut off before it was known: it ends with its standard input
        time.sleep(0.2)
    assert using(scratch) == []
