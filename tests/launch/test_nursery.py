"""What is told of a nursery that does not start, is slow, is gone or does not end: by a script in its place, without an engine."""

from pathlib import Path

import pytest

from spec_toolkit.launch import nursery as nursery_module
from spec_toolkit.launch.forked import forked
from spec_toolkit.launch.nursery import Nursery, NurseryError, NurseryGoneError
from tests.engine.serving import launch_spec, rehearsal_recipe

IN_ITS_PLACE = """
import json, os, socket, sys, time

does = os.environ["DOES"]
if does == "ends":
    sys.exit("ModuleNotFoundError: No module named 'sglang'")
if does == "ends silently":
    sys.exit(3)
if does == "imports for ever":
    time.sleep(60)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
if does != "cannot be reached":
    listener.bind(sys.argv[1] + "/nursery.sock")
    listener.listen(16)
print("ready", flush=True)
if does == "spawns and is silent":
    asking = listener.accept()[0]
    asking.makefile("rb").readline()
    asking.sendall(json.dumps({"pid": 1}).encode() + b"\\n")
if does == "ends when asked":
    listener.accept()
    sys.exit(0)
if does == "drops what is asked":
    listener.accept()[0].close()
    sys.stdin.read()
if does in {"is silent", "spawns and is silent", "cannot be reached"}:
    sys.stdin.read()
else:
    time.sleep(60)
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = tmp_path / "nursery.py"
    script.write_text(IN_ITS_PLACE)
    monkeypatch.setattr(nursery_module, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(nursery_module, "_END_SECONDS", 0.3)

    def started(does: str, *, home: Path | None = tmp_path):
        return Nursery.start({"DOES": does}, script=script, home=home)

    return started


def not_ready(start, does: str, **more: object) -> str:
    with pytest.raises(NurseryError) as caught, start(does, **more):
        pass
    return str(caught.value)


def test_one_that_does_not_start_is_quoted_and_its_log_is_named(start, tmp_path: Path) -> None:
    assert not_ready(start, "ends") == (
        "CPU engine: ended with exit code 1 before it could be forked. "
        f"Last words: \"ModuleNotFoundError: No module named 'sglang'\" ({tmp_path}/nursery.log). "
        "`make setup` installs what it needs. [nursery.not-ready]"
    )


def test_one_that_says_nothing_is_not_given_words(start, tmp_path: Path) -> None:
    said = not_ready(start, "ends silently")
    assert "exit code 3 before it could be forked. It said nothing" in said
    assert str(tmp_path / "nursery.log") in said


def test_without_a_home_its_words_are_on_standard_error(start, capfd: pytest.CaptureFixture[str]) -> None:
    assert "Its own words are above. `make setup`" in not_ready(start, "ends", home=None)
    assert "No module named 'sglang'" in capfd.readouterr().err


def test_a_folder_whose_path_is_too_long_for_a_socket_is_refused_before_anything_is_imported(
    start, tmp_path: Path
) -> None:
    most = 107 - len("/nursery.sock")
    (fits := tmp_path / ("x" * (most - len(str(tmp_path)) - 1))).mkdir(mode=0o700)
    with start("is silent", home=fits):
        pass
    (longer := fits.with_name(f"{fits.name}x")).mkdir(mode=0o700)
    said = not_ready(start, "is silent", home=longer)
    assert "its socket's path would have 108 bytes; the kernel takes 107. Set TMPDIR to a shorter folder." in said
    assert list(longer.iterdir()) == []


def test_imports_that_take_too_long_are_no_exit_code(start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nursery_module, "IMPORT_SECONDS", 0.5)
    assert not_ready(start, "imports for ever").startswith("CPU engine: was not imported after 0.5 s. ")


def test_one_that_is_slow_is_not_gone(start) -> None:
    with start("is silent") as nursery, pytest.raises(NurseryError, match=r"\(status\) within 0.3 s. .*slow") as caught:
        nursery.exit_code(1)
    assert not isinstance(caught.value, NurseryGoneError)


@pytest.mark.parametrize("does", ["cannot be reached", "ends when asked"])
def test_one_that_is_gone_says_so(start, does: str) -> None:
    with start(does) as nursery:
        if does == "ends when asked":
            with pytest.raises(NurseryGoneError):
                nursery.exit_code(1)
        with pytest.raises(NurseryGoneError, match=r"cannot be reached .*\[nursery.gone\]"):
            nursery.exit_code(1)


def test_one_that_drops_a_request_is_not_gone(start) -> None:
    with start("drops what is asked") as nursery, pytest.raises(NurseryError) as caught:
        nursery.exit_code(1)
    assert not isinstance(caught.value, NurseryGoneError)


def test_one_that_does_not_end_is_killed_and_the_first_error_stays(start) -> None:
    with pytest.raises(ValueError, match="the first"), start("does not end") as nursery:
        raise ValueError("the first")
    assert nursery.process.returncode == -9


def fork(nursery: Nursery, folder: Path):
    return forked(nursery, folder, launch_spec(folder, rehearsal_recipe(num_steps=3, overlap=True), speculate=True))


def test_an_engine_that_a_slow_nursery_does_not_end_is_told_unless_there_is_an_error_already(
    start, tmp_path: Path
) -> None:
    with (
        start("spawns and is silent") as nursery,
        pytest.raises(NurseryError, match=r"nursery\.slow"),
        fork(nursery, tmp_path),
    ):
        pass
    with (
        start("spawns and is silent") as nursery,
        pytest.raises(ValueError, match="the first"),
        fork(nursery, tmp_path),
    ):
        raise ValueError("the first")


def test_an_engine_whose_nursery_is_gone_needs_no_ending(start, tmp_path: Path) -> None:
    with start("spawns and is silent") as nursery, fork(nursery, tmp_path):
        nursery.process.kill()
        nursery.process.wait(10)
