"""Against a loopback server that answers as the hub does; nothing here leaves the machine."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.hub import Origin, resolve_revision

constants = pytest.importorskip("huggingface_hub.constants")

COMMIT = "9b4e978" + "0" * 33
OTHER = "1" * 40
BODIES = {
    "/api/models/org/model/revision/main": {"id": "org/model", "sha": COMMIT},
    "/api/models/org/model/revision/v1.0": {"id": "org/model", "sha": OTHER},
    "/api/models/org/strange/revision/main": {"id": "org/strange", "sha": "main"},
}
CODES = {
    "private": (401, "RepoNotFound"),
    "gated": (403, "GatedRepo"),
    "norevision": (404, "RevisionNotFound"),
    "broken": (500, ""),
}


class Hub(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        if "/slow/" in path:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            for _ in range(100):  # trickles: each packet comes in time, the answer never
                try:
                    self.wfile.write(b" ")
                    self.wfile.flush()
                except OSError:
                    return
                time.sleep(0.1)
            return
        name = path.split("/")[4]
        code, reason = (200, "") if path in BODIES else CODES.get(name, (404, "RepoNotFound"))
        body = b"<html>" if name == "html" else json.dumps(BODIES.get(path, {"error": "no"})).encode()
        self.send_response(200 if name == "html" else code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if reason:
            self.send_header("X-Error-Code", reason)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    yield address
    server.shutdown()
    thread.join()
    server.server_close()


def put_in_cache(cache: Path, commit: str, *, with_files: bool = True) -> None:
    folder = cache / "models--org--model"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text(commit)
    if with_files:
        (folder / "snapshots" / commit).mkdir(parents=True)


@pytest.mark.parametrize(
    ("revision", "commit"), [(None, COMMIT), ("main", COMMIT), ("v1.0", OTHER)], ids=["open", "branch", "tag"]
)
def test_what_is_not_a_commit_is_resolved_to_one(hub: str, revision: str | None, commit: str) -> None:
    resolved = resolve_revision("org/model", revision)
    assert (resolved.commit, resolved.origin) == (commit, Origin.HUB)


def test_a_commit_is_taken_at_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert resolve_revision("org/model", OTHER).origin is Origin.PIN


@pytest.mark.parametrize(
    ("repo", "found"),
    [
        pytest.param("org/nowhere", "the hub has no such repository, or hides it", id="no-repository"),
        pytest.param("org/private", "the hub has no such repository, or hides it", id="private"),
        pytest.param("org/gated", "the hub asks for a permission", id="gated"),
        pytest.param("org/norevision", "the hub has no such revision", id="no-revision"),
        pytest.param("org/broken", "the hub answered 500", id="broken"),
        pytest.param("org/strange", "the hub answered without a commit", id="no-commit"),
        pytest.param("org/html", "the hub could not be asked (JSONDecodeError)", id="not-the-hub"),
    ],
)
def test_a_hub_that_does_not_tell_is_a_facts_error_in_words(hub: str, repo: str, found: str) -> None:
    with pytest.raises(FactsError) as caught:
        resolve_revision(repo, None)
    assert str(caught.value).startswith(f"{repo}@main: {found}; without a commit nobody could say what was deployed.")
    assert caught.value.exit_code == 3


def test_a_hub_that_trickles_is_not_waited_for(hub: str) -> None:
    began = time.monotonic()
    with pytest.raises(FactsError, match=r"did not answer within 1 s"):
        resolve_revision("org/slow", None, deadline_seconds=1)
    assert time.monotonic() - began < 8


def test_without_a_network_the_cache_answers_and_says_so(
    hub: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    put_in_cache(tmp_path, OTHER)
    assert resolve_revision("org/model", None).origin is Origin.CACHE
    assert resolve_revision("org/model", None).commit == OTHER


def test_the_hub_is_believed_before_the_cache(hub: str, tmp_path: Path) -> None:
    put_in_cache(tmp_path, OTHER)
    assert resolve_revision("org/model", None).commit == COMMIT


def test_offline_mode_asks_only_the_cache(hub: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(FactsError, match="HF_HUB_OFFLINE forbids to ask the hub"):
        resolve_revision("org/model", None)
    put_in_cache(tmp_path, OTHER)
    assert resolve_revision("org/model", None).origin is Origin.CACHE


def test_a_reference_whose_files_are_gone_is_no_answer(
    hub: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    put_in_cache(tmp_path, OTHER, with_files=False)
    with pytest.raises(FactsError, match="could not be asked"):
        resolve_revision("org/model", None)


def test_a_no_of_the_hub_is_not_overruled_by_the_cache(hub: str, tmp_path: Path) -> None:
    (tmp_path / "models--org--gated/refs").mkdir(parents=True)
    (tmp_path / "models--org--gated/refs/main").write_text(OTHER)
    (tmp_path / "models--org--gated/snapshots" / OTHER).mkdir(parents=True)
    with pytest.raises(FactsError, match="asks for a permission"):
        resolve_revision("org/gated", None)
