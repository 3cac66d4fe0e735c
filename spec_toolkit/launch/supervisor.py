"""The one owner of a deployment's engine: starts it, checks it, watches it, ends it. Touches the world.

Run as `python -m spec_toolkit.launch.supervisor FOLDER LEASH_FD`; FOLDER holds `launch.json`. Everybody else asks it over its
socket; nobody else starts or stops an engine. What it does is written down as events and as one status file.

A start has attempts, in the order the launch gives them: with speculation, once more, then without. There is no other retry, and
so no crash loop. A patch that does not apply ends the deployment at once: the same engine would only be refused again.
"""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.log import Phase
from spec_toolkit.engine.patch_reports import alive, missing_reports, read_reports
from spec_toolkit.errors import EngineError, SpecError
from spec_toolkit.handover import Role, decode_list, list_sha256
from spec_toolkit.launch import control, smoke
from spec_toolkit.launch.deployment import Folder, identify
from spec_toolkit.launch.engine_process import EngineProcess, Watch
from spec_toolkit.launch.events import Kind
from spec_toolkit.launch.failure import EngineGone, Failure, failure, own_fault, refusal
from spec_toolkit.launch.record import Launch, Record
from spec_toolkit.launch.spec import LaunchSpec
from spec_toolkit.terms import Mode

_TELL_SECONDS = 5.0  # from a request that broke off to the engine's end
_END_SECONDS = 1.0  # from the launcher's end to its keeper's, which tells the exit code
_HEALTH_SECONDS = 60.0  # from the engine's own "ready" to its first health answer


class Stopped(Exception):  # noqa: N818 - a request, not an error
    """Somebody asked for the end; the text says who."""


class Supervisor:
    def __init__(self, folder: Folder, launch: Launch) -> None:
        self._folder = folder
        self._launch = launch
        self._record = Record(folder, launch.status)
        self._stop_asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._at_once = asyncio.Event()

    def ask_stop(self, who: str) -> None:
        """Asked once, running requests may finish; asked again, nothing is waited for."""
        if self._stop_asked.done():
            self._at_once.set()
        else:
            self._stop_asked.set_result(who)

    async def run(self) -> int:
        """Until the deployment has ended; 0 where somebody asked for that."""
        self._record.note(supervisor_pid=os.getpid())
        try:
            failed = await self._try_attempts()
        except Stopped as stopped:
            self._end(Kind.STOPPED, "stopped", str(stopped))
            return 0
        except Exception as error:  # noqa: BLE001 - whatever it is, the deployment's end is written down before this process goes
            failed = own_fault(error)
        self._end(Kind.FAILED, "failed", failed.text, exit_code=failed.exit_code, runbook=failed.runbook)
        return 3

    async def _try_attempts(self) -> Failure:
        last = len(self._launch.attempts) - 1
        for number, spec in enumerate(self._launch.attempts):
            failed = await self._attempt(number, spec)
            if failed.final or number == last:
                break
            self._announce_next(failed, spec, self._launch.attempts[number + 1])
        return failed

    def _announce_next(self, failed: Failure, this: LaunchSpec, following: LaunchSpec) -> None:
        if following.speculates == this.speculates:
            self._record.event(Kind.RETRY, f"{failed.text} Trying once more.", exit_code=failed.exit_code)
        else:
            reason = f"speculation could not start: {failed.text}"
            self._record.note(mode=Mode.AUTOREGRESSIVE.value, reason=reason)
            self._record.event(
                Kind.FALLBACK, f"{failed.text} Starting without speculation.", exit_code=failed.exit_code
            )

    async def _attempt(self, number: int, spec: LaunchSpec) -> Failure:
        """Start, check and serve; returns why it ended. Raises Stopped. Leaves no process."""
        self._record.note(attempts=number + 1, address="", phase=Phase.STARTING.value)
        with_or_without = "with" if spec.speculates else "without"
        self._record.event(Kind.ATTEMPT, f"starting the engine {with_or_without} speculation (attempt {number + 1})")
        self._folder.forget_reports()
        # The engine leaves sockets behind wherever it keeps its temporary files; not inside our folder, whose path may be too long.
        with tempfile.TemporaryDirectory(prefix="spec-toolkit-", ignore_cleanup_errors=True) as temporary:
            spec = msgspec.structs.replace(spec, set_environment=spec.set_environment | {"TMPDIR": temporary})
            return await self._run_engine(spec)

    async def _run_engine(self, spec: LaunchSpec) -> Failure:
        engine = await EngineProcess.start(
            spec,
            self._folder.engine_log,
            secret=self._folder.admin_key.read_text().strip(),
            grace_seconds=self._launch.drain_seconds,
        )
        self._record.note(keeper=identify(engine.keeper_pid))
        began, ready = time.monotonic(), False
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        watch = Watch(lost)
        try:
            await self._until(engine, lost, self._become_ready(engine, spec, watch), self._launch.ready_seconds)
            ready = True
            await self._until(engine, lost, _for_ever(), None)
            raise AssertionError("serving ends by an engine that ends or by a request")
        except SpecError as refused:
            return refusal(refused)
        except EngineGone as gone:
            code = await engine.kill()
            return failure(gone, code, time.monotonic() - began, list(engine.tail), ready=ready)
        except Stopped:
            if ready:
                self._record.note(phase="stopping")
                self._record.event(
                    Kind.STOPPING, f"giving the engine {self._launch.drain_seconds:g} s to finish what it runs"
                )
                await engine.stop(self._at_once)
            raise
        finally:
            watch.close()
            await engine.kill()

    async def _until(
        self,
        engine: EngineProcess,
        lost: "asyncio.Future[str]",
        work: Coroutine[Any, Any, None],
        seconds: float | None,
    ) -> None:
        """Do `work`; raises Stopped, or EngineGone where the engine ends, tells its key, or takes longer than `seconds`."""
        working: asyncio.Future[Any] = asyncio.create_task(work)
        ending: asyncio.Future[Any] = asyncio.create_task(engine.wait())
        leaking: asyncio.Future[Any] = asyncio.create_task(engine.key_was_logged.wait())
        try:
            done, _ = await asyncio.wait(
                {working, ending, leaking, lost, self._stop_asked},
                timeout=seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if working in done and _broke_off(working):
                # A request that breaks off is most likely how the engine's end shows; who ended is told in a moment.
                done |= (
                    await asyncio.wait({ending, lost}, timeout=_TELL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                )[0]
            if lost in done and _is_launcher(lost.result()):
                done |= (await asyncio.wait({ending}, timeout=_END_SECONDS))[0]  # its exit code says more
            if self._stop_asked in done:
                raise Stopped(self._stop_asked.result())
            if leaking in done:
                raise EngineGone(
                    "it wrote its admin key to its log; the key was struck there, and the engine stopped", final=True
                )
            if lost in done and not (ending in done and _is_launcher(lost.result())):
                raise EngineGone(lost.result())  # a part that ended first; the engine's own end only follows from it
            if ending in done:
                raise EngineGone("", by_itself=True)
            if working in done:
                working.result()
                return
            raise EngineGone(f"it was not ready after {seconds:g} s")
        finally:
            for task in (working, ending, leaking):
                task.cancel()
            await asyncio.gather(working, ending, leaking, return_exceptions=True)

    async def _become_ready(self, engine: EngineProcess, spec: LaunchSpec, watch: Watch) -> None:
        while True:
            station = await engine.stations.get()
            if station.phase is Phase.READY:
                break
            self._record.note(phase=station.phase.value)
            self._record.event(Kind.PHASE, station.detail, phase=station.phase.value)
        watch.over(self._check_patches(spec))
        async with EngineClient(spec.address) as client:
            await self._first_health(client)
            await smoke.find_key(client, self._folder.admin_key.read_text().strip())
            self._record.event(Kind.CHECKED, "the admin key is in nothing the engine says of itself")
            if self._launch.tokenizer:
                await smoke.check_tokenizer(client, self._launch.tokenizer)
                self._record.event(Kind.CHECKED, "the tokenizer is the one the recipe pins")
            seen = await smoke.answer_once(client, speculates=spec.speculates, seconds=self._launch.ready_seconds)
        self._record.event(Kind.CHECKED, self._seen(seen))
        self._record.note(phase=Phase.READY.value, address=spec.address, emitted_length=seen.emitted_length)
        self._record.event(Kind.READY, f"serving at {spec.address}", phase=Phase.READY.value)

    def _seen(self, seen: smoke.Smoke) -> str:
        labels = f" [{', '.join(self._launch.status.labels)}]" if self._launch.status.labels else ""
        if seen.emitted_length is None:
            return f"serving without speculation: {seen.emitted_tokens} tokens{labels}"
        rounds = f"{seen.emitted_tokens} tokens in {seen.rounds} rounds"
        return f"speculating: {rounds}, emitted length {seen.emitted_length:.2f}{labels}"

    def _check_patches(self, spec: LaunchSpec) -> dict[int, str]:
        """Lock two: every process of every role has said that it runs patched. Returns process names by id."""
        handed = self._folder.patch_list.read_bytes()
        hooks, sha256 = decode_list(handed), list_sha256(handed)
        reports = read_reports(self._folder.patch_list)
        live = alive(report.pid for report in reports)
        expected = frozenset(spec.processes)
        if findings := missing_reports(hooks, sha256, reports, expected=expected, live=live):
            raise EngineError(*findings)
        patches = ", ".join(sorted({hook.patch for hook in hooks}))
        self._record.event(Kind.CHECKED, f"{len(expected)} engine processes run patched: {patches}")
        return {report.pid: report.name() for report in reports if report.pid in live}

    async def _first_health(self, client: EngineClient) -> None:
        deadline = time.monotonic() + _HEALTH_SECONDS
        while not await client.is_healthy():
            if time.monotonic() > deadline:
                raise EngineGone(f"it called itself ready and gave no healthy answer in {_HEALTH_SECONDS:g} s")
            await asyncio.sleep(0.1)

    def _end(self, kind: Kind, phase: str, text: str, *, exit_code: int | None = None, runbook: str = "") -> None:
        reason = text if kind is Kind.FAILED else self._record.status.reason
        self._record.note(phase=phase, address="", keeper=None, reason=reason, exit_code=exit_code)
        self._record.event(kind, text, exit_code=exit_code, runbook=runbook)


def _broke_off(working: "asyncio.Future[Any]") -> bool:
    error = working.exception()
    return isinstance(error, EngineError) and any(finding.rule == "engine.lost" for finding in error.findings)


def _is_launcher(who: str) -> bool:
    return who.startswith(Role.LAUNCHER.value)


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def supervise(folder: Folder, launch: Launch, leash: int) -> int:
    supervisor = Supervisor(folder, launch)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.ask_stop, f"{number.name} to the supervisor")
    # The command that started us holds the other end; it closes when that process ends, however it ends.
    loop.add_reader(leash, _leash_moved, loop, leash, supervisor)

    def handle(verb: str) -> dict[str, object]:
        if verb != "stop":
            return {"ok": False, "why": f"no verb {verb!r}; known: stop"}
        supervisor.ask_stop("asked to stop")
        return {"ok": True}

    async with control.listening(folder, handle):
        return await supervisor.run()


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
