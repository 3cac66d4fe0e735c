"""The deployment's folder: private, atomic, and honest about who lives."""

import asyncio
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from spec_toolkit.errors import ActError, FactsError, RecipeError
from spec_toolkit.launch import control
from spec_toolkit.launch.deployment import Folder, Status, existing, folder_of, known, write_private
from spec_toolkit.launch.events import Event, Kind
from spec_toolkit.launch.logs import last_lines
from spec_toolkit.launch.rotating_log import RotatingLog


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "deep" / "d")
    made.create()
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_can_read_it(folder: Folder) -> None:
    folder.write_status(Status(name="d", recipe="r", recipe_sha256="s"))
    write_private(folder.admin_key, b"secret")
    assert mode(folder.path) == 0o700
    assert mode(folder.status_file) == 0o600
    assert mode(folder.admin_key) == 0o600


def test_a_write_that_fails_leaves_the_old_content_and_no_rest(folder: Folder) -> None:
    write_private(folder.recipe, b"old")
    with pytest.raises(TypeError):
        write_private(folder.recipe, "not bytes")  # type: ignore[arg-type]
    assert folder.recipe.read_bytes() == b"old"
    assert [path.name for path in folder.path.iterdir()] == ["recipe.yaml"]


def test_an_owner_is_one_that_lives(folder: Folder) -> None:
    assert not folder.has_owner()
    script = "import sys, pathlib; from spec_toolkit.launch.deployment import Folder; Folder(pathlib.Path(sys.argv[1])).own(); print('owned', flush=True); sys.stdin.read()"
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owned\n"
        assert folder.has_owner()
        owner.kill()
        owner.wait()
    assert not folder.has_owner()


def test_a_second_command_is_told_to_wait(folder: Folder) -> None:
    with (
        folder.asking(),
        pytest.raises(FactsError, match="another command is starting or replacing this deployment"),
        folder.asking(),
    ):
        pass


def test_half_a_line_that_a_full_disk_left_hides_no_other_event(folder: Folder) -> None:
    event = Event(at="", elapsed_seconds=0.0, kind=Kind.READY, text="x")
    folder.append_event(event)
    with folder.events_file.open("ab") as file:
        file.write(b'{"at": "2026\n')
    folder.append_event(event)
    assert folder.events() == [event, event]


@pytest.mark.parametrize("name", ["deepseek_v3_cpu", "a", "0", "a.b-c_d"])
def test_good_names(name: str) -> None:
    assert folder_of(name).name == name


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "../x", "a b", "-x", "x" * 101, "a\0", "a\n"])
def test_a_name_that_could_leave_the_folder_is_refused(name: str) -> None:
    with pytest.raises(RecipeError, match="cannot name a deployment"):
        folder_of(name)


def test_an_unknown_deployment_names_the_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = folder_of("here")
    made.create()
    write_private(made.launch, b"{}")
    assert [each.name for each in known()] == ["here"]
    with pytest.raises(FactsError, match=r"there: no such deployment on this machine\. Known: here\."):
        existing("there")


def test_a_socket_path_too_long_for_the_kernel_goes_elsewhere_and_is_cleaned_up(tmp_path: Path) -> None:
    async def listen(folder: Folder) -> Path:
        async with control.listening(folder, lambda verb, arguments: {"heard": verb, **arguments}):
            assert await control.ask(folder, "hello", loud=True) == {"heard": "hello", "loud": True}
            return Path(folder.socket_note.read_text())

    near, far = Folder(tmp_path / "d"), Folder(tmp_path / ("x" * 100))
    for folder, inside in ((near, True), (far, False)):
        folder.create()
        path = asyncio.run(listen(folder))
        assert (path.parent == folder.path) is inside
        assert not path.exists()
        assert path.parent.exists() is inside


def test_nobody_listening_is_told_after_the_deadline(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_ANSWER_SECONDS", 0.2)
    with pytest.raises(ActError, match=r"its supervisor did not take 'stop' \(FileNotFoundError\)"):
        asyncio.run(control.ask(folder, "stop"))


def test_those_who_ask_do_not_see_each_other_as_an_owner(folder: Folder) -> None:
    folder.owner_lock.touch()
    with folder.owner_lock.open() as asker:
        fcntl.flock(asker, fcntl.LOCK_SH)
        assert not folder.has_owner()


def test_a_status_of_another_version_is_a_sentence(folder: Folder) -> None:
    folder.status_file.write_text('{"name": 1}')
    with pytest.raises(FactsError, match="is not a status of this version"):
        folder.status()


@pytest.mark.parametrize("value", ["", "relative/state"])
def test_a_state_folder_that_is_not_absolute_is_none(
    value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", value)
    assert folder_of("d").path == tmp_path / ".local" / "state" / "spec-toolkit" / "deployments" / "d"


def test_a_rotation_that_fails_closes_nobody_elses_descriptor(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    log = RotatingLog(tmp_path / "d" / "engine.log", most_bytes=10, files=2)
    log.write(b"0123456789\n")
    shutil.rmtree(tmp_path / "d")
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            log.write(b"x\n")
    assert os.fstat(log._descriptor)
    log.close()


def test_a_log_rotates_by_size_and_keeps_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    log = RotatingLog(path, most_bytes=30, files=3)
    for number in range(20):
        log.write(f"line {number:03}\n".encode())
    log.close()
    kept = [path.with_name("engine.log.2"), path.with_name("engine.log.1"), path]
    assert [each.read_text() for each in kept] == [
        "line 012\nline 013\nline 014\n",
        "line 015\nline 016\nline 017\n",
        "line 018\nline 019\n",
    ]
    assert not path.with_name("engine.log.3").exists()


@pytest.mark.parametrize(("count", "shown"), [(0, ""), (1, "c\n"), (2, "b\nc\n"), (9, "a\nb\nc\n")])
def test_the_last_lines_of_a_log(tmp_path: Path, count: int, shown: str) -> None:
    (tmp_path / "log").write_text("a\nb\nc\n")
    assert last_lines(tmp_path / "log", count) == (shown, 6)


def test_a_log_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "log", 5) == ("", 0)


def test_the_lock_does_not_outlive_a_closed_descriptor(folder: Folder) -> None:
    descriptor = folder.own()
    assert folder.has_owner()
    os.close(descriptor)
    assert not folder.has_owner()
    with folder.owner_lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
