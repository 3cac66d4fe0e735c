"""A recipe is pinned against one loopback server that answers as the hub and as a registry do; nothing here leaves the machine."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner

from spec_toolkit.cli.pin import command
from spec_toolkit.errors import RecipeError
from spec_toolkit.facts.tokenizer import tokenizer_hash
from spec_toolkit.launch import pinning
from spec_toolkit.launch.pinning import find_pins, write_pins
from spec_toolkit.recipe.load import load_recipe
from spec_toolkit.shipped import rehearsal, shipped

constants = pytest.importorskip("huggingface_hub.constants")

COMMITS = {"org/model": "1" * 40, "org/draft": "a" * 39 + "1", "org/bare": "b" * 40, "org/flaky": "c" * 40}
DIGEST = "sha256:" + "d" * 64
TOKENIZER = json.dumps({"model": {"vocab": {"a": 0, "b": 1}, "merges": []}, "added_tokens": []}).encode()
FILES = {
    "org/model": {"tokenizer.json": TOKENIZER, "chat_template.jinja": b"{{ messages }}"},
    "org/flaky": {"tokenizer.json": TOKENIZER},
}
MISSING = {"org/flaky": ["chat_template.jinja"]}  # that the hub lists and does not give


class World(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        if path.startswith("/v2/team/engine/"):
            self.send(200, b"{}", {"Docker-Content-Digest": DIGEST})
        elif path.startswith("/api/models/"):
            repo = "/".join(path.split("/")[3:5])
            names = (*FILES.get(repo, ()), *MISSING.get(repo, ()))
            told = {"id": repo, "sha": COMMITS.get(repo), "siblings": [{"rfilename": name} for name in names]}
            if "/tree/" in path:
                told = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in names]
            self.send(200 if repo in COMMITS else 404, json.dumps(told).encode())
        else:
            self.file(*path.strip("/").split("/resolve/"))

    def do_HEAD(self) -> None:
        self.do_GET()

    def file(self, repo: str, rest: str = "") -> None:
        commit, _, name = rest.partition("/")
        body = FILES.get(repo, {}).get(name)
        if name in MISSING.get(repo, ()):
            self.send(403, b"")
        elif body is None or commit != COMMITS[repo]:
            self.send(404, b"", {"X-Error-Code": "EntryNotFound"})
        else:
            self.send(200, body, {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Repo-Commit": commit})

    def send(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), World)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    host = f"127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", f"http://{host}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pinning, "_ENGINE_IMAGE", f"{host}/team/engine")
    yield host
    server.shutdown()
    thread.join()
    server.server_close()


BASE = """\
# Why this is here.
summary: A test.

target:
  model: org/model   # the served one

draft: {method: frozen_kv_mtp, model: org/draft, num_steps: 3}  # one line
hardware: {gpu: h200, count: 8, layout: {tp: 8}}
engine:
  sglang: 0.5.23
limits: {max_running_requests: 8, context_tokens: 4096}
"""


def write(folder: Path, text: str = BASE) -> Path:
    path = folder / "model_h200.yaml"
    path.write_text(text)
    return path


def test_every_open_pin_is_found_and_written_and_nothing_else_changes(world: str, tmp_path: Path) -> None:
    path = write(tmp_path)
    path.chmod(0o640)
    found = write_pins(path)
    assert (found.open, found.kept, found.written) == ((), (), True)
    recipe = load_recipe(path).recipe
    (tmp_path / "model").mkdir()
    for name, content in FILES["org/model"].items():
        (tmp_path / "model" / name).write_bytes(content)
    assert recipe.target.revision == COMMITS["org/model"]
    assert recipe.draft.revision == COMMITS["org/draft"]
    assert recipe.target.tokenizer == tokenizer_hash(tmp_path / "model")
    assert recipe.engine.image == f"{world}/team/engine:v0.5.23@{DIGEST}"
    unchanged = [line for line in BASE.splitlines() if "draft" not in line]
    assert [line for line in path.read_text().splitlines() if line in unchanged] == unchanged
    assert "# one line" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_a_second_time_everything_is_kept_and_the_file_is_not_touched(world: str, tmp_path: Path) -> None:
    path = write(tmp_path)
    write_pins(path)
    before = path.read_bytes(), path.stat().st_ino
    again = write_pins(path)
    assert set(again.kept) == {"target.revision", "target.tokenizer", "draft.revision", "engine.image"}
    assert (again.pins, again.open, again.written) == ((), (), False)
    assert (path.read_bytes(), path.stat().st_ino) == before


@pytest.mark.parametrize(
    ("old", "new", "still_open", "written"),
    [
        pytest.param(
            "org/draft", "org/nowhere", ["org/nowhere@main"], {"target.revision", "target.tokenizer"}, id="no-draft"
        ),
        pytest.param(
            "org/model ", "org/nowhere ", ["org/nowhere@main", "org/nowhere"], {"draft.revision"}, id="no-target"
        ),
        pytest.param(
            "org/model ",
            "org/bare ",
            [f"org/bare@{'b' * 12}"],
            {"target.revision", "draft.revision"},
            id="no-tokenizer",
        ),
        pytest.param(
            "org/model ",
            "org/flaky ",
            [f"org/flaky@{'c' * 12}"],
            {"target.revision", "draft.revision"},
            id="a-template-that-could-not-be-seen",
        ),
        pytest.param(
            "0.5.23\n",
            "0.5.23\n  image: nobody.invalid.localhost:1/x:1\n",
            ["nobody.invalid.localhost:1/x:1"],
            {"target.revision", "target.tokenizer", "draft.revision"},
            id="no-registry",
        ),
    ],
)
def test_what_nobody_tells_stays_open_and_says_why(
    world: str, tmp_path: Path, old: str, new: str, still_open: list[str], written: set[str]
) -> None:
    path = write(tmp_path, BASE.replace(old, new))
    found = write_pins(path)
    assert [finding.where for finding in found.open] == still_open
    assert {pin.key for pin in found.pins} - {"engine.image"} == written
    assert all(finding.remedy for finding in found.open)
    load_recipe(path)


def test_a_tokenizer_is_that_of_the_commit_which_is_pinned_already(world: str, tmp_path: Path) -> None:
    pinned = BASE.replace("org/model   #", f"org/model\n  revision: '{COMMITS['org/model']}'   #")
    found = find_pins(write(tmp_path, pinned))
    assert found.kept == ("target.revision",)
    assert "target.tokenizer" in {pin.key for pin in found.pins}
    another = find_pins(write(tmp_path, pinned.replace(COMMITS["org/model"], "f" * 40)))
    assert [finding.where for finding in another.open] == [f"org/model@{'f' * 12}"]


def test_a_cache_that_may_be_behind_the_hub_pins_nothing(
    world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache" / "models--org--model"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs/main").write_text("e" * 40)
    (cache / "snapshots" / ("e" * 40)).mkdir(parents=True)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    found = find_pins(write(tmp_path))
    assert not {pin.key for pin in found.pins} & {"target.revision", "target.tokenizer"}
    assert "may be behind it" in found.open[0].sentence()


def test_a_dry_run_shows_the_lines_and_writes_nothing(world: str, tmp_path: Path) -> None:
    path = write(tmp_path)
    answer = CliRunner().invoke(command, [str(path), "--dry-run"], standalone_mode=False)
    assert answer.return_value == 0
    assert f"target.revision: {COMMITS['org/model']}" in answer.stdout
    assert "4 pins found, nothing written" in answer.stdout
    assert path.read_text() == BASE


def test_the_command_says_what_stays_open_and_ends_with_3(world: str, tmp_path: Path) -> None:
    path = write(tmp_path, BASE.replace("org/draft", "org/nowhere"))
    answer = CliRunner().invoke(command, [str(path), "--json"], standalone_mode=False)
    assert answer.return_value == 3
    told = json.loads(answer.stdout)
    assert [finding["where"] for finding in told["open"]] == ["org/nowhere@main"]
    assert told["written"] is True


def test_a_mark_and_a_windows_line_end_stay(world: str, tmp_path: Path) -> None:
    path = tmp_path / "model_h200.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode())
    write_pins(path)
    assert path.read_bytes().startswith(b"\xef\xbb\xbf#")
    assert path.read_bytes().count(b"\n") == path.read_bytes().count(b"\r\n")


def test_a_link_stays_a_link(world: str, tmp_path: Path) -> None:
    path = write(tmp_path)
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    write_pins(link)
    assert link.is_symlink()
    assert load_recipe(path).recipe.target.revision == COMMITS["org/model"]


def test_a_file_that_somebody_else_writes_meanwhile_is_left_to_them(
    world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path)
    theirs = BASE.replace("A test", "Another test")

    def slow(image: str) -> str:
        path.write_text(theirs)
        return DIGEST

    monkeypatch.setattr(pinning, "image_digest", slow)
    with pytest.raises(RecipeError, match="written by somebody else"):
        write_pins(path)
    assert path.read_text() == theirs
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_a_folder_is_pinned_by_its_content(world: str, tmp_path: Path) -> None:
    shipped_recipe = shipped("recipes") / "rehearsal" / "deepseek_v3_cpu.yaml"
    pinned = load_recipe(shipped_recipe)
    path = tmp_path / "deepseek_v3_cpu.yaml"
    lines = pinned.text.splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith(("  revision:", "  tokenizer:"))))
    assert {pin.key for pin in write_pins(path).pins} == {"target.revision", "target.tokenizer"}
    assert load_recipe(path).recipe == pinned.recipe
    assert (rehearsal() / "models").is_dir()
