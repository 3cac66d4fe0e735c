"""One engine's life: started under its keeper, checked before it is called ready, watched, ended. Touches the world.

Every engine of a deployment has a number, and files, temporary files and a port of its own, so that two that run side by side mix
neither their reports nor their lines.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.log import Phase, Station, read_station
from spec_toolkit.engine.patch_reports import patched
from spec_toolkit.errors import ActError, EngineError
from spec_toolkit.launch import smoke
from spec_toolkit.launch.deployment import Folder
from spec_toolkit.launch.events import Kind
from spec_toolkit.launch.failure import EngineGone
from spec_toolkit.launch.kept_process import KeptProcess
from spec_toolkit.launch.ports import free_engine_port
from spec_toolkit.launch.record import Launch, Record
from spec_toolkit.launch.rotating_log import RotatingLog
from spec_toolkit.launch.spec import LaunchSpec, settled
from spec_toolkit.launch.watch import Watch, is_launcher
from spec_toolkit.terms import KnobMode, mode_at

_TELL_SECONDS = 5.0  # from a request that broke off to the engine's end
_END_SECONDS = 1.0  # from the launcher's end to its keeper's, which tells the exit code
_HEALTH_SECONDS = 60.0  # from the engine's own "ready" to its first health answer
_FIRST_EPOCH = 1  # of the command an engine is handed over with; 0 is as it started
_STATIONS = 1024

OnPhase = Callable[[Phase], None]


class Engine(Protocol):
    """What the succession needs of an engine."""

    number: int  # of the deployment's engines, from 1
    spec: LaunchSpec

    async def become_ready(self, seconds: float, on_phase: OnPhase) -> smoke.Smoke:
        """Raises EngineGone, or the SpecError of a check that said no."""

    async def lower(self, steps: int, most: int) -> None:
        """Set the draft passes of each round, `most` being all; raises ActError where it does not take."""

    async def gone(self) -> EngineGone:
        """When it has ended, or must not be used any more."""

    async def end(self, seconds: float, at_once: asyncio.Event) -> None:
        """It may finish what it runs for `seconds`, or until `at_once`."""

    async def kill(self) -> int:
        """Its exit code; nothing of it is left. Raises EngineError where something does not die."""

    @property
    def tail(self) -> list[str]: ...

    @property
    def age_seconds(self) -> float: ...


class RealEngine:
    """Use `start`."""

    def __init__(self, number: int, spec: LaunchSpec, launch: Launch, record: Record, key: str) -> None:
        self.number, self.spec = number, spec
        self._launch, self._record, self._key = launch, record, key
        self._began = time.monotonic()
        self._stations: asyncio.Queue[Station] = asyncio.Queue(maxsize=_STATIONS)
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._watch = Watch(self._lost)
        self._patch_list: Path
        self._kept: KeptProcess
        self._gone: asyncio.Task[EngineGone]
        self._temporary: tempfile.TemporaryDirectory[str]

    @classmethod
    async def start(  # noqa: PLR0913, PLR0917 - what an engine is made of
        cls, number: int, spec: LaunchSpec, folder: Folder, launch: Launch, record: Record, log: RotatingLog
    ) -> Self:
        patch_list = folder.copy_patch_list(number)
        port = free_engine_port()
        # The engine leaves sockets behind wherever it keeps its temporary files; not inside our folder, whose path may be too long.
        temporary = tempfile.TemporaryDirectory(prefix="spec-toolkit-", ignore_cleanup_errors=True)
        spec = settled(spec, port=port, patch_list=str(patch_list), temporary=temporary.name)
        engine = cls(number, spec, launch, record, folder.admin_key.read_text().strip())
        engine._patch_list = patch_list
        engine._temporary = temporary
        beginning = b"%d| " % number  # two engines may write at a time
        environment = {k: v for k, v in os.environ.items() if k not in spec.unset_environment} | spec.set_environment

        def take(line: bytes) -> None:
            engine._note_station(line)
            log.write(beginning + line + b"\n")

        try:
            engine._kept = await KeptProcess.start(
                spec.command,
                environment=environment,
                take=take,
                secret=engine._key,
                grace_seconds=launch.drain_seconds,
            )
        except BaseException:
            temporary.cleanup()
            raise
        record.own(engine._kept.keeper_pid)
        engine._gone = asyncio.create_task(engine._watch_end())
        return engine

    async def become_ready(self, seconds: float, on_phase: OnPhase) -> smoke.Smoke:
        checking = asyncio.create_task(self._check(on_phase))
        try:
            done = await _first_of(checking, self._gone, seconds=seconds)
            if checking in done and _broke_off(checking):
                # A request that breaks off is most likely how the engine's end shows; who ended is told in a moment.
                done |= await _first_of(self._gone, seconds=_TELL_SECONDS)
            if self._gone in done:
                raise self._gone.result()
            if checking in done:
                return checking.result()
            raise EngineGone(f"it was not ready after {seconds:g} s")
        finally:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)

    async def lower(self, steps: int, most: int) -> None:
        mode = KnobMode[mode_at(steps, most).name]
        async with EngineClient(self.spec.address, admin_key=self._key) as client:
            await client.command(epoch=_FIRST_EPOCH, mode=mode, steps=steps)
            ranks = await client.ranks()
        others = [rank for rank in ranks if (rank.epoch, rank.steps) != (_FIRST_EPOCH, steps)]
        if others or not ranks:
            said = ", ".join(f"rank {r.dp}.{r.rank}: {r.steps} steps, {r.last.name.lower()}" for r in others[:4])
            raise ActError.of(
                "act.not-taken",
                f"engine {self.number}",
                f"asked for {steps} draft steps before it takes requests; {said or 'no rank answers for a knob'}",
                remedy="See runbooks/speculation-is-off.md.",
            )

    async def gone(self) -> EngineGone:
        return await asyncio.shield(self._gone)

    async def end(self, seconds: float, at_once: asyncio.Event) -> None:
        await self._kept.stop(seconds, at_once)
        await self._forget()

    async def kill(self) -> int:
        code = await self._kept.kill()
        await self._forget()
        return code

    async def _forget(self) -> None:
        self._watch.close()
        self._record.disown(self._kept.keeper_pid)
        self._gone.cancel()
        await asyncio.gather(self._gone, return_exceptions=True)
        self._temporary.cleanup()

    @property
    def tail(self) -> list[str]:
        return list(self._kept.tail)

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self._began

    async def _watch_end(self) -> EngineGone:
        ending = asyncio.create_task(self._kept.wait())
        leaking = asyncio.create_task(self._kept.key_was_logged.wait())
        try:
            done = await _first_of(ending, leaking, self._lost)
            if self._lost in done and is_launcher(self._lost.result()):
                done |= await _first_of(ending, seconds=_END_SECONDS)  # its exit code says more
            if leaking in done:
                what = "it wrote its admin key to its log; the key was struck there, and the engine stopped"
                return EngineGone(what, final=True)
            if self._lost in done and not (ending in done and is_launcher(self._lost.result())):
                return EngineGone(self._lost.result())  # a part that ended first; the engine's own end only follows
            return EngineGone("", by_itself=True)
        finally:
            for task in (ending, leaking):
                task.cancel()
            await asyncio.gather(ending, leaking, return_exceptions=True)

    def _note_station(self, line: bytes) -> None:
        if (station := read_station(line.decode(errors="replace"))) and not self._stations.full():
            self._stations.put_nowait(station)

    async def _check(self, on_phase: OnPhase) -> smoke.Smoke:
        while (station := await self._stations.get()).phase is not Phase.READY:
            on_phase(station.phase)
            self._record.event(Kind.PHASE, station.detail, phase=station.phase.value)
        self._watch.over(self._check_patches())
        async with EngineClient(self.spec.address) as client:
            await self._first_health(client)
            await smoke.find_key(client, self._key)
            self._record.event(Kind.CHECKED, "the admin key is in nothing the engine says of itself")
            if self._launch.tokenizer:
                await smoke.check_tokenizer(client, self._launch.tokenizer)
                self._record.event(Kind.CHECKED, "the tokenizer is the one the recipe pins")
            speculates, seconds = self.spec.speculates, self._launch.ready_seconds
            seen = await smoke.answer_once(client, speculates=speculates, seconds=seconds)
        self._record.event(Kind.CHECKED, self._seen(seen))
        return seen

    def _seen(self, seen: smoke.Smoke) -> str:
        labels = f" [{', '.join(self._launch.status.labels)}]" if self._launch.status.labels else ""
        if seen.emitted_length is None:
            return f"serving without speculation: {seen.emitted_tokens} tokens{labels}"
        rounds = f"{seen.emitted_tokens} tokens in {seen.rounds} rounds"
        return f"speculating: {rounds}, emitted length {seen.emitted_length:.2f}{labels}"

    def _check_patches(self) -> dict[int, str]:
        """Lock two: every process of every role has said that it runs patched. Returns process names by id."""
        reported = patched(self._patch_list, self.spec.processes)
        patches = ", ".join(reported.patches)
        self._record.event(Kind.CHECKED, f"{len(self.spec.processes)} engine processes run patched: {patches}")
        return reported.processes

    async def _first_health(self, client: EngineClient) -> None:
        deadline = time.monotonic() + _HEALTH_SECONDS
        while not await client.is_healthy():
            if time.monotonic() > deadline:
                raise EngineGone(f"it called itself ready and gave no healthy answer in {_HEALTH_SECONDS:g} s")
            await asyncio.sleep(0.1)


async def _first_of(*futures: "asyncio.Future[Any]", seconds: float | None = None) -> "set[asyncio.Future[Any]]":
    done, _ = await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    return done


def _broke_off(working: "asyncio.Future[Any]") -> bool:
    error = working.exception()
    return isinstance(error, EngineError) and any(finding.rule == "engine.lost" for finding in error.findings)
