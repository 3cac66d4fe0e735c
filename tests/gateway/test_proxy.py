"""Who is let in, what is made again, which paths there are."""

import asyncio
import gzip
import io
import json

import pytest

from spec_toolkit.gateway.proxy import _ONE_MODEL, body_bound
from tests.gateway.client_side import fold
from tests.gateway.fake_engine import FakeEngine, answer_ids, text_of
from tests.gateway.front import TOKENS, chat, check_whole, error_of, fronting, generate, run, until

KINDS = pytest.mark.parametrize("ask", [chat, generate])


def path_of(body: dict[str, object]) -> str:
    return "/v1/chat/completions" if "messages" in body else "/generate"


def text_in(said: bytes) -> str:
    answer = json.loads(said)
    return str(answer["choices"][0]["message"]["content"] if "choices" in answer else answer["text"])


@KINDS
def test_an_answer_that_is_not_streamed_is_the_engines_own(ask):
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            body = ask(stream=False)
            status, said, _ = await front.post(path_of(body), body)
            assert (status, text_in(said)) == (200, text_of(answer_ids("hello", TOKENS)))
            assert engine.requests == [body]

    run(test())


@KINDS
def test_an_answer_that_is_not_streamed_is_made_again_at_the_next_engine(ask):
    async def test() -> None:
        async with FakeEngine(1, pace_seconds=30).serving() as a, FakeEngine(2).serving() as b, fronting() as front:
            front.route(a)
            body = ask(stream=False)
            asked = asyncio.create_task(front.post(path_of(body), body))
            await until(lambda: a.open == 1)
            await a.kill()
            await until(lambda: bool(front.counters.losses))
            front.route(b)
            status, said, _ = await asked
            assert (status, text_in(said)) == (200, text_of(answer_ids("hello", TOKENS)))
            assert front.counters.remade == 1
            assert b.requests == [body]

    run(test())


@KINDS
def test_an_answer_that_is_not_streamed_has_the_same_deadline(ask):
    async def test() -> None:
        async with FakeEngine(1, pace_seconds=30).serving() as engine, fronting(deadline=0.3) as front:
            front.route(engine)
            body = ask(stream=False)
            asked = asyncio.create_task(front.post(path_of(body), body))
            await until(lambda: engine.open == 1)
            await engine.kill()
            status, said, headers = await asked
            assert (status, error_of(said)["type"]) == (503, "gateway.no-engine")
            assert int(headers["Retry-After"]) >= 1

    run(test())


def test_one_more_than_may_be_in_flight_is_told_when_to_come_again():
    async def test() -> None:
        async with FakeEngine(1, stalls_after=2).serving() as engine, fronting(running=2, waiting=3) as front:
            front.route(engine)
            asked = [asyncio.create_task(front.ask(chat())) for _ in range(5)]
            await until(lambda: engine.open == 5)
            status, said, headers = await front.post("/v1/chat/completions", chat())
            assert (status, error_of(said)["type"]) == (429, "gateway.overloaded")
            assert 1 <= int(headers["Retry-After"]) <= 60
            assert len(engine.requests) == 5
            assert front.counters.reasons["gateway.overloaded"] == 1
            asked[0].cancel()
            await until(lambda: front.admission.in_flight == 4)
            asked.append(asyncio.create_task(front.ask(chat())))
            await until(lambda: engine.open == 5)
            for task in asked:
                task.cancel()
            await until(lambda: front.admission.in_flight == 0)

    run(test())


def test_while_no_engine_serves_requests_wait_within_the_caps_and_then_are_answered():
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting(running=2, waiting=2) as front:
            asked = [asyncio.create_task(front.ask(chat(f"p{n}"))) for n in range(4)]
            await until(lambda: front.counters.waiting == 4)
            assert (await front.post("/generate", generate()))[0] == 429
            assert (await front.get("/health"))[0] == 503
            front.route(engine)
            for number, held in enumerate(await asyncio.gather(*asked)):
                check_whole(held, f"p{number}")
            assert front.counters.waiting == 0
            assert (await front.get("/health"))[0] == 200

    run(test())


def test_resumed_streams_pass_those_that_wait():
    async def test() -> None:
        async with (
            FakeEngine(1, stalls_after=3).serving() as a,
            FakeEngine(2).serving() as b,
            fronting(running=8, waiting=64) as front,
        ):
            front.route(a)
            early = [asyncio.create_task(front.ask(chat(f"early {n}"))) for n in range(8)]
            await until(lambda: sum(stream.journal.forwarded > 0 for stream in front.proxy.streams) == 8)
            front.route(None, lost=True)
            late = [asyncio.create_task(front.ask(chat(f"late {n}"))) for n in range(20)]
            await until(lambda: front.counters.waiting == 28)
            front.route(b)
            for number, held in enumerate(await asyncio.gather(*early)):
                check_whole(held, f"early {number}")
            await asyncio.gather(*late)
            order = [body["messages"][0]["content"].split()[0] for body in b.requests]
            assert order == ["early"] * 8 + ["late"] * 20

    run(test())


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        pytest.param("/server_info", 403, "gateway.admin-only", id="looks-into-an-engine"),
        pytest.param("/metrics", 403, "gateway.admin-only", id="an-engines-metrics"),
        pytest.param("/set_internal_state", 403, "gateway.admin-only", id="the-knob"),
        pytest.param("/update_weights_from_disk", 403, "gateway.admin-only", id="weights"),
        pytest.param("/flush_cache", 404, "gateway.not-served", id="any-other"),
        pytest.param("/generate/", 404, "gateway.not-served", id="nearly-a-path"),
        pytest.param("//generate", 404, "gateway.not-served", id="twice-a-slash"),
        pytest.param("/v1/models/../../server_info", 404, "gateway.not-served", id="climbs"),
        pytest.param("/v1/models/%2e%2e/server_info", 404, "gateway.not-served", id="climbs-in-disguise"),
        pytest.param("/v1/models/%2e%2e%2fserver_info", 404, "gateway.not-served", id="climbs-well-disguised"),
    ],
)
def test_other_paths_reach_no_engine(path, status, kind):
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            host, port = front.address.removeprefix("http://").split(":")
            for method in ("GET", "POST"):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(
                    f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
                )
                said = await asyncio.wait_for(reader.read(), 10)
                writer.close()
                assert int(said.split()[1]) == status
                assert error_of(said.split(b"\r\n\r\n", 1)[1])["type"] == kind
            assert engine.headers == []

    run(test())


def test_harmless_paths_are_passed_on():
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            status, said, _ = await front.get("/health")
            assert status == 503
            front.route(engine)
            status, said, _ = await front.get("/model_info")
            assert (status, json.loads(said)["engine"]) == (200, 1)
            status, said, _ = await front.post("/v1/completions", {"prompt": "hello", "max_tokens": 4, "stream": True})
            assert status == 200
            assert said.endswith(b"data: [DONE]\n\n")
            assert (await front.get("/generate"))[0] == 404

    run(test())


def test_an_engine_is_told_no_authorization():
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            await front.post("/generate", generate(stream=False), Authorization="Bearer admin", traceparent="00-1-1-01")
            await front.post("/v1/chat/completions", chat(), Authorization="Bearer admin")
            for headers in engine.headers:
                assert "Authorization" not in headers
            assert engine.headers[0]["traceparent"] == "00-1-1-01"

    run(test())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"text"', b"\xff"])
def test_what_is_no_request_is_refused_here(body):
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            async with front.session.post(front.address + "/generate", data=body) as answer:
                assert (answer.status, error_of(await answer.read())["type"]) == (400, "gateway.bad-request")
            assert engine.requests == []
            assert front.admission.in_flight == 0

    run(test())


def test_a_body_beyond_the_bound_is_refused_and_one_that_does_not_come_is_given_up(monkeypatch):
    async def test() -> None:
        monkeypatch.setattr("spec_toolkit.gateway.proxy.MOST_BODY_BYTES", 1000)
        monkeypatch.setattr("spec_toolkit.gateway.proxy.BODY_SECONDS", 0.1)
        async with fronting() as front:
            async with front.session.post(front.address + "/generate", data=b"x" * 5000) as answer:
                assert (answer.status, error_of(await answer.read())["type"]) == (413, "gateway.too-large")
            host, port = front.address.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
            said = await asyncio.wait_for(reader.readuntil(b"}}"), 10)
            assert b" 408 " in said
            assert b"gateway.too-slow" in said
            writer.close()
            await until(lambda: front.admission.in_flight == 0)

    run(test())


@pytest.mark.parametrize("path", ["/generate", "/v1/chat/completions", "/tokenize"])
@pytest.mark.parametrize("body", [b"nothing of the kind", b"\x1f\x8b\x08" + b"\xff" * 20], ids=["none", "broken"])
def test_a_body_that_is_not_what_its_encoding_says_is_the_clients_fault(path, body):
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            headers = {"Content-Encoding": "gzip"}
            async with front.session.post(front.address + path, data=body, headers=headers) as answer:
                assert (answer.status, error_of(await answer.read())["type"]) == (400, "gateway.bad-request")
            assert engine.requests == []
            assert not front.counters.reasons["gateway.defect"]
            good = gzip.compress(json.dumps(chat()).encode())
            url = front.address + "/v1/chat/completions"
            async with front.session.post(url, data=good, headers=headers) as answer:
                check_whole(fold(await answer.read()))

    run(test())


@KINDS
def test_a_stream_of_null_is_one_that_is_left_out(ask):
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            body = ask(stream=None)
            status, said, _ = await front.post(path_of(body), body)
            assert (status, text_in(said)) == (200, text_of(answer_ids("hello", TOKENS)))
            assert "stream" not in engine.requests[0]

    run(test())


@pytest.mark.filterwarnings("ignore:Sending a large body")  # to an engine on this machine, in one write
def test_a_text_that_cannot_fit_the_context_reaches_no_engine_to_be_tokenised_there():
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting(context=4096) as front:
            front.route(engine)
            most = (1 << 20) + 64 * 4096
            for ask in (chat, generate):
                body = io.BytesIO(json.dumps(ask("x" * most)).encode())
                async with front.session.post(front.address + path_of(ask()), data=body) as answer:
                    assert answer.status == 413
                    said = error_of(await answer.read())
                assert said["type"] == "gateway.too-large"
                assert "1,310,720 bytes" in said["message"]
                assert "4,096 tokens" in said["message"]
            assert engine.requests == []
            fits = "x" * (most - 1000)
            body = io.BytesIO(json.dumps(chat(fits)).encode())
            async with front.session.post(front.address + path_of(chat()), data=body) as answer:
                check_whole(fold(await answer.read()), fits)

    run(test())


@pytest.mark.parametrize(
    ("context_tokens", "most"),
    [(1, (1 << 20) + 64), (131_072, 9 << 20), (507_904, 32 << 20), (507_905, 32 << 20), (1 << 40, 32 << 20)],
)
def test_the_bound_of_a_body_is_that_of_the_context_or_of_all(context_tokens, most):
    assert body_bound(context_tokens)[0] == most


async def unfinished(address: str, path: str = "/generate") -> asyncio.StreamWriter:
    host, port = address.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc".encode())
    return writer


def test_requests_that_do_not_arrive_take_no_place_of_those_that_have(monkeypatch):
    async def test() -> None:
        monkeypatch.setattr("spec_toolkit.gateway.proxy.MOST_ARRIVING", 4)
        async with FakeEngine(1).serving() as engine, fronting(running=2, waiting=2) as front:
            front.route(engine)
            slow = [await unfinished(front.address) for _ in range(4)]
            await until(lambda: front.proxy._arriving._left == 0)
            check_whole(await front.ask(chat()))
            assert front.admission.in_flight == 0
            writer = await unfinished(front.address)
            await until(lambda: front.counters.reasons["gateway.overloaded"] == 1)
            for each in (writer, *slow):
                each.transport.abort()
            await until(lambda: front.proxy._arriving._left == 4)
            assert front.counters.client_gone == 4
            assert not front.counters.reasons["gateway.defect"]
            big = chat("x" * 500_000)
            check_whole(await front.ask(big), "x" * 500_000)

    run(test())


def test_where_a_request_would_be_refused_its_body_is_not_waited_for():
    async def test() -> None:
        async with FakeEngine(1, stalls_after=2).serving() as engine, fronting(running=1, waiting=0) as front:
            front.route(engine)
            asked = asyncio.create_task(front.ask(chat()))
            await until(lambda: engine.open == 1)
            writer = await unfinished(front.address)
            await until(lambda: front.counters.reasons["gateway.overloaded"] == 1)
            writer.transport.abort()
            asked.cancel()

    run(test())


def test_questions_are_answered_a_few_at_once_and_are_short(monkeypatch):
    async def test() -> None:
        monkeypatch.setattr("spec_toolkit.gateway.proxy.MOST_ASKED", 2)
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            slow = [await unfinished(front.address, "/tokenize") for _ in range(2)]
            await until(lambda: front.proxy._asked._left == 0)
            status, said, headers = await front.post("/tokenize", {"prompt": "x"})
            assert (status, error_of(said)["type"], headers["Retry-After"]) == (429, "gateway.overloaded", "1")
            check_whole(await front.ask(chat()))
            for each in slow:
                each.transport.abort()
            await until(lambda: front.proxy._asked._left == 2)
            async with front.session.post(front.address + "/tokenize", data=io.BytesIO(b"x" * (2 << 20))) as answer:
                assert (answer.status, error_of(await answer.read())["type"]) == (413, "gateway.too-large")
            assert (await front.get("/model_info"))[0] == 200

    run(test())


def test_nothing_is_taken_while_those_in_flight_are_let_end():
    async def test() -> None:
        async with FakeEngine(1, pace_seconds=0.02).serving() as engine, fronting() as front:
            front.route(engine)
            asked = asyncio.create_task(front.ask(chat()))
            await until(lambda: engine.open == 1)
            front.proxy.draining = True
            for body in (chat(), generate(), chat(stream=False)):
                status, said, _ = await front.post(path_of(body), body)
                assert (status, error_of(said)["type"]) == (503, "gateway.stopping")
            assert (await front.get("/health"))[0] == 503
            check_whole(await asked)
            assert len(engine.requests) == 1

    run(test())


def test_a_client_that_waits_to_send_its_body_is_told_to():
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            host, port = front.address.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            body = json.dumps(chat()).encode()
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            writer.write(b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
            assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10) == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(body)
            said = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            assert said.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"data: [DONE]" in said

    run(test())


@KINDS
def test_an_answer_that_the_engine_gave_up_is_no_answer(ask):
    async def test() -> None:
        async with FakeEngine(1, aborts=2).serving() as engine, fronting() as front:
            front.route(engine)
            body = ask(stream=False)
            status, said, _ = await front.post(path_of(body), body)
            assert (status, text_in(said)) == (200, text_of(answer_ids("hello", TOKENS)))
            assert len(engine.requests) == 3
            assert front.counters.losses == {"aborted": 2}

    run(test())


def test_counters_are_told_and_hold_nothing_of_a_prompt():
    async def test() -> None:
        async with FakeEngine(1).serving() as engine, fronting() as front:
            front.route(engine)
            await front.ask(chat("a secret word"))
            status, said, _ = await front.get("/gateway")
            told = json.loads(said)
            assert (status, told["completed"], told["in_flight"], told["cap"]) == (200, 1, 0, 128)
            status, text, _ = await front.get("/gateway/metrics")
            assert b"spec_toolkit_gateway_completed_total 1\n" in text
            assert b"secret" not in said + text

    run(test())


@pytest.mark.parametrize(
    ("path", "passes"),
    [
        ("/v1/models/model", True),
        ("/v1/models/org/a.model:v1", True),
        ("/v1/models/..model", True),
        ("/v1/models/", False),
        ("/v1/models/..", False),
        ("/v1/models/../x", False),
        ("/v1/models/a/../x", False),
        ("/v1/models/a/.", False),
        ("/v1/models/a?b", False),
        ("/v1/models/a%2e", False),
    ],
)
def test_names_of_models_do_not_climb(path, passes):
    assert bool(_ONE_MODEL.fullmatch(path)) is passes
