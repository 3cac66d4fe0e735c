"""The one owner of a deployment's engines, gateway and sidecar. Touches the world.

Run as `python -m spec_toolkit.launch.supervisor FOLDER LEASH_FD`; FOLDER holds `launch.json`. Everybody else asks it over its
socket; nobody else starts or stops an engine. What it does is written down as events and as one status file. Which engine follows
which is the succession's to say; here everything is wired together, and ended in order: the gateway finishes its streams, the
sidecar lets go of its engine, the engines end.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from spec_toolkit.errors import SpecError
from spec_toolkit.launch import control
from spec_toolkit.launch.back_off import BackOff
from spec_toolkit.launch.deployment import Folder
from spec_toolkit.launch.engines import Engine, RealEngine
from spec_toolkit.launch.events import Kind
from spec_toolkit.launch.failure import Failure, own_fault, refusal
from spec_toolkit.launch.fleet import Fleet
from spec_toolkit.launch.order import Order
from spec_toolkit.launch.record import GATEWAY, NOTHING_RUNS, SIDECAR, Launch, Record
from spec_toolkit.launch.rotating_log import RotatingLog
from spec_toolkit.launch.route import Routes
from spec_toolkit.launch.services import Services
from spec_toolkit.launch.spec import LaunchSpec
from spec_toolkit.launch.succession import Succession

MOST_LOST = 5  # engines without speculation that end within an hour and are started again
_LEAST_SECONDS = 1.0  # for an engine to end whose gateway took the whole drain time
_WHY_CHARACTERS = 500
_TAKES = {
    "stop": "takes no arguments",
    "restart": "takes speculate (true or false) and why (a text); without speculation also hung (true or false)",
}


class Stopped(Exception):  # noqa: N818 - a request, not an error
    """Somebody asked for the end; the text says who."""


class Supervisor:
    def __init__(self, folder: Folder, launch: Launch) -> None:
        self._folder = folder
        self._launch = launch
        self._record = Record(folder, launch.status)
        self._stop_asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._at_once = asyncio.Event()
        self._log = RotatingLog(folder.engine_log)
        self._services = Services(folder, launch, self._record, folder.admin_key.read_text().strip())
        self._fleet = Fleet(launch, self._record, self._start_engine, self._at_once)
        back_off = BackOff(most=MOST_LOST, first_seconds=0.5, longest_seconds=60.0)
        routes = Routes(self._services.tell)
        self._succession = Succession(launch, self._record, routes, self._fleet, self._open, back_off)

    def ask_stop(self, who: str) -> None:
        """Asked once, running requests may finish; asked again, nothing is waited for."""
        if self._stop_asked.done():
            self._at_once.set()
        else:
            self._stop_asked.set_result(who)

    def handle(self, verb: str, arguments: Mapping[str, object]) -> dict[str, object]:
        """What to answer somebody on the socket."""
        match verb:
            case "stop" if not arguments:
                self.ask_stop("asked to stop")
                return {"ok": True}
            case "restart" if (order := _read_order(arguments)) is not None:
                refused = self._refuse(order)
                return {"ok": False, "why": refused} if refused else {"ok": True}
            case "stop" | "restart":
                return {"ok": False, "why": f"{verb!r} {_TAKES[verb]}"}
        return {"ok": False, "why": f"no verb {verb!r}; known: restart, stop"}

    def _refuse(self, order: Order) -> str:
        return "the deployment is being stopped" if self._stop_asked.done() else self._succession.ask(order)

    async def run(self) -> int:
        """Until the deployment has ended; 0 where somebody asked for that."""
        self._record.note(supervisor_pid=os.getpid())
        try:
            try:
                failed = await self._until_over()
            finally:
                await self._leave_nothing()
        except Stopped as stopped:
            self._end(Kind.STOPPED, "stopped", str(stopped))
            return 0
        except SpecError as refused:
            failed = refusal(refused)
        except Exception as error:  # noqa: BLE001 - whatever it is, the deployment's end is written down before this process goes
            failed = own_fault(error)
        self._end(Kind.FAILED, "failed", failed.text, exit_code=failed.exit_code, runbook=failed.runbook)
        return 3

    async def _until_over(self) -> Failure:
        """Returns why it failed; raises Stopped. What is left then is `_leave_nothing`'s."""
        self._services.start(GATEWAY)
        serving = asyncio.create_task(self._succession.run())
        ends: set[asyncio.Future[Any]] = {serving, self._stop_asked, self._services.given_up}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        if self._stop_asked.done():
            await self._finish()
            raise Stopped(self._stop_asked.result())
        return self._services.given_up.result() if self._services.given_up.done() else serving.result()

    async def _finish(self) -> None:
        """What runs may finish: first what the gateway streams, then what others left in the engines."""
        self._record.note(phase="stopping")
        if not self._fleet.took_requests:
            return  # who waits is told by the gateway as soon as that is asked to end
        drain_seconds = self._launch.drain_seconds
        self._record.event(Kind.STOPPING, f"giving the engine {drain_seconds:g} s to finish what it runs")
        deadline = time.monotonic() + drain_seconds
        await self._services.drain(drain_seconds, self._at_once)
        await self._services.let_go(self._at_once)
        await self._fleet.end_all(max(_LEAST_SECONDS, deadline - time.monotonic()))

    async def _leave_nothing(self) -> None:
        self._succession.close()
        try:
            await self._fleet.close()
        finally:
            await self._services.close()
            self._log.close()

    async def _start_engine(self, number: int, spec: LaunchSpec) -> Engine:
        return await RealEngine.start(number, spec, self._folder, self._launch, self._record, self._log)

    async def _open(self) -> None:
        """The first engine takes requests: now the sidecar has something to look at, and clients may come in."""
        self._services.start(SIDECAR)
        await self._services.answering()

    def _end(self, kind: Kind, phase: str, text: str, *, exit_code: int | None = None, runbook: str = "") -> None:
        reason = text if kind is Kind.FAILED else self._record.status.reason
        self._record.note(phase=phase, reason=reason, exit_code=exit_code, **NOTHING_RUNS)
        self._record.event(kind, text, exit_code=exit_code, runbook=runbook)


async def supervise(folder: Folder, launch: Launch, leash: int) -> int:
    supervisor = Supervisor(folder, launch)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.ask_stop, f"{number.name} to the supervisor")
    # The command that started us holds the other end; it closes when that process ends, however it ends.
    loop.add_reader(leash, _leash_moved, loop, leash, supervisor)
    async with control.listening(folder, supervisor.handle):
        return await supervisor.run()


def _read_order(arguments: Mapping[str, object]) -> Order | None:
    """None where nothing is ordered so."""
    match {"hung": False, **arguments}:
        case {"speculate": bool(speculate), "why": str(why), "hung": bool(hung), **more} if not more:
            return None if speculate and hung else Order(speculate, why[:_WHY_CHARACTERS], hung)
    return None


def _leash_moved(loop: asyncio.AbstractEventLoop, leash: int, supervisor: Supervisor) -> None:
    loop.remove_reader(leash)
    if os.read(leash, 1) == b"":  # closed; one byte means that it let go on purpose (--detach)
        supervisor.ask_stop("the command that started it ended")


def main(arguments: list[str]) -> int:
    folder = Folder(Path(arguments[0]))
    owned = folder.own()
    try:
        launch = msgspec.json.decode(folder.launch.read_bytes(), type=Launch)
        return asyncio.run(supervise(folder, launch, int(arguments[1])))
    finally:
        os.close(owned)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
