"""A client's stream while engines die, hang, abort, lie and come back."""

import asyncio
import json
import re

import pytest

from spec_toolkit.gateway import stream as streams
from spec_toolkit.gateway.attempts import MOST_LOSSES
from spec_toolkit.gateway.journal import ChatJournal
from tests.gateway.client_side import fold
from tests.gateway.fake_engine import FakeEngine, chat_pieces, generate_pieces, sse
from tests.gateway.front import TOKENS, chat, check_whole, error_of, fronting, generate, run, until

NAME = 32 * "x"  # as long as those that engines are given
KINDS = pytest.mark.parametrize("ask", [chat, generate])


@KINDS
def test_an_undisturbed_stream_passes_as_the_engine_made_it(ask):
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            status, said, headers = await front.post(
                "/v1/chat/completions" if ask is chat else "/generate", ask(rid="mine"), **{"x-request-id": "r-1"}
            )
            assert status == 200
            assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
            assert headers["X-Request-Id"] == "r-1"
            held = fold(said)
            check_whole(held)
            assert held.names == {"mine"}
            assert held.comments == []
            assert front.counters.completed == 1
            assert front.admission.in_flight == 0
            await until(lambda: engine.open == 0)
            assert engine.cancelled == 0

    run(test())


@KINDS
def test_an_engine_killed_under_sixteen_streams_loses_none_of_them(ask):
    async def test() -> None:
        async with (
            FakeEngine(1, pace_seconds=0.02).serving() as a,
            FakeEngine(2, pace_seconds=0.001).serving() as b,
            fronting() as front,
        ):
            front.route(a)
            asked = [asyncio.create_task(front.ask(ask(f"prompt {n}"))) for n in range(16)]
            await until(lambda: a.open == 16 and all(stream.journal.forwarded for stream in front.proxy.streams))
            await a.kill()
            front.route(b, lost=True, speculates=False)
            for number, held in enumerate(await asyncio.gather(*asked)):
                check_whole(held, f"prompt {number}")
            assert front.counters.resumed == 16
            assert front.counters.resume_failed == 0
            assert len(b.requests) == 16

    run(test())


@KINDS
def test_a_stream_cut_at_every_position_on_the_wire_is_whole(ask):
    async def test() -> None:
        cuts = [*range(0, 400, 23), *range(400, 6000, 397)]
        async with FakeEngine(1, die_after=lambda number: cuts[number]).serving() as a, FakeEngine(2).serving() as b:
            for _ in cuts:
                async with fronting() as front:
                    front.route(a)
                    asked = asyncio.create_task(front.ask(ask()))
                    await until(lambda asked=asked, front=front: asked.done() or bool(front.counters.losses))
                    front.route(b)
                    check_whole(await asked)
            assert a.streams == len(cuts)
            assert b.streams > 10

    run(test())


@KINDS
def test_a_stream_outlives_a_second_and_a_third_loss(ask):
    async def test() -> None:
        async with FakeEngine(1, die_after=lambda number: 700 + 300 * number).serving() as engine, fronting() as front:
            front.route(engine)
            engine.die_after = lambda number: 900 if number < MOST_LOSSES else None
            check_whole(await front.ask(ask()))
            assert engine.streams == MOST_LOSSES + 1
            assert front.counters.resumed + front.counters.remade == MOST_LOSSES

    run(test())


def test_a_request_that_ends_engine_after_engine_ends_itself():
    async def test() -> None:
        async with FakeEngine(1, die_after=lambda number: 900).serving() as engine, fronting() as front:
            front.route(engine)
            held = await front.ask(chat())
            assert [error["type"] for error in held.errors] == ["gateway.lost-too-often"]
            assert held.done == 0
            assert engine.streams == MOST_LOSSES + 1
            assert front.counters.resume_failed == 1
            # One that ends them before they say a word is no better.
            engine.die_after = lambda number: 0
            status, said, _ = await front.post("/v1/chat/completions", chat())
            assert (status, error_of(said)["type"]) == (502, "gateway.lost-too-often")

    run(test())


@pytest.mark.parametrize("streams", [True, False])
@KINDS
def test_what_lost_two_engines_before_a_token_is_tried_at_no_third(ask, streams):
    """A text that an engine tokenises for so long that it is ended would end every engine in turn."""

    async def test() -> None:
        fault = {"stalls_after": 0, "pace_seconds": 0.0 if streams else 60.0}
        async with (
            FakeEngine(1, **fault).serving() as a,
            FakeEngine(2, **fault).serving() as b,
            FakeEngine(3).serving() as c,
            fronting() as front,
        ):
            front.route(a)
            body = ask(stream=streams)
            asked = asyncio.create_task(front.post("/v1/chat/completions" if "messages" in body else "/generate", body))
            await until(lambda: a.open == 1)
            front.route(b, lost=True)
            await until(lambda: b.open == 1)
            front.route(c, lost=True)
            status, said, _ = await asked
            assert (status, error_of(said)["type"]) == (502, "gateway.lost-too-often")
            assert "may be what ends the engines" in error_of(said)["message"]
            assert c.requests == []
            check_whole(await front.ask(ask()))

    run(test())


@KINDS
def test_a_stream_that_has_tokens_may_lose_two_more_engines_that_make_none(ask):
    async def test() -> None:
        async with (
            FakeEngine(1, stalls_after=3).serving() as a,
            FakeEngine(2, stalls_after=0).serving() as b,
            FakeEngine(3, stalls_after=0).serving() as c,
            FakeEngine(4).serving() as d,
            fronting() as front,
        ):
            front.route(a)
            asked = asyncio.create_task(front.ask(ask()))
            await until(lambda: any(stream.journal.forwarded for stream in front.proxy.streams))
            for engine in (b, c):
                front.route(engine, lost=True)
                await until(lambda engine=engine: engine.open == 1)
            front.route(d, lost=True)
            check_whole(await asked)
            assert front.counters.resumed == 1

    run(test())


@KINDS
def test_an_engine_that_the_route_calls_lost_is_not_waited_for(ask):
    """It holds its connections open and says nothing more."""

    async def test() -> None:
        async with FakeEngine(1, stalls_after=3).serving() as a, FakeEngine(2).serving() as b, fronting() as front:
            front.route(a)
            asked = asyncio.create_task(front.ask(ask()))
            await until(lambda: any(stream.journal.forwarded for stream in front.proxy.streams))
            front.route(None, lost=True)
            await until(lambda: a.cancelled == 1)
            assert not asked.done()
            front.route(b, speculates=False)
            check_whole(await asked)

    run(test())


def test_a_request_whose_engine_is_lost_before_it_answers_is_made_at_the_next():
    async def test() -> None:
        async with FakeEngine(1, stalls_after=0).serving() as a, FakeEngine(2).serving() as b, fronting() as front:
            front.route(a)
            asked = asyncio.create_task(front.ask(chat()))
            await until(lambda: a.open == 1)
            front.route(b, lost=True)
            check_whole(await asked)

    run(test())


@KINDS
def test_a_route_that_moves_leaves_running_streams_where_they_are(ask):
    async def test() -> None:
        async with (
            FakeEngine(1, pace_seconds=0.01).serving() as a,
            FakeEngine(2).serving() as b,
            fronting() as front,
        ):
            front.route(a)
            asked = asyncio.create_task(front.ask(ask()))
            await until(lambda: any(stream.journal.forwarded for stream in front.proxy.streams))
            front.route(b)
            check_whole(await front.ask(ask("other")), "other")
            assert not asked.done()
            check_whole(await asked)
            assert (len(a.requests), len(b.requests)) == (1, 1)

    run(test())


@KINDS
def test_an_abort_without_a_status_makes_the_stream_go_on(ask):
    async def test() -> None:
        abort = {
            chat: sse({"id": "x", "created": 1, "choices": [{"index": 0, "delta": {}, "finish_reason": "abort"}]}),
            generate: sse({"text": "", "output_ids": [], "meta_info": {"finish_reason": {"type": "abort"}}}),
        }[ask]
        async with FakeEngine(1).serving() as engine, fronting() as front:
            engine.change = lambda step, piece: abort if step == 4 and engine.streams == 1 else piece
            front.route(engine)
            check_whole(await front.ask(ask()))
            assert front.counters.losses == {"aborted": 1}

    run(test())


def test_an_answer_whose_last_event_came_is_whole_though_its_end_was_not_said():
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            whole = b"".join(generate_pieces({**generate(), "rid": NAME}, 1))
            engine.die_after = lambda number: len(whole) - len(b"data: [DONE]\n\n")
            check_whole(await front.ask(generate(rid="mine")))
            assert len(engine.requests) == 1
            assert front.counters.completed == 1

    run(test())


def test_the_end_is_made_again_when_only_the_end_was_lost():
    async def test() -> None:
        async with FakeEngine(1).serving() as a, FakeEngine(2).serving() as b, fronting() as front:
            whole = b"".join(chat_pieces({**chat(), "rid": NAME, "custom_params": {"resume_records": True}}, 1))
            a.die_after = lambda number: len(whole) - 3 if number == 0 else None
            front.route(a)
            asked = asyncio.create_task(front.ask(chat(rid="mine")))
            await until(lambda: bool(front.counters.losses))
            front.route(b)
            check_whole(await asked)

    run(test())


def test_while_it_waits_the_client_hears_that_its_stream_lives(monkeypatch):
    async def test() -> None:
        async with (
            FakeEngine(1, die_after=lambda number: 900).serving() as a,
            FakeEngine(2).serving() as b,
            fronting() as front,
        ):
            front.route(a)
            asked = asyncio.create_task(front.ask(chat()))
            await until(lambda: bool(front.counters.losses))
            front.route(None, lost=True)
            monkeypatch.setattr("spec_toolkit.gateway.watch.KEEP_ALIVE_SECONDS", 0.0)
            for _ in range(3):
                await front.watch.round()
            front.route(b)
            held = await asked
            check_whole(held)
            assert held.comments == [": waiting"] * 3

    run(test())


def test_at_the_deadline_a_begun_stream_ends_with_a_typed_error():
    async def test() -> None:
        async with FakeEngine(1, die_after=lambda number: 900).serving() as engine, fronting(deadline=0.4) as front:
            front.route(engine)
            asked = asyncio.create_task(front.ask(chat()))
            await until(lambda: bool(front.counters.losses))
            front.route(None, lost=True)
            held = await asked
            assert [error["type"] for error in held.errors] == ["gateway.no-engine"]
            assert front.counters.completed == 0
            assert held.text
            assert held.done == 0
            assert front.counters.resume_failed == 1
            assert front.admission.in_flight == 0

    run(test())


def test_at_the_deadline_a_stream_that_has_not_begun_is_answered_with_a_status():
    async def test() -> None:
        async with fronting(deadline=0.2) as front:
            status, said, headers = await front.post("/generate", generate())
            assert (status, error_of(said)["type"]) == (503, "gateway.no-engine")
            assert int(headers["Retry-After"]) >= 1

    run(test())


def test_after_a_while_without_an_engine_the_response_begins_and_an_engines_no_becomes_an_event(monkeypatch):
    async def test() -> None:
        monkeypatch.setattr(streams, "PATIENCE_SECONDS", 0.05)
        async with FakeEngine(1, status=400).serving() as engine, fronting() as front:
            asked = asyncio.create_task(front.ask(chat()))
            await until(lambda: any(stream.begun for stream in front.proxy.streams))
            front.route(engine)
            held = await asked
            assert [error["message"] for error in held.errors] == ["as told"]

    run(test())


def test_an_engines_own_no_passes_with_its_status():
    async def test() -> None:
        async with FakeEngine(1, status=422).serving() as engine, fronting() as front:
            front.route(engine)
            status, said, _ = await front.post("/v1/chat/completions", chat())
            assert (status, b"as told" in said) == (422, True)

    run(test())


def test_an_engine_that_takes_no_requests_is_asked_again():
    async def test() -> None:
        async with FakeEngine(1, status=503).serving() as engine, fronting() as front:
            front.route(engine)
            asked = asyncio.create_task(front.ask(chat()))
            await until(lambda: len(engine.requests) >= 2)
            engine.status = 200
            check_whole(await asked)

    run(test())


def test_what_cannot_go_on_is_served_and_ends_in_a_typed_error_where_its_engine_dies():
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            held = await front.ask(chat(n=2, rid="mine"))
            assert held.done == 1
            assert engine.requests[0].get("custom_params") is None
            engine.die_after = lambda number: 900
            held = await front.ask(chat(n=2, rid="mine"))
            assert [error["type"] for error in held.errors] == ["gateway.not-resumable"]
            assert "several_choices" in held.errors[0]["message"]
            assert len(engine.requests) == 2

    run(test())


def test_what_cannot_go_on_is_made_anew_where_nothing_was_sent():
    async def test() -> None:
        async with (
            FakeEngine(1, die_after=lambda number: None if number else 0).serving() as engine,
            fronting() as front,
        ):
            front.route(engine)
            assert (await front.ask(chat(n=2, rid="mine"))).done == 1
            assert front.counters.remade == 1

    run(test())


def test_what_the_engine_alone_knows_cannot_go_on_is_served():
    async def test() -> None:
        async with FakeEngine(1, refuses_records=True).serving() as engine, fronting() as front:
            front.route(engine)
            check_whole(await front.ask(chat()))
            assert len(engine.requests) == 2
            engine.die_after = lambda number: 900
            held = await front.ask(chat())
            assert [error["type"] for error in held.errors] == ["gateway.not-resumable"]

    run(test())


@KINDS
def test_a_resumption_that_the_next_engine_refuses_ends_in_a_typed_error(ask):
    async def test() -> None:
        async with (
            FakeEngine(1, die_after=lambda number: 900).serving() as a,
            FakeEngine(2).serving() as b,
            fronting() as front,
        ):
            front.route(a)
            asked = asyncio.create_task(front.ask(ask("one")))
            await until(lambda: bool(front.counters.losses))
            # As if B served another model: the tokens are not those of its answer.
            (stream,) = front.proxy.streams
            object.__setattr__(stream.request, "body", stream.request.body.replace(b'"one"', b'"two"'))
            front.route(b)
            held = await asked
            assert [error["type"] for error in held.errors] == ["gateway.resume-refused"]
            assert held.done == 0

    run(test())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(chat("one"), id="chat"),
        pytest.param(generate("one"), id="generate"),
        pytest.param(generate("one", return_logprob=True), id="log-probabilities"),
    ],
)
def test_a_resumption_that_the_next_engines_scheduler_refuses_is_no_end_of_an_answer(body):
    async def test() -> None:
        async with (
            FakeEngine(1, die_after=lambda number: 900).serving() as a,
            FakeEngine(2, scheduler_says=400).serving() as b,
            fronting() as front,
        ):
            front.route(a)
            asked = asyncio.create_task(front.ask(body))
            await until(lambda: bool(front.counters.losses))
            front.route(b)
            held = await asked
            assert [error["type"] for error in held.errors] == ["gateway.resume-refused"]
            assert (held.done, held.finish) == (0, [])
            assert (front.counters.resume_failed, front.counters.completed) == (1, 0)

    run(test())


def test_a_resumption_that_the_next_engine_gives_up_is_tried_again():
    async def test() -> None:
        async with (
            FakeEngine(1, die_after=lambda number: 900).serving() as a,
            FakeEngine(2, scheduler_says=503).serving() as b,
            fronting() as front,
        ):
            front.route(a)
            asked = asyncio.create_task(front.ask(generate()))
            await until(lambda: bool(front.counters.losses))
            front.route(b)
            await until(lambda: front.counters.losses["aborted"] > 0)
            b.scheduler_says = None
            check_whole(await asked)

    run(test())


@KINDS
def test_a_name_that_a_client_chose_badly_stays_its_streams_name(ask):
    async def test() -> None:
        name = 'a "name"\\with\r\nX-Evil: 1'
        async with (
            FakeEngine(1, die_after=lambda number: 900).serving() as a,
            FakeEngine(2).serving() as b,
            fronting() as front,
        ):
            front.route(a)
            path = "/v1/chat/completions" if ask is chat else "/generate"
            asked = asyncio.create_task(front.post(path, ask(rid=name)))
            await until(lambda: bool(front.counters.losses))
            front.route(b)
            status, said, headers = await asked
            check_whole(fold(said))
            assert fold(said).names == {name}
            assert status == 200
            assert "X-Evil" not in headers
            assert "X-Request-Id" not in headers

    run(test())


@pytest.mark.parametrize("begun", [True, False])
def test_a_defect_of_ours_is_a_typed_error_and_its_log_holds_nothing_of_the_request(monkeypatch, caplog, begun):
    async def test() -> None:
        def defective(self: object, piece: bytes) -> bytes:
            if not begun or b"resume" not in piece or piece.startswith(b"data: [DONE]"):
                raise ValueError(piece)
            monkeypatch.undo()
            monkeypatch.setattr(ChatJournal, "take", broken)
            return piece

        def broken(self: object, piece: bytes) -> bytes:
            raise ValueError(piece)

        monkeypatch.setattr(ChatJournal, "take", defective)
        async with FakeEngine(1, pace_seconds=0.01).serving() as engine, fronting() as front:
            front.route(engine)
            status, said, _ = await front.post("/v1/chat/completions", chat())
            error = fold(said).errors[0] if begun else error_of(said)
            assert (status, error["type"]) == (200 if begun else 500, "gateway.defect")
            assert "ValueError" in caplog.text
            assert "resume" not in caplog.text
            assert front.admission.in_flight == 0

    run(test())


def test_clients_cannot_write_our_keys():
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            mine = {"resume_ids": [1], "resume_steps": [1, 1], "resume_records": False, "kept": 1}
            check_whole(await front.ask(chat(custom_params=dict(mine))))
            check_whole(
                await front.ask({**generate(), "sampling_params": {"max_new_tokens": TOKENS, "custom_params": mine}})
            )
            await front.post("/generate", {**generate(stream=False), "sampling_params": {"custom_params": mine}})
            await front.post("/v1/completions", {"prompt": "x", "max_tokens": 4, "custom_params": mine})
            told = [(body.get("custom_params") or body["sampling_params"]["custom_params"]) for body in engine.requests]
            assert told == [{"kept": 1, "resume_records": True}, {"kept": 1}, {"kept": 1}, {"kept": 1}]

    run(test())


@KINDS
def test_a_client_that_goes_away_ends_no_stream_whose_name_begins_as_its_own_does(ask):
    async def test() -> None:
        async with FakeEngine(1, pace_seconds=0.02).serving() as engine, fronting() as front:
            front.route(engine)
            first = asyncio.create_task(front.ask(ask(rid="req-1")))
            others = [asyncio.create_task(front.ask(ask(f"p{n}", rid=f"req-1{n}"))) for n in range(5)]
            await until(lambda: sum(stream.journal.forwarded > 0 for stream in front.proxy.streams) == 6)
            first.cancel()
            for number, held in enumerate(await asyncio.gather(*others)):
                check_whole(held, f"p{number}")
                assert held.names == {f"req-1{number}"}
            assert engine.cancelled == 1
            assert not front.counters.losses

    run(test())


@pytest.mark.parametrize("name", ["HEALTH_CHECK_1", "the same", ""])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(chat(), id="chat"),
        pytest.param(generate(), id="generate"),
        pytest.param(chat(n=2), id="passed-on"),
        pytest.param(chat(stream=False), id="chat-whole"),
        pytest.param(generate(stream=False), id="generate-whole"),
    ],
)
def test_whatever_clients_call_their_requests_they_meet_no_other_and_keep_their_names(name, body):
    async def test() -> None:
        async with FakeEngine(1, pace_seconds=0.02).serving() as engine, fronting() as front:
            front.route(engine)
            path = "/v1/chat/completions" if "messages" in body else "/generate"
            asked = [asyncio.create_task(front.post(path, {**body, "rid": name})) for _ in range(2)]
            for status, said, headers in await asyncio.gather(*asked):
                assert status == 200, said
                assert set(re.findall(r'"id": ?"([^"]*)"', said.decode())) == {name}
                assert headers.get("X-Request-Id") == (name if name == "HEALTH_CHECK_1" else None)
            sent = [request["rid"] for request in engine.requests]
            assert name not in sent
            assert len(set(sent)) == 2

    run(test())


@pytest.mark.parametrize("body", [chat(), generate(), chat(n=2), generate(stream=False)])
def test_each_attempt_has_a_name_that_no_other_begins_with(body):
    async def test() -> None:
        async with FakeEngine(1, status=503).serving() as engine, fronting() as front:
            front.route(engine)
            path = "/v1/chat/completions" if "messages" in body else "/generate"
            asked = asyncio.create_task(front.post(path, {**body, "rid": "mine"}))
            await until(lambda: len(engine.requests) >= 3)
            engine.status = 200
            status, said, _ = await asked
            assert status == 200
            assert b'"mine"' in said
            sent = [request["rid"] for request in engine.requests]
            assert len({len(name) for name in sent}) == 1
            assert len(set(sent)) == len(sent)

    run(test())


@KINDS
def test_a_client_that_goes_away_cancels_its_engines_request(ask):
    async def test() -> None:
        async with FakeEngine(1, stalls_after=2).serving() as engine, fronting() as front:
            front.route(engine)
            asked = asyncio.create_task(front.ask(ask()))
            await until(lambda: any(stream.journal.forwarded for stream in front.proxy.streams))
            asked.cancel()
            await until(lambda: engine.cancelled == 1)
            await until(lambda: front.admission.in_flight == 0)
            assert front.counters.client_gone == 1
            assert not front.proxy.streams

    run(test())


def test_a_client_that_goes_as_soon_as_it_has_its_answer_has_its_answer():
    """The engine ends its own side a little later."""

    async def test() -> None:
        async with FakeEngine(1, pace_seconds=0.4).serving() as engine, fronting() as front:
            front.route(engine)
            host, port = front.address.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            body = json.dumps(generate(sampling_params={"max_new_tokens": 2})).encode()
            writer.write(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await asyncio.wait_for(reader.readuntil(b"data: [DONE]\n\n"), 10)
            writer.transport.abort()
            await until(lambda: front.admission.in_flight == 0)
            assert (front.counters.completed, front.counters.client_gone) == (1, 0)

    run(test())


def test_a_client_that_goes_away_while_its_stream_waits_leaves_nothing_behind():
    async def test() -> None:
        async with fronting() as front:
            asked = asyncio.create_task(front.ask(chat()))
            await until(lambda: front.counters.waiting == 1)
            asked.cancel()
            await until(lambda: front.admission.in_flight == 0)
            assert front.counters.waiting == 0

    run(test())


def test_an_event_of_megabytes_passes():
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            big = sse(
                {
                    "id": "mine",
                    "created": 1001,
                    "choices": [{"delta": {"content": "x" * 3_000_000}, "finish_reason": None}],
                }
            )
            engine.change = lambda step, piece: big + piece if step == 1 else piece
            held = await front.ask(chat(rid="mine"))
            assert len(held.text) > 3_000_000
            assert held.done == 1

    run(test())


def test_a_stream_that_never_ends_an_event_is_malformed(monkeypatch):
    async def test() -> None:
        monkeypatch.setattr("spec_toolkit.gateway.events.MOST_EVENT_BYTES", 10_000)
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            engine.change = lambda step, piece: b"x" * 20_000 if step else piece
            held = await front.ask(chat())
            assert [error["type"] for error in held.errors] == ["gateway.malformed-upstream"]

    run(test())


def test_a_slow_client_slows_its_engine_and_one_that_reads_nothing_loses_its_stream(monkeypatch):
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            big = sse(
                {"id": "mine", "created": 1, "choices": [{"delta": {"content": "x" * 500_000}, "finish_reason": None}]}
            )
            engine.change = lambda step, piece: big * 20 + piece
            host, port = front.address.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
            body = b'{"messages":[{"content":"x"}],"stream":true,"max_tokens":400}'
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            await until(lambda: any(stream.writing_since is not None for stream in front.proxy.streams))
            assert engine.open == 1
            monkeypatch.setattr("spec_toolkit.gateway.watch.UNREAD_SECONDS", 0.0)

            async def ended() -> None:
                while front.admission.in_flight:
                    await front.watch.round()
                    await asyncio.sleep(0.02)

            await asyncio.wait_for(ended(), 20)
            assert front.counters.reasons["gateway.too-slow"] == 1
            await until(lambda: engine.open == 0)
            writer.close()
            del reader

    run(test())
