"""A world for the controller in which a test decides what happens each second: engines with real knobs, and a supervisor."""

import asyncio
from collections.abc import Sequence
from typing import Any, Self

from spec_toolkit.engine.loads import Loads
from spec_toolkit.engine.ranks import RankState, read_ranks
from spec_toolkit.errors import ActError, EngineError
from spec_toolkit.launch.route import Route
from spec_toolkit.plugin.knob import Knob
from spec_toolkit.policy.modes import Rung
from spec_toolkit.sidecar.act import set_rung
from spec_toolkit.sidecar.controller import Controller, Deployment
from spec_toolkit.sidecar.records import Carried, Confirmed, Taken
from spec_toolkit.sidecar.scrape import Look, Scraper
from spec_toolkit.terms import RANKS_KEY, Comeback, KnobMode
from tests.policy.traces import limits as make_limits

CANDIDATES = (0, 1, 3)
HANG_SECONDS = 40.0
RESTART_SECONDS = 100.0


def limits(**changed: Any) -> Any:
    """Windows of three seconds, a move every five."""
    return make_limits(
        **{
            "window_seconds": 3.0,
            "dwell_seconds": 5.0,
            "min_rounds": 20,
            "probe_seconds": 10.0,
            "cool_down_seconds": 20.0,
            "crash_cool_down_seconds": 30.0,
            **changed,
        }
    )


class FakeEngine:
    """Answers as EngineClient does, with the plugin's own knob in each rank."""

    def __init__(self, *, steps: int | None, ranks: Sequence[tuple[int, int]] = ((0, 0),)) -> None:
        """`steps`: those it starts with; None: it cannot draft."""
        self.queue, self.running, self.accepts = 0, 8, 0.7
        self.answers, self.refuses = True, False
        self.faults: int | None = 0
        self.commands: list[tuple[int, KnobMode, int]] = []
        self.knobs: dict[tuple[int, int], Knob] = {}
        for place in ranks if steps is not None else ():
            self.knobs[place] = Knob()
            self.knobs[place].arm(CANDIDATES, steps or 0)

    @property
    def steps(self) -> list[int]:
        return [knob.setting.steps for knob in self.knobs.values() if knob.setting]

    def fault(self) -> None:
        """In the draft: it falls by itself, as every rank does in the same round."""
        self.faults = (self.faults or 0) + 1
        for knob in self.knobs.values():
            knob.fall("draft_fault")

    def second(self) -> None:
        for knob in self.knobs.values():
            for _ in range(10):
                accepted = round(sum(self.accepts**n for n in range(1, knob.begin_round() + 1)))
                knob.end_round([accepted] * self.running)

    async def loads(self, *, seconds: float) -> Loads:
        return Loads(queue_depth=self.queue, running=self.running)

    async def ranks(self, *, seconds: float) -> tuple[RankState, ...]:
        if not self.answers:
            await asyncio.sleep(seconds)
            raise EngineError.of("engine.lost", "engine", "no answer in time")
        rows = [knob.row(dp=dp, rank=rank) for (dp, rank), knob in self.knobs.items()]
        if self.faults is not None:
            rows = [{**row, "draft_faults": {"draft": self.faults} if self.faults else {}} for row in rows]
        return read_ranks({"internal_states": [{RANKS_KEY: rows}]})

    async def command(self, *, epoch: int, mode: KnobMode, steps: int, seconds: float) -> bool:
        self.commands.append((epoch, mode, steps))
        if self.refuses:
            return False
        taken = [knob.take({"epoch": epoch, "mode": int(mode), "steps": steps}) for knob in self.knobs.values()]
        return not any(taken)


class World:
    """One second at a time."""

    def __init__(
        self,
        *,
        comeback: Comeback = Comeback.BESIDE,
        carried: Carried | None = None,
        run: str = "run-a",
        chosen: Any = None,
        engine: FakeEngine | None = None,
        now_s: float = 0.0,
        always_speculates: bool = False,
    ) -> None:
        self.now_s = now_s
        self.asked: list[tuple[bool, str]] = []  # restarts
        self.hung: list[bool] = []  # of each of those, whether it says that the engine hangs
        self.refuses = ""  # why the supervisor does
        self.engine = engine or FakeEngine(steps=3)
        deployment = Deployment(
            run=run,
            comeback=comeback,
            hang_seconds=HANG_SECONDS,
            restart_seconds=RESTART_SECONDS,
            always_speculates=always_speculates,
        )
        self.controller = Controller(deployment, self, carried, draw=lambda: 1.0)
        self.controller.limits = chosen or limits()
        self._scraper: Scraper | None = None
        self._loop = asyncio.Runner()
        self.lines: list[tuple[float, Taken]] = []
        self.route(self.engine, number=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._scraper:
            self._loop.run(self._scraper.close())
        self._loop.close()

    def route(self, engine: FakeEngine | None, *, number: int = 0, lost: int = 0, returning: bool = False) -> None:
        """What the supervisor says next."""
        if self._scraper and engine is not self.engine:
            self._loop.run(self._scraper.close())
        if engine is not None and (engine is not self.engine or self._scraper is None):
            self._scraper = Scraper(engine, lambda: self.now_s, hang_seconds=HANG_SECONDS)  # type: ignore[arg-type]
        if engine is None:
            self._scraper = None
        self.engine = engine if engine is not None else self.engine
        self.controller.sight.route = Route(
            generation=1,
            address="http://there" if engine else "",
            engine=number,
            speculates=bool(engine and engine.knobs),
            steps=max(engine.steps, default=0) if engine else 0,
            returning=returning,
            lost=lost,
        )

    def seconds(self, count: int) -> list[str]:
        """Live so long; the moves, as "second: old -> new signal"."""
        first = len(self.lines)
        for _ in range(count):
            self.now_s += 1
            self.engine.second()
            taken = self._loop.run(self._step())
            self.lines += [(self.now_s, line) for line in taken]
        return [
            f"{at:g}: {line.before} -> {line.rung} {line.signal}".strip()
            for at, line in self.lines[first:]
            if line.moved
        ]

    async def _step(self) -> list[Taken]:
        look = await self._scraper.look(self._patience) if self._scraper else Look()
        return await self.controller.step(look, self.now_s)

    async def set_rung(self, rung: Rung, known: Sequence[RankState]) -> Confirmed:
        return await set_rung(self.engine, rung, known, lambda: self.now_s, seconds=self._patience)  # type: ignore[arg-type]

    async def ask_restart(self, *, speculate: bool, why: str, hung: bool = False) -> None:
        self.asked.append((speculate, why))
        self.hung.append(hung)
        if self.refuses:
            raise ActError.of("act.not-taken", "actuator", self.refuses)

    @property
    def _patience(self) -> float:
        """Real seconds, waited for only where nobody answers."""
        return 10.0 if self.engine.answers else 0.02

    @property
    def rung(self) -> str:
        return str(self.controller.state.rung) if self.controller.state else ""

    @property
    def why(self) -> str:
        return self.controller.story.why
