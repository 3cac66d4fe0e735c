"""What the sidecar costs and how fast it is, on the real engine: `python tests/sidecar/measure_sidecar.py` at the top of the checkout.

Prints processor seconds of the service an hour (extrapolated from the seconds it says), rounds a second of the engine with and without
looks, interleaved, and how long a change of rung takes under load until every rank reports it.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.launch.forked import Forked
from spec_toolkit.launch.nursery import Nursery
from spec_toolkit.policy.modes import Rung
from spec_toolkit.sidecar.act import set_rung
from spec_toolkit.sidecar.scrape import Scraper
from spec_toolkit.terms import Mode
from tests.engine.serving import ADMIN_KEY
from tests.sidecar.deployed import RUNNING, Deployed, engine_with_few_places, quick_limits, streams

RUNGS = (Rung(Mode.REDUCED, 1), Rung(Mode.ZERO_DRAFT, 0), Rung(Mode.FULL, 3))
say: Callable[[str], None] = lambda text: print(text, flush=True)  # noqa: T201, E731 - a script that talks to a terminal


def measure_processor(deployed: Deployed, seconds: float) -> None:
    """Under load, with nothing to decide on."""
    deployed.write(limits=quick_limits(queue_high=1000))
    with deployed.sidecar() as sidecar:
        deployed.wait_for_mode("full")
        process = psutil.Process(sidecar.pid)
        time.sleep(2)
        before, began = process.cpu_times(), time.monotonic()
        time.sleep(seconds)
        after, took = process.cpu_times(), time.monotonic() - began
        used = after.user + after.system - before.user - before.system
        memory = process.memory_info().rss / 2**20
    say(
        f"sidecar: {used:.2f} CPU s in {took:.0f} s, that is {3600 * used / took:.0f} s an hour (extrapolated); {memory:.0f} MiB"
    )


async def _slice(engine: EngineClient, scraper: Scraper, every: float, seconds: float) -> float:
    """Verify rounds a second, of all requests."""
    first, began = (await engine.ranks())[0].verify_rounds or 0, time.monotonic()
    while time.monotonic() < began + seconds:
        await asyncio.sleep(every or seconds)
        if every:
            await scraper.look()
    last = (await engine.ranks())[0].verify_rounds or 0
    return (last - first) / (time.monotonic() - began)


async def measure_looks(address: str, pairs: int, seconds: float) -> None:
    async with EngineClient(address, admin_key=ADMIN_KEY) as engine:
        scraper = Scraper(engine, time.time, hang_seconds=30)  # noqa: TID251 - a measurement's clock
        for every in (1.0, 0.1):
            without, with_looks = [], []
            for _ in range(pairs):
                without.append(await _slice(engine, scraper, 0, seconds))
                with_looks.append(await _slice(engine, scraper, every, seconds))
            cost = 1 - mean(with_looks) / mean(without)
            ratios = sorted(a / b for a, b in zip(with_looks, without, strict=True))
            say(
                f"looks every {every:g} s, {pairs} pairs of {seconds:g} s: {mean(without):.1f} rounds/s without, "
                f"{mean(with_looks):.1f} with ({100 * cost:+.1f} %; pairs {ratios[0]:.3f} to {ratios[-1]:.3f})"
            )
        await scraper.close()


async def measure_a_look(engine: Forked, count: int) -> None:
    """In processor time, which a busy machine does not change much; on an engine that has nothing else to do."""
    family = [psutil.Process(engine.pid), *psutil.Process(engine.pid).children(recursive=True)]

    def used() -> dict[str, float]:
        times = {process.pid: process.cpu_times() for process in family if process.is_running()}
        front = times.pop(engine.pid)
        return {
            "front": front.user + front.system,
            "schedulers and the rest": sum(t.user + t.system for t in times.values()),
        }

    async with EngineClient(engine.address, admin_key=ADMIN_KEY) as client:
        scraper = Scraper(client, time.time, hang_seconds=30)  # noqa: TID251 - a measurement's clock
        before, began = used(), time.monotonic()
        await asyncio.sleep(10)
        idle, idle_seconds = used(), time.monotonic() - began
        began = time.monotonic()
        for _ in range(count):
            await scraper.look(30)
        after, seconds = used(), time.monotonic() - began
        await scraper.close()
    for name, total in after.items():
        rate = (idle[name] - before[name]) / idle_seconds
        say(
            f"a look costs {1000 * (total - idle[name] - rate * seconds) / count:.1f} ms of processor in the engine's {name}"
        )


async def measure_changes(address: str, count: int) -> None:
    async with EngineClient(address, admin_key=ADMIN_KEY) as engine:
        took, rounds, looks = [], [], []
        for number in range(count):
            asked = time.monotonic()
            known = await engine.ranks(seconds=30)
            looks.append(1000 * (time.monotonic() - asked))
            began = time.monotonic()
            confirmed = await set_rung(engine, RUNGS[number % 3], known, time.monotonic, 30)
            took.append(1000 * (time.monotonic() - began))
            rounds.append((confirmed.rounds or 0) - known[0].rounds)
        say(f"a look at the ranks: median {median(looks):.0f} ms, most {max(looks):.0f}")
        say(
            f"{count} changes: on every rank median {median(took):.0f} ms, 95 % {sorted(took)[int(0.95 * count)]:.0f}, most {max(took):.0f}; "
            f"rounds meanwhile median {median(rounds):g}, most {max(rounds)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0, help="the service's processor time is measured for")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--changes", type=int, default=60)
    options = parser.parse_args()
    with Nursery.start(most=1) as nursery, tempfile.TemporaryDirectory() as folder:
        engine_folder, state = Path(folder) / "engine", Path(folder) / "state"
        engine_folder.mkdir()
        with engine_with_few_places(nursery, engine_folder) as engine:
            asyncio.run(measure_a_look(engine, 200))
            with streams(engine.address, RUNNING):
                say(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {RUNNING} streams")
                asyncio.run(measure_changes(engine.address, options.changes))
                measure_processor(Deployed(state, engine.address), options.seconds)
                asyncio.run(measure_looks(engine.address, options.pairs, 5.0))
                say(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
