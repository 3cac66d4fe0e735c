"""The sidecar's process where no engine answers: what it is told, what it says, and how it ends."""

import asyncio
import signal
import socket
import time

import msgspec
import pytest

from spec_toolkit.launch.deployment import write_json
from spec_toolkit.launch.record import Launch
from spec_toolkit.launch.route import Route, encode_route
from spec_toolkit.policy.state import first_state
from spec_toolkit.sidecar import files
from spec_toolkit.sidecar.records import Carried, Hold
from spec_toolkit.sidecar.service import Service
from spec_toolkit.terms import Mode
from tests.sidecar.deployed import Deployed, quick_limits

pytestmark = pytest.mark.slow  # real processes, each with its own imports

NO_DRAFT = Route(generation=1, address="http://127.0.0.1:9", engine=1, speculates=False, steps=0)  # decided on unseen


@pytest.fixture
def deployed(tmp_path):
    """An engine's address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        made = Deployed(tmp_path, f"http://127.0.0.1:{taken.getsockname()[1]}")
        made.write()
        yield made


def tell(sidecar, line: bytes) -> None:
    sidecar.stdin.write(line)
    sidecar.stdin.flush()


def test_an_engine_that_is_not_there_is_unknown_and_said_so(deployed):
    with deployed.sidecar():
        seen = deployed.wait("it is told", lambda seen: "has not said yet how it drafts" in seen.why)
    assert "Cannot connect" in seen.finding
    assert (seen.mode, seen.steps) == ("", None)
    assert 0 <= time.time() - seen.wall_s < 60  # noqa: TID251 - by the same clock
    assert (seen.scrape_age_seconds, seen.queue_depth, seen.emitted_length, seen.epochs) == (None, None, None, ())
    assert deployed.folder.sidecar_snapshot.stat().st_mode & 0o777 == 0o600


def test_without_an_engine_it_waits_for_the_next_route(deployed):
    with deployed.sidecar() as sidecar:
        deployed.wait("the address is known", lambda seen: seen.address == deployed.address)
        tell(
            sidecar,
            encode_route(Route(generation=2, address="", engine=0, speculates=False, steps=0, why="engine 1 ended")),
        )
        seen = deployed.wait("none takes requests", lambda seen: seen.address == "")
    assert seen.why == "no engine takes requests now (engine 1 ended)"


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b"{}\n", b"x" * 200_000 + b"\n", b"\xff\xfe\n", b"\n"], ids=lambda line: line[:3]
)
def test_a_line_that_is_no_route_is_no_reason_to_end(deployed, line):
    with deployed.sidecar() as sidecar:
        deployed.wait("the address is known", lambda seen: seen.address == deployed.address)
        tell(sidecar, line)
        tell(sidecar, encode_route(Route(generation=2, address="", engine=0, speculates=False, steps=0)))
        deployed.wait("the next route is heard", lambda seen: seen.address == "")
        assert sidecar.poll() is None
    assert "is no route" in deployed.log()


@pytest.mark.parametrize("how", ["its standard input closes", "SIGTERM", "SIGINT"])
def test_it_ends_in_the_middle_of_a_look(deployed, how):
    """Somebody accepts its connection, and never answers."""
    port = int(deployed.address.rpartition(":")[2])
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        deployed.address = deployed.address.replace(str(port), str(silent.getsockname()[1]))
        with deployed.sidecar() as sidecar:
            silent.settimeout(30)
            connection, _ = silent.accept()
            began = time.monotonic()
            if how == "its standard input closes":
                sidecar.stdin.close()
            else:
                sidecar.send_signal(getattr(signal, how))
            assert sidecar.wait(10) == 0
            assert time.monotonic() - began < 2, "twice the promise, on a busy machine"
            connection.close()


@pytest.mark.parametrize("content", ["{", '{"state": {}}'])
def test_a_state_that_cannot_be_read_is_told_and_left_behind(deployed, content):
    deployed.folder.policy_state.write_text(content)
    with deployed.sidecar():
        deployed.wait("it runs", lambda seen: seen.address == deployed.address)
    assert "starting from what the engine says" in deployed.log()


def test_without_limits_nothing_is_decided_until_there_are_some(deployed):
    good = deployed.folder.limits.read_bytes()
    deployed.folder.limits.unlink()
    with deployed.sidecar():
        deployed.wait("it says so", lambda seen: seen.why == "there are no limits to decide by")
        deployed.folder.limits.write_text("{}")
        bad = deployed.wait("the bad file is told", lambda seen: bool(seen.limits_problem))
        assert "nothing is in force" in bad.limits_problem
        deployed.folder.limits.write_bytes(good)
        deployed.wait("they are in force", lambda seen: "has not said yet" in seen.why)


def test_limits_that_became_unreadable_stay_in_force_for_the_next_sidecar(deployed, monkeypatch):
    monkeypatch.setattr(deployed, "route", lambda: NO_DRAFT)
    write_json(deployed.folder.limits, quick_limits(queue_high=7))
    with deployed.sidecar():
        deployed.wait("they are in force", lambda seen: seen.mode == "autoregressive")
        deployed.folder.limits.write_text("{")
        deployed.wait("the bad file is told", lambda seen: bool(seen.limits_problem))
    deployed.folder.sidecar_snapshot.unlink()
    with deployed.sidecar():
        seen = deployed.wait("it is told again", lambda seen: bool(seen.limits_problem))
        assert "what was in force stays" in seen.limits_problem
        assert seen.why.startswith("autoregressive stays")
    assert deployed.carried().limits == quick_limits(queue_high=7)


def test_a_hold_that_cannot_be_read_at_a_sidecars_start_is_kept(deployed, monkeypatch):
    monkeypatch.setattr(deployed, "route", lambda: NO_DRAFT)
    held = Hold(mode=Mode.AUTOREGRESSIVE, steps=0, at="then")
    state = msgspec.structs.replace(first_state(quick_limits(), 5.0, Mode.AUTOREGRESSIVE), held=True)
    write_json(deployed.folder.policy_state, Carried(state=state, run="run-a", engine=1, hold=held, written_s=6.0))
    deployed.folder.hold.write_text("{")
    with deployed.sidecar():
        seen = deployed.wait("it decides", lambda seen: seen.why.startswith("autoregressive stays"))
        assert seen.held
        assert "hold.json" in seen.hold_problem
        deployed.folder.hold.unlink()
        deployed.wait("it is released", lambda seen: not seen.held)


def test_a_state_that_a_full_disk_lost_is_written_at_the_next_turn(deployed, monkeypatch):
    tries = []

    def full_once(path, content):
        tries.append(path)
        if len(tries) == 1:
            raise OSError(28, "No space left on device", path.name)
        files.replace_file(path, content)

    monkeypatch.setattr(files, "write_private", full_once)
    launch = msgspec.json.decode(deployed.folder.launch.read_bytes(), type=Launch)

    async def live() -> None:
        service = Service(deployed.folder, launch, "key")
        lines = asyncio.StreamReader()
        lines.feed_data(encode_route(NO_DRAFT))
        tasks = [asyncio.create_task(work) for work in (service.follow(lines), service.run())]
        try:
            async with asyncio.timeout(20):
                while not deployed.folder.policy_state.exists():
                    assert not any(task.done() for task in tasks)
                    await asyncio.sleep(0.05)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(live())
    assert deployed.carried().state.mode is Mode.AUTOREGRESSIVE
    assert len(tries) == 2


def test_the_admin_key_is_in_nothing_it_writes(deployed):
    with deployed.sidecar():
        deployed.wait("it runs", lambda seen: "has not said yet" in seen.why)
    key = deployed.folder.admin_key.read_text().strip()
    for file in deployed.folder.path.iterdir():
        if file != deployed.folder.admin_key:
            assert key not in file.read_text(), file.name
