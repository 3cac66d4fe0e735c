"""Runs drills one after another against a deployment that serves. Touches the world."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from spec_toolkit.errors import SpecError
from spec_toolkit.launch.deployment import Folder
from spec_toolkit.prove.drills.outcome import Moment, Outcome
from spec_toolkit.prove.drills.scenes import DRILLS, Asks
from spec_toolkit.prove.drills.stage import DrillFailed, Stage

_FIT_SECONDS = 300.0  # until the deployment is at full, before a drill
_DRILL_SECONDS = 1200.0  # of one drill, whatever happens in it


async def run_drills(
    names: Sequence[str], folder: Folder, address: str, asks: Asks, tell: Callable[[Moment], None]
) -> AsyncIterator[Outcome]:
    """One outcome each, in order. A drill that fails says why, and the next one waits until the deployment is fit again."""
    for name in names:
        stage = Stage(folder, address, tell)
        problem = ""
        async with stage.telling():
            try:
                async with asyncio.timeout(_DRILL_SECONDS):
                    await stage.until_mode("full", _FIT_SECONDS)
                    await stage.learn([*asks.short, *asks.long])
                    await DRILLS[name](stage, asks)
            except TimeoutError:
                problem = f"not over after {_DRILL_SECONDS:g} s"
            except (DrillFailed, SpecError) as failed:
                problem = str(failed)
        yield stage.outcome(name, problem)
