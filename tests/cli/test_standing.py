"""`hold`, `release` and `status --watch` on a deployment whose processes this test plays."""

import json
import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from spec_toolkit.launch.deployment import Folder, Status, write_json
from spec_toolkit.sidecar.files import write_snapshot
from tests.policy.traces import limits
from tests.report.test_policy import FULL
from tests.sidecar.test_files import launch

DEADLINE_SECONDS = 60.0


@pytest.fixture
def deployment(tmp_path, monkeypatch):
    """It has an owner, so it runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = Folder(tmp_path / "spec-toolkit" / "deployments" / "d")
    folder.create()
    write_json(folder.launch, launch())
    folder.write_status(
        Status(
            name="d",
            recipe="r.yaml",
            recipe_sha256="0",
            phase="ready",
            run="run-a",
            address="http://127.0.0.1:1",
            engine_address="http://127.0.0.1:2",
        )
    )
    write_json(folder.limits, limits())
    owned = folder.own()
    yield folder
    os.close(owned)


def toolkit(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "spec_toolkit.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        **options,
    )


def said(*words) -> tuple[int, str, str]:
    with toolkit(*words) as process:
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert "Traceback" not in err
    return process.returncode, out, err


def test_a_hold_is_written_and_released(deployment):
    code, out, _ = said("hold", "d", "reduced(1)")
    assert code == 0
    assert "d: to be held at reduced(1)." in out
    held = json.loads(deployment.hold.read_bytes())
    assert (held["mode"], held["steps"]) == ("reduced", 1)
    assert said("release", "d")[:2] == (0, "d: released from reduced(1).\n")
    assert said("release", "d")[:2] == (0, "d: was not held.\n")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("hold", "d", "reduced(2)"), 2, "It has autoregressive, zero_draft, reduced(1), full. [hold.rung]"),
        (("hold", "nowhere", "full"), 3, "no such deployment"),
        (("release", "nowhere"), 3, "no such deployment"),
        (("status", "--watch", "nowhere"), 3, "no such deployment"),
    ],
    ids=["no-such-rung", "hold-nowhere", "release-nowhere", "watch-nowhere"],
)
def test_what_cannot_be_is_refused_with_a_sentence(deployment, words, code, told):
    found, _, err = said(*words)
    assert (found, told in err) == (code, True)


def test_status_shows_the_policys_line_and_its_record(deployment):
    code, out, _ = said("status", "d")
    assert code == 0
    assert "policy    unknown" in out
    write_snapshot(deployment, FULL)
    assert "policy    reduced(1) for 60 s" in said("status", "d")[1]
    [record] = json.loads(said("status", "d", "--json")[1])
    assert record["policy"]["break_even"] == 1.5
    assert record["gateway"] is None


def blocks_of(process, count: int) -> list[str]:
    """So many, whole."""
    found, lines = [], []
    while len(found) < count:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        lines.append(line)
        if line == "\n":
            found.append("".join(lines))
            lines = []
    return found


def test_watching_shows_a_block_at_each_change_and_ends_with_ctrl_c(deployment):
    write_snapshot(deployment, FULL)
    with toolkit("status", "d", "--watch") as process:
        [first] = blocks_of(process, 1)
        assert "reduced(1)" in first
        write_snapshot(deployment, msgspec.structs.replace(FULL, emitted_length=1.7))  # nothing happened
        time.sleep(1.5)
        write_snapshot(deployment, msgspec.structs.replace(FULL, mode="zero_draft"))
        [second] = blocks_of(process, 1)
        assert "zero_draft" in second
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 0
        assert "Traceback" not in process.stderr.read()


def test_watching_ends_with_the_deployment(deployment):
    with toolkit("status", "d", "--watch", "--json") as process:
        assert json.loads(process.stdout.readline())["phase"] == "ready"
        deployment.write_status(msgspec.structs.replace(deployment.status(), phase="stopped", address=""))
        assert json.loads(process.stdout.readline())["phase"] == "stopped"
        assert process.wait(DEADLINE_SECONDS) == 1


def test_watching_ends_when_nobody_reads_any_more_though_nothing_changes(deployment):
    write_snapshot(deployment, FULL)
    with toolkit("status", "d", "--watch") as process:
        blocks_of(process, 1)
        process.stdout.close()
        try:
            assert process.wait(10) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()  # one that goes on would hold this test as well


def test_on_a_terminal_it_is_drawn_anew(deployment):
    write_snapshot(deployment, FULL)
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "spec_toolkit.cli.main", "status", "d", "--watch"], stdout=theirs, stderr=subprocess.PIPE
    ) as process:
        os.close(theirs)
        seen = b""
        while b"decisions" not in seen:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        os.set_blocking(ours, False)
        assert process.wait(DEADLINE_SECONDS) == 0
    os.close(ours)


def test_without_a_name_one_deployment_is_meant_and_several_are_asked_about(deployment):
    other = Folder(deployment.path.parent / "e")
    other.create()
    other.launch.write_text("{}")
    code, _, err = said("status", "--watch")
    assert code == 2
    assert "known: d, e" in err
