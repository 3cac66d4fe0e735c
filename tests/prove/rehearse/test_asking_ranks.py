"""What is asked of an engine after its ranks have spoken: by a small server in its place, which answers as the plugin does."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.errors import ActError
from spec_toolkit.prove.rehearse.asking import Heard, InForce, Questions, ask_drafting
from spec_toolkit.terms import KNOB_KEYS, RANKS_KEY

QUESTIONS = Questions(buckets=(("chat", ((1,), (2,))),), most=2)


class Engine:
    """A rank that takes commands; `faults_at`: the answer after which its draft has faulted."""

    def __init__(self, *, faults_at: int | None = None, takes: bool = True) -> None:
        self.faults_at, self.takes = faults_at, takes
        self.answers, self.commands = 0, []
        self.epoch, self.steps = 0, 3

    async def info(self, _: web.Request) -> web.Response:
        faulted = self.faults_at is not None and self.answers >= self.faults_at
        row = {
            "dp": 0,
            "rank": 0,
            "epoch": self.epoch,
            "steps": 0 if faulted else self.steps,
            "mode": 0,
            "candidates": [0, 1, 3],
        }
        row |= {
            "taken": 0,
            "refused": 0,
            "last": 0,
            "rounds": 1,
            "draft_faults": {"draft": 1} if faulted else {},
            "last_fault": "",
        }
        return web.json_response({"internal_states": [{RANKS_KEY: [row]}]})  # fmt: skip

    async def command(self, request: web.Request) -> web.Response:
        numbers = (await request.json())["server_args"]
        epoch, _, steps = (numbers[key] for key in KNOB_KEYS)
        self.commands.append((epoch, steps))
        if self.takes:
            self.epoch, self.steps = epoch, steps
        return web.json_response([True])

    async def generate(self, _: web.Request) -> web.Response:
        self.answers += 1
        meta: dict[str, Any] = {"completion_tokens": 4, "spec_verify_ct": 2, "spec_num_correct_drafts": 1}
        return web.json_response({"output_ids": [1, 2, 3, 4], "text": "", "meta_info": meta})


def asked(engine: Engine) -> Heard:
    async def ask() -> Heard:
        app = web.Application()
        app.add_routes(
            [
                web.get("/server_info", engine.info),
                web.post("/set_internal_state", engine.command),
                web.post("/generate", engine.generate),
            ]
        )
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            async with EngineClient(f"http://{host}:{port}", admin_key="k") as client:
                return await ask_drafting(client, QUESTIONS, steps=(0, 1, 3))
        finally:
            await runner.cleanup()

    return asyncio.run(ask())


def test_every_lower_step_count_is_tried_and_the_last_one_is_the_first_again() -> None:
    engine = Engine()
    heard = asked(engine)
    assert engine.commands == [(1, 1), (2, 0), (3, 3)]
    assert [(count, answers.told) for count, answers in heard.lower] == [(1, InForce(1, 1)), (0, InForce(2, 0))]
    assert (heard.alone.told, heard.told) == (InForce(0, 3), InForce(3, 3))


@pytest.mark.parametrize(
    ("faults_at", "commands"),
    [
        pytest.param(1, [], id="one-at-a-time"),
        pytest.param(4, [], id="several-at-a-time"),
        pytest.param(5, [(1, 1)], id="with-one-step"),
        pytest.param(8, [(1, 1), (2, 0)], id="without-drafts"),
    ],
)
def test_after_a_fault_of_the_draft_no_other_steps_are_asked_for(
    faults_at: int, commands: list[tuple[int, int]]
) -> None:
    engine = Engine(faults_at=faults_at)
    heard = asked(engine)
    assert engine.commands == commands
    last = heard.lower[-1][1] if heard.lower else heard.together
    assert last is not None
    assert last.is_faulty


def test_a_command_that_no_rank_has_in_force_ends_the_rehearsal() -> None:
    with pytest.raises(ActError, match=r"asked for 1 draft steps; rank 0\.0: 3 steps, .*\[act\.not-taken\]"):
        asked(Engine(takes=False))
