"""The one owner of a deployment's engine: starts it, checks it, watches it, ends it. Touches the world.

Run as `python -m spec_toolkit.launch.supervisor FOLDER LEASH_FD`; FOLDER holds `launch.json`. Everybody else asks it over its
socket; nobody else starts or stops an engine. What it does is written down as events and as one status file.

A start has attempts, in the order the launch gives them: with speculation, once more, then without. There is no other retry, and
so no crash loop. A patch that does not apply ends the deployment at once: the same engine would only be refused again.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.log import Phase, last_words
from spec_toolkit.engine.patch_reports import alive, missing_reports, read_reports
from spec_toolkit.errors import EngineError, SpecError
from spec_toolkit.handover import ENDED_BY_PATCHES, decode_list, list_sha256
from spec_toolkit.launch import control, smoke
from spec_toolkit.launch.deployment import Folder
from spec_toolkit.launch.engine_process import EngineProcess, Watch
from spec_toolkit.launch.events import Kind
from spec_toolkit.launch.record import Launch, Record
from spec_toolkit.launch.spec import LaunchSpec
from spec_toolkit.terms import Mode

_HEALTH_SECONDS = 60.0  # from the engine's own "ready" to its first health answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt ended."""

    text: str
    runbook: str
    exit_code: int | None = None
    final: bool = False  # another attempt could only end the same way


class Stopped(Exception):  # noqa: N818 - a request, not an error
    """Somebody asked for the end; the text says who."""


class Supervisor:
    def __init__(self, folder: Folder, launch: Launch) -> None:
        self._folder = folder
        self._launch = launch
        self._record = Record(folder, launch.status)
        self._stop_asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def ask_stop(self, who: str) -> None:
        if not self._stop_asked.done():
            self._stop_asked.set_result(who)

    async def run(self) -> int:
        """Until the deployment has ended; 0 where somebody asked for that."""
        self._record.note(supervisor_pid=os.getpid())
        try:
            failure = await self._try_attempts()
        except Stopped as stopped:
            self._end(Kind.STOPPED, "stopped", str(stopped))
            return 0
        self._end(Kind.FAILED, "failed", failure.text, exit_code=failure.exit_code, runbook=failure.runbook)
        return 3

    async def _try_attempts(self) -> Failure:
        last = len(self._launch.attempts) - 1
        for number, spec in enumerate(self._launch.attempts):
            failure = await self._attempt(number, spec)
            if failure.final or number == last:
                break
            self._announce_next(failure, spec, self._launch.attempts[number + 1])
        return failure

    def _announce_next(self, failure: Failure, this: LaunchSpec, following: LaunchSpec) -> None:
        if following.speculates == this.speculates:
            self._record.event(Kind.RETRY, f"{failure.text} Trying once more.", exit_code=failure.exit_code)
        else:
            reason = f"speculation could not start: {failure.text}"
            self._record.note(mode=Mode.AUTOREGRESSIVE.value, reason=reason)
            self._record.event(
                Kind.FALLBACK, f"{failure.text} Starting without speculation.", exit_code=failure.exit_code
            )

    async def _attempt(self, number: int, spec: LaunchSpec) -> Failure:
        """Start, check and serve; returns why it ended. Raises Stopped. Leaves no process."""
        self._record.note(attempts=number + 1, address="", phase=Phase.STARTING.value)
        with_or_without = "with" if spec.speculates else "without"
        self._record.event(Kind.ATTEMPT, f"starting the engine {with_or_without} speculation (attempt {number + 1})")
        engine = await EngineProcess.start(
            spec,
            self._folder.engine_log,
            secret=self._folder.admin_key.read_text().strip(),
            grace_seconds=self._launch.drain_seconds,
        )
        self._record.note(keeper_pid=engine.keeper_pid)
        began, ready = time.monotonic(), False
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        watch = Watch(lost)
        try:
            await self._until(engine, lost, self._become_ready(engine, spec, watch), self._launch.ready_seconds)
            ready = True
            await self._until(engine, lost, asyncio.Event().wait(), None)
            raise AssertionError("serving ends by an engine that ends or by a request")
        except SpecError as refused:
            return Failure(text=str(refused), runbook="runbooks/engine-does-not-start.md", final=_is_final(refused))
        except EngineGone as gone:
            code = await engine.kill()
            return self._failure(engine, gone, code, time.monotonic() - began, ready=ready)
        except Stopped:
            if ready:
                self._record.note(phase="stopping")
                self._record.event(
                    Kind.STOPPING, f"giving the engine {self._launch.drain_seconds:g} s to finish what it runs"
                )
                await engine.stop()
            raise
        finally:
            watch.close()
            await engine.kill()

    async def _until(
        self, engine: EngineProcess, lost: "asyncio.Future[str]", work: object, seconds: float | None
    ) -> None:
        """Do `work`; raises Stopped, or EngineGone where the engine ends, tells its key, or takes longer than `seconds`."""
        working = asyncio.ensure_future(work)  # type: ignore[call-overload]
        ending = asyncio.create_task(engine.wait())
        leaking = asyncio.create_task(engine.key_was_logged.wait())
        try:
            done, _ = await asyncio.wait(
                {working, ending, leaking, lost, self._stop_asked}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if self._stop_asked in done:
                raise Stopped(self._stop_asked.result())
            if leaking in done:
                raise EngineGone(
                    "the engine wrote its admin key to its log; it was struck there, and the engine stopped"
                )
            if working in done:
                working.result()
                return
            if ending in done:
                raise EngineGone("")
            if lost in done:
                raise EngineGone(lost.result())
            raise EngineGone(f"it was not ready after {seconds:g} s")
        finally:
            for task in (working, ending, leaking):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, SpecError):
                    await task

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
        if spec.speculates:
            text = f"speculating: {seen.emitted_tokens} tokens in {seen.rounds} rounds, emitted length {seen.emitted_length:.2f}"
        else:
            text = f"serving without speculation: {seen.emitted_tokens} tokens"
        self._record.event(Kind.CHECKED, text)
        self._record.note(phase=Phase.READY.value, address=spec.address, emitted_length=seen.emitted_length)
        self._record.event(Kind.READY, f"serving at {spec.address}", phase=Phase.READY.value)

    def _check_patches(self, spec: LaunchSpec) -> dict[int, str]:
        """Lock two: every process of every role has said that it runs patched. Returns process ids by name."""
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

    def _failure(self, engine: EngineProcess, gone: "EngineGone", code: int, seconds: float, *, ready: bool) -> Failure:
        words = last_words(list(engine.tail))
        when = f"after {seconds:.0f} s" + ("" if ready else ", before it was ready")
        why = f"{gone}; " if str(gone) else ""
        page = "runbooks/engine-lost.md" if ready else "runbooks/engine-does-not-start.md"
        if code == ENDED_BY_PATCHES:
            page = "runbooks/patch-does-not-apply.md"
        text = f'engine: {why}exit code {code}{_signal_name(code)} {when}. Last words: "{words}". See {page}.'
        return Failure(text=text, runbook=page, exit_code=code, final=ready or code == ENDED_BY_PATCHES)

    def _end(self, kind: Kind, phase: str, text: str, *, exit_code: int | None = None, runbook: str = "") -> None:
        reason = text if kind is Kind.FAILED else self._record.status.reason
        self._record.note(phase=phase, address="", keeper_pid=0, reason=reason, exit_code=exit_code)
        self._record.event(kind, text, exit_code=exit_code, runbook=runbook)


class EngineGone(Exception):  # noqa: N818 - what happened, turned into a Failure by the attempt
    """The engine ended or cannot be used; the text says what beyond its exit code."""


def _is_final(refused: SpecError) -> bool:
    return any(
        finding.rule.startswith(("plugin.", "patches.", "smoke.key", "smoke.tokenizer")) for finding in refused.findings
    )


def _signal_name(code: int) -> str:
    try:
        return f" ({signal.Signals(code - 128).name})" if code > 128 else ""
    except ValueError:
        return ""


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

    server = await control.serve(folder, handle)
    try:
        return await supervisor.run()
    finally:
        server.close()
        folder.socket_note.unlink(missing_ok=True)


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
