"""What crosses between sidecars, and between a sidecar and people."""

import errno
import os
import threading
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from spec_toolkit.errors import FactsError, RecipeError
from spec_toolkit.launch.deployment import Folder, Status, write_json
from spec_toolkit.launch.record import Front, Launch
from spec_toolkit.launch.spec import LaunchSpec
from spec_toolkit.planning.limits import Limits
from spec_toolkit.policy.state import first_state
from spec_toolkit.sidecar import files
from spec_toolkit.sidecar.files import Watched, append_decision, read_carried, try_writing, write_carried
from spec_toolkit.sidecar.hold import always_speculates, pin, unpin
from spec_toolkit.sidecar.records import Carried, Hold, Taken, read_rung
from spec_toolkit.sidecar.service import Clock
from spec_toolkit.terms import Comeback, Mode
from tests.sidecar.world import limits


@pytest.fixture
def folder(tmp_path):
    made = Folder(tmp_path / "somewhere")
    made.create()
    return made


def carried(**changed) -> Carried:
    given = {"state": first_state(limits(), 5.0, Mode.FULL), "run": "run-a", "engine": 1, "written_s": 6.0}
    return Carried(**{**given, **changed})


def launch(*, attempts: tuple[bool, ...] = (True, True, False)) -> Launch:
    """`attempts`: whether each speculates."""
    specs = tuple(
        LaunchSpec(
            command=(), set_environment={}, unset_environment=(), address="", speculates=speculates, processes=()
        )
        for speculates in attempts
    )
    return Launch(
        status=Status(name="d", recipe="r.yaml", recipe_sha256="0", run="run-a"),
        attempts=specs,
        tokenizer=None,
        ready_seconds=60.0,
        drain_seconds=5.0,
        front=Front(
            port=1, max_running_requests=4, max_waiting_requests=4, resume_deadline_seconds=10.0, context_tokens=4096
        ),
        comeback=Comeback.BESIDE,
        hang_seconds=40.0,
    )


@contextmanager
def running(folder: Folder, **chosen):
    write_json(folder.launch, launch(**chosen))
    write_json(folder.limits, limits())
    owned = folder.own()
    try:
        yield
    finally:
        os.close(owned)


def test_what_is_left_is_found_again(folder):
    write_carried(folder, carried(hold=Hold(mode=Mode.FULL, steps=3, at="then")), None)
    assert read_carried(folder) == (carried(hold=Hold(mode=Mode.FULL, steps=3, at="then")), "")
    assert folder.policy_state.stat().st_mode & 0o777 == 0o600


def test_without_a_predecessor_there_is_nothing_to_say(folder):
    assert read_carried(folder) == (None, "")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"state": {}}', "\x00\x01"])
def test_what_cannot_be_read_is_not_carried_on_with(folder, content):
    folder.policy_state.write_text(content)
    nothing, problem = read_carried(folder)
    assert nothing is None
    assert "starting from what the engine says" in problem


def test_limits_change_with_their_file_and_only_then(folder):
    watched = Watched(folder.limits, Limits)
    assert not watched.refresh()
    assert watched.record is None
    write_json(folder.limits, limits())
    assert watched.refresh()
    assert watched.record == limits()
    assert not watched.refresh()
    write_json(folder.limits, limits(queue_high=5))
    assert watched.refresh()
    assert watched.record.queue_high == 5


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("{", "truncated", id="torn"),
        pytest.param(
            '{"identity": "a", "steps": [1], "modes": ["full"]}', "candidates ascend from 0", id="contradiction"
        ),
        pytest.param('{"identity": "a", "steps": [0, 3], "modes": ["fool"]}', "fool", id="no-such-mode"),
        pytest.param(
            '{"identity": "a", "steps": [0], "modes": ["autoregressive"], "dwell": 3}', "dwell", id="no-such-key"
        ),
    ],
)
def test_a_bad_file_keeps_what_was_in_force_and_says_why_once(folder, content, said):
    write_json(folder.limits, limits())
    watched = Watched(folder.limits, Limits)
    watched.refresh()
    folder.limits.write_text(content)
    assert watched.refresh()
    assert watched.record == limits()
    assert said in watched.problem
    assert "what was in force stays" in watched.problem
    assert not watched.refresh()
    write_json(folder.limits, limits())
    assert watched.refresh()
    assert watched.problem == ""


def test_a_file_that_is_taken_away_is_noticed(folder):
    write_json(folder.hold, Hold(mode=Mode.FULL, steps=3, at="then"))
    watched = Watched(folder.hold, Hold)
    assert watched.refresh()
    assert not watched.absent
    folder.hold.unlink()
    assert watched.refresh()
    assert watched.absent
    assert not watched.refresh()


def test_a_bad_file_keeps_what_the_watcher_before_had_read(folder):
    folder.limits.write_text("{")
    watched = Watched(folder.limits, Limits, limits(queue_high=5))
    assert watched.refresh()
    assert watched.record == limits(queue_high=5)
    assert "what was in force stays" in watched.problem


def test_a_file_that_cannot_be_looked_at_is_not_gone_and_is_looked_at_again(folder):
    write_json(folder.hold, Hold(mode=Mode.FULL, steps=3, at="then"))
    watched = Watched(folder.hold, Hold)
    watched.refresh()
    aside = folder.path / "aside"
    folder.hold.rename(aside)
    folder.hold.symlink_to(folder.hold)  # a loop: stat fails, and the file is not absent
    assert watched.refresh()
    assert not watched.absent
    assert "it is read again as soon as it can be" in watched.problem
    assert not watched.refresh(), "told once"
    folder.hold.unlink()
    aside.rename(folder.hold)
    assert watched.refresh()
    assert (watched.absent, watched.problem) == (False, "")


def test_a_file_that_cannot_be_read_is_not_gone_either(folder):
    folder.hold.mkdir()
    watched = Watched(folder.hold, Hold)
    assert watched.refresh()
    assert (watched.absent, watched.record) == (False, None)
    assert "Is a directory" in watched.problem
    folder.hold.rmdir()
    assert watched.refresh()
    assert (watched.absent, watched.problem) == (True, "")


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_too_much(path: Path) -> None:
    path.write_bytes(b" " * 2**20 + msgspec.json.encode(limits(queue_high=7)))


@pytest.mark.parametrize(
    ("put", "said"),
    [
        pytest.param(put_pipe, "Is no regular file", id="pipe"),
        pytest.param(put_too_much, "Is larger than 1048576 bytes", id="large"),
        pytest.param(lambda path: path.symlink_to("/dev/null"), "Is no regular file", id="device"),
    ],
)
def test_what_would_hold_up_whoever_reads_it_is_not_read(folder, put, said):
    write_json(folder.limits, limits())
    watched = Watched(folder.limits, Limits)
    watched.refresh()
    folder.limits.unlink()
    put(folder.limits)
    told: list[bool] = []
    reader = threading.Thread(target=lambda: told.extend((watched.refresh(), watched.refresh())), daemon=True)
    reader.start()
    reader.join(10)
    assert told == [True, False], "once, and at once"
    assert said in watched.problem
    assert "what was in force stays" in watched.problem
    assert (watched.absent, watched.record) == (False, limits())
    folder.limits.unlink()
    write_json(folder.limits, limits(queue_high=5))
    assert watched.refresh()
    assert (watched.record, watched.problem) == (limits(queue_high=5), "")


def test_the_record_of_decisions_has_an_end(folder, monkeypatch):
    monkeypatch.setattr(files, "_LARGEST_BYTES", 2000)
    for number in range(100):
        append_decision(folder, Taken(at="now", why=f"{number}" * 20, before="full", rung="full"))
    older = folder.decisions_file.with_name("decisions.jsonl.1")
    assert 0 < folder.decisions_file.stat().st_size < 2200
    assert older.stat().st_size < 2200
    lines = (older.read_bytes() + folder.decisions_file.read_bytes()).splitlines()
    assert msgspec.json.decode(lines[-1], type=Taken).why.startswith("9999")


def test_a_full_disk_is_told_and_survived(folder):
    def full() -> None:
        raise OSError(28, "No space left on device", "decisions.jsonl")

    assert try_writing(full) == "decisions.jsonl: No space left on device"
    assert try_writing(lambda: None) == ""


def test_a_hold_is_written_for_the_owner_alone_and_taken_back(folder):
    with running(folder):
        held = pin(folder, "reduced(1)")
    assert (held.mode, held.steps) == (Mode.REDUCED, 1)
    assert folder.hold.stat().st_mode & 0o777 == 0o600
    assert unpin(folder) == held
    assert unpin(folder) is None


def test_a_hold_that_cannot_be_read_is_taken_away_all_the_same(folder):
    put_pipe(folder.hold)
    told: list[Hold | None] = []
    taker = threading.Thread(target=lambda: told.append(unpin(folder)), daemon=True)
    taker.start()
    taker.join(10)
    assert told == [None]
    assert not folder.hold.exists()


def test_where_nothing_is_held_a_read_only_disk_does_not_matter(folder, monkeypatch):
    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert unpin(folder) is None


@pytest.mark.parametrize(
    ("text", "rung"),
    [
        ("full", "full"),
        ("reduced(1)", "reduced(1)"),
        ("reduced", "reduced(1)"),
        ("zero_draft", "zero_draft"),
        ("autoregressive",) * 2,
    ],
)
def test_rungs_are_read_as_they_are_written(text, rung):
    assert str(read_rung(text, limits())) == rung


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("reduced(2)", "'reduced(2)' is not a rung of this deployment"),
        ("reduced(0)", "'reduced(0)' is not a rung of this deployment"),
        ("off", "'off' is no rung"),
        ("", "'' is no rung"),
    ],
)
def test_a_rung_there_is_not_is_refused_with_those_there_are(text, said):
    with pytest.raises(RecipeError) as refused:
        read_rung(text, limits())
    assert said in str(refused.value)
    assert "It has autoregressive, zero_draft, reduced(1), full. [hold.rung]" in str(refused.value)


def test_of_two_reduced_rungs_one_must_be_named():
    with pytest.raises(RecipeError, match="not a rung"):
        read_rung("reduced", limits(steps=(0, 1, 2, 3)))


def test_without_limits_there_is_no_ladder_to_hold_on(folder):
    with running(folder):
        folder.limits.unlink()
        with pytest.raises(FactsError, match="no-limits"):
            pin(folder, "full")
        folder.limits.write_text("{")
        with pytest.raises(FactsError, match="limits-unreadable"):
            pin(folder, "full")
    assert not folder.hold.exists()


def test_what_does_not_run_is_not_held_and_a_hold_ends_with_its_run(folder):
    with running(folder):
        pin(folder, "full")
    with pytest.raises(FactsError, match=r"does not run.*\[hold.not-running\]"):
        pin(folder, "zero_draft")
    folder.clear()
    assert not folder.hold.exists()


def test_what_was_seen_and_counted_of_a_run_is_not_taken_for_the_next_ones(folder):
    seen = (folder.sidecar_snapshot, folder.gateway_snapshot, folder.limits)
    for file in (*seen, folder.policy_state, folder.decisions_file):
        file.write_text("{}")
    folder.clear()
    assert not [file.name for file in seen if file.exists()]
    assert folder.policy_state.exists(), "crashes outlive a run"
    assert folder.decisions_file.exists()


def test_where_every_engine_speculates_autoregressive_is_not_held(folder):
    assert not always_speculates(launch())
    with running(folder, attempts=(True, True)):
        with pytest.raises(RecipeError, match=r"policy.allow lacks it.*\[hold.never-autoregressive\]"):
            pin(folder, "autoregressive")
        assert not folder.hold.exists()
        assert pin(folder, "zero_draft").mode is Mode.ZERO_DRAFT
    with running(folder):
        assert pin(folder, "autoregressive").mode is Mode.AUTOREGRESSIVE


def test_the_clock_goes_on_from_what_was_written_down_and_never_back():
    ahead = Clock(4e9)
    first, second = ahead(), ahead()
    assert 4e9 <= first <= second < 4e9 + 60
    assert 1.7e9 < Clock(0.0)() < 4e9


def test_no_temporary_file_is_left_where_a_write_fails(folder):
    (folder.path / "busy").mkdir()
    with pytest.raises(OSError, match="busy"):
        files.replace_file(folder.path / "busy", b"x")
    assert sorted(entry.name for entry in folder.path.iterdir()) == ["busy"]
