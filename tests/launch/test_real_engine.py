"""`deploy` on the real engine, as a person runs it: served, found, killed, and nothing left."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from spec_toolkit.engine.names import SELF_DESCRIPTIONS
from spec_toolkit.handover import LIST_VARIABLE
from spec_toolkit.shipped import rehearsal, shipped

pytestmark = pytest.mark.engine

NAME = "deepseek_v3_cpu"
READY_SECONDS = 240.0
GONE_SECONDS = 30.0
MODULE = (sys.executable, "-m", "spec_toolkit.cli.main")


class Foreground:
    """A `deploy` in a terminal that is not one: JSON lines on its standard output."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        self.environment = os.environ | {"XDG_STATE_HOME": str(home), "CUDA_VISIBLE_DEVICES": ""}
        self.process = subprocess.Popen(
            [*MODULE, "deploy", *arguments, "--json"],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A runner in the background may have inherited "ignore SIGINT", and children would too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no thread runs yet
        )
        self.records: list[dict[str, object]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.records.extend(json.loads(line) for line in self.process.stdout)

    def until_serving(self) -> dict[str, object]:
        """The status record that follows the event `ready`."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            found = [record for record in self.records if record.get("address")]
            if found:
                return found[-1]
            assert self.process.poll() is None, (self.records, self.process.stderr and self.process.stderr.read())
            time.sleep(0.05)
        raise AssertionError(f"not serving: {self.records}")

    def until_event(self, kind: str, *, times: int = 1) -> dict[str, object]:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            found = self.events(kind)
            if len(found) >= times:
                return found[times - 1]
            assert self.process.poll() is None, self.records
            time.sleep(0.05)
        raise AssertionError(f"no {kind}: {self.records}")

    def events(self, kind: str) -> list[dict[str, object]]:
        return [record for record in list(self.records) if record.get("kind") == kind]

    def status(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.folder / "status.json").read_bytes())
        return found

    def until_ended(self) -> int:
        code = self.process.wait(60)
        self._reader.join(10)
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(10)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*MODULE, *arguments], env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )

    @property
    def folder(self) -> Path:
        return self.home / "spec-toolkit" / "deployments" / NAME

    def engine_pids(self) -> dict[str, int]:
        """By process name, from the reports the engine's processes left."""
        newest = max((self.folder / "engines").iterdir(), key=lambda folder: int(folder.name))
        reports = newest.glob("patches.json.d/*.json")
        return {path.stem.rpartition("-")[0]: int(path.stem.rpartition("-")[2]) for path in reports}

    def left(self) -> list[int]:
        """Processes of this deployment, by what they were started with or by their session."""
        marks = (f"{LIST_VARIABLE}={self.folder}/".encode(), str(self.folder).encode())
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "environ").read_bytes().split(b"\0") + (entry / "cmdline").read_bytes().split(
                        b"\0"
                    )
                except OSError:
                    continue
                if any(word.startswith(marks) for word in words):
                    found.add(int(entry.name))
        return sorted(pid for pid in found if _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def deployed(home: Path, *arguments: str) -> Iterator[Foreground]:
    running = Foreground(home, *arguments)
    try:
        yield running
        deadline = time.monotonic() + GONE_SECONDS
        while running.left():
            assert time.monotonic() < deadline, f"left: {running.left()}"
            time.sleep(0.05)
    finally:
        running.close()
        for pid in running.left():
            os.kill(pid, signal.SIGKILL)


class Load:
    """Streams that run while something is killed; each ends in an answer or in an error, never in silence."""

    def __init__(self, address: str, streams: int = 6, tokens: int = 1500) -> None:
        self._tokens = tokens
        self.began = threading.Semaphore(0)
        self.ends: list[str] = []
        self._threads = [threading.Thread(target=self._one, args=(address,)) for _ in range(streams)]
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            assert self.began.acquire(timeout=60)

    def _one(self, address: str) -> None:
        sampling = {"max_new_tokens": self._tokens, "temperature": 0, "ignore_eos": True}
        body = {"text": "Tell me about the river.", "stream": True, "sampling_params": sampling}
        try:
            with requests.post(f"{address}/generate", json=body, stream=True, timeout=READY_SECONDS) as answer:
                lines = answer.iter_lines()
                next(lines)
                self.began.release()
                self.ends.append("whole" if b"data: [DONE]" in list(lines) else "cut")
        except requests.RequestException as error:
            self.ends.append(type(error).__name__)

    def join(self) -> list[str]:
        for thread in self._threads:
            thread.join(READY_SECONDS)
            assert not thread.is_alive(), "a client was left waiting"
        return self.ends


def _answer(address: str) -> dict:
    body = {"text": "The lamp", "sampling_params": {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True}}
    answer = requests.post(f"{address}/generate", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_deployment_serves_hides_its_key_and_ends_cleanly(tmp_path: Path) -> None:
    with deployed(tmp_path, f"rehearsal/{NAME}") as running:
        status = running.until_serving()
        address, engine = str(status["address"]), str(status["engine_address"])
        assert engine not in ("", address), "clients come in through the gateway"
        assert status["mode"] == "full"
        assert float(str(status["emitted_length"])) > 1.0

        key = (running.folder / "admin.key").read_text().strip()
        for pid in Path("/proc").iterdir():
            if pid.name.isdigit() and int(pid.name) != os.getpid():
                for file in ("cmdline", "environ"):
                    try:
                        assert key.encode() not in (pid / file).read_bytes(), f"{pid}/{file}"
                    except OSError:
                        continue
        for path in (*SELF_DESCRIPTIONS, "/openapi.json", "/health", "/v1/loads", "/set_internal_state"):
            for place in (address, engine):
                assert key not in requests.get(place + path, timeout=30).text, f"{place}{path}"
        assert key not in (running.folder / "engine.log").read_text()
        refused = requests.post(f"{engine}/set_internal_state", json={"server_args": {}}, timeout=30)
        assert refused.status_code == 401
        passed_on = requests.post(f"{address}/set_internal_state", json={"server_args": {}}, timeout=30)
        assert passed_on.status_code in (401, 403, 404, 405), "the gateway is no way to the knob"

        again = running.call("deploy", f"rehearsal/{NAME}")
        assert again.returncode == 0
        assert f"is already running and serves at {address}" in again.stdout
        assert running.call("status", NAME).returncode == 0
        assert (
            "Decode batch" in running.call("logs", NAME, "-n", "500").stdout
            or "Prefill batch" in running.call("logs", NAME).stdout
        )

        bundle = tmp_path / "b.tar.gz"
        assert running.call("bundle", NAME, "--out", str(bundle)).returncode == 0
        with tarfile.open(bundle) as archive:
            for member in archive.getmembers():
                content = archive.extractfile(member)
                assert content is not None
                assert key.encode() not in content.read(), member.name

        stopped = running.call("stop", NAME)
        assert stopped.returncode == 0, stopped.stderr
        assert running.until_ended() == 0


def test_the_curl_line_that_is_printed_works(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    command = [*MODULE, "deploy", f"rehearsal/{NAME}", "--detach"]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=READY_SECONDS, check=False)
    try:
        assert made.returncode == 0, made.stderr
        [line] = re.findall(r"^  (curl .*)$", made.stdout, re.MULTILINE)
        answer = subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=60, check=True)
        assert json.loads(answer.stdout)["choices"][0]["message"]["content"]
    finally:
        stopped = subprocess.run(
            [*MODULE, "stop", NAME], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    assert stopped.returncode == 0, stopped.stderr


def test_a_killed_scheduler_costs_no_stream_and_speculation_returns_beside_the_engine_that_stands_in(
    tmp_path: Path,
) -> None:
    with deployed(tmp_path, f"rehearsal/{NAME}") as running:
        address = str(running.until_serving()["address"])
        load = Load(address, streams=4, tokens=300)
        os.kill(running.engine_pids()["scheduler-pp0-tp0"], signal.SIGKILL)
        moved = running.until_event("moved")
        assert str(moved["text"]).endswith(": autoregressive")
        [lost] = running.events("lost")
        assert "engine: scheduler-pp0-tp0 (pid " in str(lost["text"])
        assert load.join() == ["whole"] * 4
        assert running.status()["reason"] == lost["text"]

        running.until_event("comeback")  # the sidecar asks once the cool-down is over
        load = Load(address, streams=2, tokens=300)
        asked = 0
        while not running.events("moved")[1:]:
            assert _answer(address)["meta_info"]["completion_tokens"] == 8
            asked += 1
        assert asked, "nothing was asked while it returned"
        assert str(running.events("moved")[1]["text"]).endswith(": zero_draft")
        assert "engine 3 is at 0 of 3 draft steps" in [event["text"] for event in running.events("checked")]
        assert _answer(address)["meta_info"]["completion_tokens"] == 8
        assert load.join() == ["whole"] * 2
        assert running.status()["address"] == address
        assert running.call("stop", NAME).returncode == 0
        assert running.until_ended() == 0


def test_a_killed_supervisor_takes_everything_with_it(tmp_path: Path) -> None:
    with deployed(tmp_path, f"rehearsal/{NAME}") as running:
        status = running.until_serving()
        load = Load(str(status["address"]))
        os.kill(int(str(status["supervisor_pid"])), signal.SIGKILL)
        assert running.until_ended() == 3
        load.join()
        assert "supervisor: ended without a word" in str(running.records[-2]["text"])


def test_a_killed_command_takes_everything_with_it(tmp_path: Path) -> None:
    with deployed(tmp_path, f"rehearsal/{NAME}") as running:
        load = Load(str(running.until_serving()["address"]))
        running.process.kill()
        running.process.wait()
        load.join()


def test_ctrl_c_lets_running_requests_finish(tmp_path: Path) -> None:
    with deployed(tmp_path, f"rehearsal/{NAME}") as running:
        load = Load(str(running.until_serving()["address"]), streams=2, tokens=60)
        running.process.send_signal(signal.SIGINT)
        assert running.until_ended() == 0
        assert load.join() == ["whole", "whole"]
        assert running.records[-1]["phase"] == "stopped"


def test_speculation_that_cannot_start_is_given_up_and_the_service_comes_up(tmp_path: Path) -> None:
    draft = tmp_path / "broken-draft"
    draft.mkdir()
    for file in (rehearsal() / "models" / "deepseek_v3_tiny").iterdir():
        content = file.read_bytes()
        (draft / file.name).write_bytes(content[:4000] if file.suffix == ".safetensors" else content)
    text = (shipped("recipes") / "rehearsal" / f"{NAME}.yaml").read_text()
    changed = text.replace("method: mtp", f"method: standalone\n  model: {draft}")
    assert changed != text
    recipe = tmp_path / f"{NAME}.yaml"
    recipe.write_text(changed)
    with deployed(tmp_path, str(recipe)) as running:
        status = running.until_serving()
        assert (status["mode"], status["attempts"], status["emitted_length"]) == ("autoregressive", 3, None)
        assert "speculation could not start" in str(status["reason"])
        kinds = [record["kind"] for record in running.records if record.get("kind") in ("attempt", "retry", "fallback")]
        assert kinds == ["attempt", "retry", "attempt", "fallback", "attempt"]
        assert running.call("stop", NAME).returncode == 0
        assert running.until_ended() == 0
