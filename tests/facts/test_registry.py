"""Against a loopback server that answers as registries do; nothing here leaves the machine."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.registry import Reference, image_digest, parse_reference
from spec_toolkit.facts.web import is_loopback

DIGEST = "sha256:" + "d" * 64
MANIFEST = b'{"schemaVersion": 2}'
TOKEN = "let-me-read"  # noqa: S105 - of a fake registry
ISSUED = "Docker-Content-Digest"


ANSWERS: dict[str, tuple[int, bytes, dict[str, str]]] = {  # by image: status, body, headers
    "open": (200, MANIFEST, {ISSUED: DIGEST}),
    "asks": (200, MANIFEST, {ISSUED: DIGEST}),
    "silent": (200, MANIFEST, {}),
    "strange": (200, MANIFEST, {ISSUED: "sha512:00"}),
    "elsewhere": (401, b"", {"WWW-Authenticate": 'Bearer realm="http://registry.example/token"'}),
    "basic": (401, b"", {"WWW-Authenticate": 'Basic realm="me"'}),
    "moved": (307, b"", {"Location": "/v2/team/open/manifests/v1"}),
    "broken": (500, b"", {}),
}


class Registry(BaseHTTPRequestHandler):
    seen: list[tuple[str, str, str]] = []  # noqa: RUF012 - of this test's one server: method, path, authorization

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        self.seen.append((self.command, self.path, self.headers.get("Authorization", "")))
        address = urlsplit(self.path)
        if address.path == "/token":
            scope = parse_qs(address.query)["scope"][0]
            self.send(200, json.dumps({} if "closed" in scope else {"token": TOKEN}).encode())
            return
        name = address.path.removeprefix("/v2/team/").partition("/")[0]
        if name == "trickles":
            self.trickle()
        elif name in {"asks", "closed"} and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            here = f"http://{self.headers['Host']}/token"
            self.send(401, b"", {"WWW-Authenticate": f'Bearer realm="{here}",service="test"'})
        else:
            self.send(*ANSWERS.get(name, (404, b"", {})))

    def send(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def trickle(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        for _ in range(100):  # each packet comes in time, the answer never
            try:
                self.wfile.write(b"x")
                self.wfile.flush()
            except OSError:
                return
            time.sleep(0.1)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # a registry on this machine is asked past any proxy
    Registry.seen.clear()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        pytest.param("open", DIGEST, id="told-in-a-header"),
        pytest.param("asks", DIGEST, id="for-a-token"),
        pytest.param("silent", f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}", id="from-the-manifests-own-bytes"),
    ],
)
def test_a_tag_is_resolved_to_a_digest(registry: str, name: str, digest: str) -> None:
    assert image_digest(f"{registry}/team/{name}:v1") == digest


def test_a_token_is_for_reading_this_repository_and_goes_nowhere_else(registry: str) -> None:
    image_digest(f"{registry}/team/asks:v1")
    asked = [(method, path.partition("?")[0], bool(token)) for method, path, token in Registry.seen]
    manifest = "/v2/team/asks/manifests/v1"
    assert asked == [("HEAD", manifest, False), ("GET", "/token", False), ("HEAD", manifest, True)]
    assert "scope=repository%3Ateam%2Fasks%3Apull" in Registry.seen[1][1]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("nowhere", "has no such image, or hides it (it answered 404)", id="no-image"),
        pytest.param("basic", "has no such image, or hides it (it answered 401)", id="no-token-offered"),
        pytest.param(
            "elsewhere", "has no such image, or hides it (it answered 401)", id="near-miss-a-realm-in-the-clear"
        ),
        pytest.param("closed", "gives none", id="no-token-given"),
        pytest.param("broken", "answered 500", id="broken"),
        pytest.param("moved", "answered 307", id="redirect-not-followed"),
        pytest.param("strange", "answered without a sha256 digest", id="another-hash"),
    ],
)
def test_a_registry_that_does_not_tell_is_a_facts_error_in_words(registry: str, name: str, found: str) -> None:
    with pytest.raises(FactsError) as caught:
        image_digest(f"{registry}/team/{name}:v1")
    assert found in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_registry_that_trickles_is_not_waited_for(registry: str) -> None:
    began = time.monotonic()
    with pytest.raises(FactsError, match="did not answer within 1 s"):
        image_digest(f"{registry}/team/trickles:v1", deadline_seconds=1)
    assert time.monotonic() - began < 8


def test_nobody_there_is_said() -> None:
    with pytest.raises(FactsError, match="could not be asked"):
        image_digest("127.0.0.1:1/team/open:v1")


def test_a_written_digest_is_taken_at_its_word() -> None:
    assert image_digest(f"nowhere.example/team/open:v1@{DIGEST}") == DIGEST


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        pytest.param("lmsysorg/sglang:v0.5.23", ("docker.io", "lmsysorg/sglang", "v0.5.23"), id="no-registry"),
        pytest.param("ubuntu", ("docker.io", "library/ubuntu", "latest"), id="one-word"),
        pytest.param("a.example/team/x:1", ("a.example", "team/x", "1"), id="a-registry"),
        pytest.param("localhost/x", ("localhost", "x", "latest"), id="this-machine"),
        pytest.param("a:5000/x", ("a:5000", "x", "latest"), id="a-port-is-no-tag"),
        pytest.param("[::1]:5000/x", ("[::1]:5000", "x", "latest"), id="an-address"),
    ],
)
def test_a_name_is_read_as_registries_read_it(image: str, reference: tuple[str, str, str]) -> None:
    assert parse_reference(image) == Reference(*reference, digest=None)


@pytest.mark.parametrize(
    "image",
    [
        "",
        "/x",
        "A/B",
        "x:",
        "x:a b",
        "x@sha256:0",
        "x@",
        "a.example/",
        "x/../y",
        "a.example/x?y",
        "user@a.example/x",
        "x\n",
    ],
)
def test_what_is_no_name_is_refused_before_anybody_is_asked(image: str) -> None:
    assert parse_reference(image) is None
    with pytest.raises(FactsError, match=r"is no image's name"):
        image_digest(image)


@given(st.text(max_size=60))
def test_any_text_is_a_name_or_none(text: str) -> None:
    reference = parse_reference(text)
    if reference is not None:
        assert urlsplit(f"{reference.base}/v2/{reference.repository}/manifests/{reference.tag}").query == ""
        assert reference.base.startswith("https://") or is_loopback(reference.host)


@pytest.mark.parametrize(
    ("host", "base"),
    [
        pytest.param("127.0.0.1:5000/x", "http://127.0.0.1:5000", id="loopback"),
        pytest.param("localhost:5000/x", "http://localhost:5000", id="by-name"),
        pytest.param("x/y", "https://registry-1.docker.io", id="docker-hub"),
        pytest.param("127.0.0.1.example:5000/x", "https://127.0.0.1.example:5000", id="near-miss-a-name-like-loopback"),
        pytest.param("10.0.0.1:5000/x", "https://10.0.0.1:5000", id="near-miss-a-private-address"),
    ],
)
def test_only_this_machine_is_asked_in_the_clear(host: str, base: str) -> None:
    reference = parse_reference(host)
    assert reference is not None
    assert reference.base == base
