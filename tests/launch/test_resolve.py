"""Asking the engine's resolver: what is asked twice is asked once, and a child that does not answer is ended."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from spec_toolkit.errors import EngineError, FactsError
from spec_toolkit.launch import resolve
from spec_toolkit.launch.resolve import resolve_many
from spec_toolkit.launch.resolving import cache as cache_module
from spec_toolkit.launch.resolving.cache import Cache, cache_folder, key_of
from spec_toolkit.launch.resolving.records import Answer, DescribedGpu, Outcome, Question

H200 = DescribedGpu(name="NVIDIA H200", capability=(9, 0), memory_mib=143771, multiprocessors=132, count=8)
QUESTION = Question(argv=("--model-path", "a/b", "--tp-size", "8"), gpu=H200, files={"a/b/config.json": {"x": 1}})
ANSWER = Answer(outcome=Outcome.RESOLVED, engine="0.5.23", arguments={"tp_size": 8})
# A child that answers at once: every question with the number of its arguments.
PROMPT = """
import json, sys
for question in json.load(sys.stdin):
    believed = {"cuda": True, "sm": 90, "memory_mib": 143771}
    told = {"outcome": "resolved", "arguments": {"device": "cuda"}, "believed": believed}
    print(json.dumps({**told, "sentence": str(len(question["argv"]))}))
"""
# One that says nothing, and has a child of its own; it leaves word of both.
STUCK = """
import os, pathlib, subprocess, sys, time
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(os.environ["LEAVES_WORD"]).write_text(f"{os.getpid()} {other.pid}")
time.sleep(600)
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Replaces the program that imports the engine."""
    monkeypatch.setenv("LEAVES_WORD", str(tmp_path / "word"))

    def put(text: str) -> None:
        program = tmp_path / "child.py"
        program.write_text(text)
        monkeypatch.setattr(resolve, "_CHILD", str(program))

    return put


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        pytest.param(replace(QUESTION, argv=("--model-path=a/b", "--tp-size=8")), True, id="joined"),
        pytest.param(replace(QUESTION, argv=("--model-path", "a/b", "--tp-size", "4")), False, id="argument"),
        pytest.param(replace(QUESTION, gpu=replace(H200, memory_mib=143770)), False, id="gpu"),
        pytest.param(replace(QUESTION, gpu=None), False, id="no-gpu"),
        pytest.param(replace(QUESTION, files={"a/b/config.json": {"x": 2}}), False, id="config"),
        pytest.param(replace(QUESTION, environment={"SGLANG_X": "1"}), False, id="environment"),
        pytest.param(replace(QUESTION, hooks=({"target": "a", "file": "/nowhere"},)), False, id="hook"),
    ],
)
def test_a_key_holds_what_the_answer_follows_from(changed: Question, same: bool) -> None:
    assert (key_of(changed, "engine") == key_of(QUESTION, "engine")) is same
    assert key_of(QUESTION, "engine") != key_of(QUESTION, "another engine")


def test_a_hook_is_known_by_its_content(tmp_path: Path) -> None:
    hook = tmp_path / "hooks.py"
    hook.write_text("one")
    question = replace(QUESTION, hooks=({"target": "a", "file": str(hook)},))
    before = key_of(question, "engine")
    hook.write_text("two")
    assert key_of(question, "engine") != before


def test_and_so_is_our_own_code_that_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ask.py").write_text("one")
    monkeypatch.setattr(cache_module, "__file__", str(tmp_path / "cache.py"))
    before = key_of(QUESTION, "engine")
    (tmp_path / "ask.py").write_text("two")
    assert key_of(QUESTION, "engine") != before


def test_a_user_without_a_home_keeps_nothing_and_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def nobody(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", nobody)
    assert cache_folder() is None
    homeless = Cache(cache_folder())
    homeless.write("key", ANSWER)
    assert homeless.read("key") is None


def test_a_local_folder_is_known_by_its_content(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}")
    question = replace(QUESTION, places=(str(tmp_path),))
    before = key_of(question, "engine")
    config.write_text('{"x": 1}')
    assert key_of(question, "engine") != before


def test_what_was_answered_is_not_asked_again(tmp_path: Path, child) -> None:
    child(PROMPT)
    cache = Cache(tmp_path / "cache")
    first = resolve_many([QUESTION, replace(QUESTION, argv=())], cache=cache)
    assert [answer.sentence for answer in first] == ["4", "0"]
    child("raise SystemExit('asked again')")
    assert resolve_many([replace(QUESTION, argv=()), QUESTION, QUESTION], cache=cache) == [first[1], first[0], first[0]]


def test_an_entry_that_cannot_be_read_is_asked_for_again_and_replaced(tmp_path: Path, child) -> None:
    child(PROMPT)
    cache = Cache(tmp_path / "cache")
    (answer,) = resolve_many([QUESTION], cache=cache)
    (entry,) = (tmp_path / "cache").iterdir()
    for torn in (b"", b"{", b"\xff\xff", b'{"outcome": "perhaps"}', b"[]"):
        entry.write_bytes(torn)
        assert resolve_many([QUESTION], cache=cache) == [answer]
        assert cache.read(entry.stem) == answer


def test_answers_are_for_their_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "cache"
    Cache(folder).write("k", ANSWER)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "k.json").stat().st_mode) == 0o600


def test_the_answers_used_longest_ago_make_room(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for number in range(256):
        cache.write(f"{number}", ANSWER)
        os.utime(tmp_path / f"{number}.json", (number, number))
    assert cache.read("0") == ANSWER  # used just now
    cache.write("new", ANSWER)
    assert len(list(tmp_path.iterdir())) == 256
    assert cache.read("0") == ANSWER
    assert cache.read("1") is None


def test_a_fault_is_not_kept(tmp_path: Path) -> None:
    Cache(tmp_path).write("k", replace(ANSWER, outcome=Outcome.UNANSWERED))
    assert not list(tmp_path.iterdir())


def test_an_answer_for_a_cpu_is_asked_for_again(tmp_path: Path, child) -> None:
    child(PROMPT.replace("True", "False"))
    cache = Cache(tmp_path / "cache")
    assert resolve_many([QUESTION], cache=cache)
    child("raise SystemExit('asked again')")
    with pytest.raises(EngineError, match="asked again"):
        resolve_many([QUESTION], cache=cache)


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path, child) -> None:
    child(PROMPT)
    (tmp_path / "file").write_text("")
    (answer,) = resolve_many([QUESTION], cache=Cache(tmp_path / "file" / "cache"))
    assert answer.sentence == "4"


def test_the_cache_stands_where_caches_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "spec-toolkit" / "resolve"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("~/.cache/spec-toolkit/resolve").expanduser()


def test_without_an_engine_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "engine_identity", lambda: None)
    with pytest.raises(FactsError, match=r"make setup.*\[resolve.no-engine\]"):
        resolve_many([QUESTION], cache=Cache(tmp_path))


@pytest.mark.parametrize(
    ("program", "says"),
    [
        pytest.param("raise SystemExit('no module named torch')", "no module named torch", id="ends"),
        pytest.param("print('{}')\nraise SystemExit(0)", "ended with 0", id="says-too-little"),
    ],
)
def test_a_child_that_cannot_ask_is_told_with_its_last_words(tmp_path: Path, child, program: str, says: str) -> None:
    child(program)
    with pytest.raises(EngineError, match=says):
        resolve_many([QUESTION, replace(QUESTION, argv=())], cache=Cache(tmp_path / "cache"))


@pytest.mark.slow
def test_a_child_that_does_not_answer_in_time_is_ended_with_its_children(
    tmp_path: Path, child, monkeypatch: pytest.MonkeyPatch
) -> None:
    child(STUCK)
    monkeypatch.setattr(resolve, "_QUESTION_SECONDS", 0.5)
    told: list[bool] = []
    with pytest.raises(EngineError, match="no answer within 3"):
        resolve_many([QUESTION], cache=Cache(tmp_path / "cache"), waiting=lambda: told.append(True), import_seconds=2.5)
    assert told == [True]
    assert not alive(tmp_path / "word")


@pytest.mark.slow
def test_an_interrupt_ends_the_child_and_its_children(tmp_path: Path, child) -> None:
    child(STUCK)
    script = (
        "from tests.launch.test_resolve import QUESTION\n"
        "from spec_toolkit.launch import resolve\n"
        f"resolve._CHILD = {str(tmp_path / 'child.py')!r}\n"
        f"resolve.resolve_many([QUESTION], cache=resolve.Cache(resolve.Path({str(tmp_path / 'cache')!r})))\n"
    )
    asking = subprocess.Popen(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True
    )
    until(lambda: (tmp_path / "word").exists() and len((tmp_path / "word").read_text().split()) == 2)
    asking.send_signal(signal.SIGINT)
    _, said = asking.communicate(timeout=20)
    assert "KeyboardInterrupt" in said
    assert not alive(tmp_path / "word")


@pytest.mark.slow
def test_a_command_that_is_terminated_leaves_no_child_that_computes_for_nobody(tmp_path: Path) -> None:
    script = (
        "from tests.launch.test_resolve import QUESTION\n"
        "from spec_toolkit.launch import resolve\n"
        f"resolve.resolve_many([QUESTION], cache=resolve.Cache(resolve.Path({str(tmp_path)!r})))\n"
    )
    asking = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def children() -> list[str]:
        path = Path(f"/proc/{asking.pid}/task/{asking.pid}/children")
        return path.read_text().split() if path.exists() else []

    until(lambda: bool(children()))
    [child] = children()
    until(lambda: b"__main__.py" in Path(f"/proc/{child}/cmdline").read_bytes())
    time.sleep(1.0)  # its first lines have run: it has asked to end with us
    asking.kill()
    asking.wait()
    until(lambda: not Path(f"/proc/{child}").exists(), seconds=5.0)


def test_what_is_set_for_our_process_does_not_reach_the_answer() -> None:
    ours = {"SGLANG_X": "1", "SGL_Y": "1", "PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0", "HF_HUB_OFFLINE": "0"}
    given = resolve._environment(ours, with_gpu=True)
    assert not [name for name in given if name.startswith(("SGLANG", "SGL_"))]
    assert (given["PATH"], given["CUDA_VISIBLE_DEVICES"], given["HF_HUB_OFFLINE"]) == ("/bin", "", "1")
    assert resolve._environment(ours, with_gpu=False)["SGLANG_USE_CPU_ENGINE"] == "1"


def until(holds, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(word: Path) -> list[int]:
    """Of the processes that left word, those that go on after a moment."""
    pids = [int(pid) for pid in word.read_text().split()]

    def runs(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    deadline = time.monotonic() + 5
    while any(map(runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return [pid for pid in pids if runs(pid)]
