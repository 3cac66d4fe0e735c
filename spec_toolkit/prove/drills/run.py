"""Runs drills one after another against a deployment that serves. Touches the world."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from spec_toolkit.errors import EngineError, SpecError
from spec_toolkit.launch.deployment import Folder
from spec_toolkit.prove.drills.outcome import Moment, Outcome
from spec_toolkit.prove.drills.scenes import DRILLS, Asks
from spec_toolkit.prove.drills.stage import DrillFailed, Stage
from spec_toolkit.prove.streams import Answer, ask

_FIT_SECONDS = 300.0  # until the deployment is at full, before a drill
_DRILL_SECONDS = 1200.0  # of one drill, whatever happens in it


async def run_drills(
    names: Sequence[str], folder: Folder, address: str, asks: Asks, tell: Callable[[Moment], None]
) -> AsyncIterator[Outcome]:
    """One outcome each, in order. A drill that fails says why, and the next one waits until the deployment is fit again.

    Raises EngineError where the deployment does not even answer undisturbed.
    """
    answers = await asyncio.gather(*(ask(address, each) for each in [*asks.short, *asks.long, *asks.lasting]))
    whole = {answer.ask: _undisturbed(answer) for answer in answers}
    for name in names:
        stage = Stage(folder, address, whole, tell)
        problem = ""
        async with stage.telling():
            try:
                async with asyncio.timeout(_DRILL_SECONDS):
                    await stage.until_mode("full", _FIT_SECONDS)
                    await DRILLS[name](stage, asks)
            except TimeoutError:
                problem = f"not over after {_DRILL_SECONDS:g} s"
            except (DrillFailed, SpecError) as failed:
                problem = str(failed)
        yield stage.outcome(name, problem)


def _undisturbed(answer: Answer) -> Answer:
    if answer.problem or answer.counted != answer.ask.tokens:
        wrong = answer.problem or f"{answer.counted} tokens, {answer.ask.tokens} asked for"
        raise EngineError.of(
            "drills.unfit", answer.ask.endpoint.value, f"undisturbed, it does not answer whole: {wrong}"
        )
    return answer
