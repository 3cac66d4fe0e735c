"""Against a loopback server that answers as the hub does; nothing here leaves the machine."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.model import Origin, Weights
from spec_toolkit.facts.read_model import known_model, model_of_folder, read_model
from spec_toolkit.facts.tokenizer import tokenizer_hash
from tests.facts.test_checkpoint import TOKENIZER, write_weights

constants = pytest.importorskip("huggingface_hub.constants")

TABLES = load_tables()
COMMIT = "9b4e978" + "0" * 33
V3 = "deepseek-ai/DeepSeek-V3-0324"
CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_hidden_layers": 2,
    "num_nextn_predict_layers": 1,
    "hidden_size": 7168,
    "torch_dtype": "bfloat16",
}
INDEX = {
    "weight_map": {
        "model.layers.0.x": "model-00001-of-00001.safetensors",
        "model.layers.2.x": "model-00001-of-00001.safetensors",
    }
}
FILES: dict[str, Any] = {"config.json": CONFIG, "model.safetensors.index.json": INDEX, "tokenizer.json": TOKENIZER}
LISTED = [*FILES, "model-00001-of-00001.safetensors", "mtp.safetensors", "README.md"]


class Hub(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        if "/slow/" in path:
            time.sleep(3)
        if path.startswith("/api/models/org/model/"):
            self.answer({"id": "org/model", "sha": COMMIT, "siblings": [{"rfilename": name} for name in LISTED]})
        elif path.startswith("/api/models/org/unlike/"):
            self.answer(
                {
                    "id": "org/unlike",
                    "sha": COMMIT,
                    "siblings": [{"rfilename": "config.json"}, {"rfilename": "tokenizer.json"}],
                }
            )
        elif path == f"/org/model/resolve/{COMMIT}/{path.rpartition('/')[2]}" and path.rpartition("/")[2] in FILES:
            self.answer(FILES[path.rpartition("/")[2]])
        elif path == f"/org/unlike/resolve/{COMMIT}/config.json":
            self.answer(CONFIG)
        else:
            self.answer(
                {"error": "no"}, code=404, reason="RepoNotFound" if path.startswith("/api") else "EntryNotFound"
            )

    def answer(self, content: Any, code: int = 200, reason: str = "") -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha1(body, usedforsecurity=False).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if reason:
            self.send_header("X-Error-Code", reason)
        self.end_headers()
        if self.command == "GET":
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_text(json.dumps(content))
    write_weights(tmp_path / "model-00001-of-00001.safetensors", {"model.layers.0.x": 64, "model.layers.2.x": 32})
    return tmp_path


def test_the_hub_is_asked_only_where_it_may_be(hub: str) -> None:
    assert read_model("org/model", TABLES).origin is Origin.UNKNOWN
    assert read_model(V3, TABLES).origin is Origin.TABLE


def test_a_model_of_the_hub_is_read_at_a_commit_without_its_weights(hub: str, tmp_path: Path) -> None:
    model = read_model("org/model", TABLES, ask_hub=True)
    assert (model.origin, model.commit, model.name) == (Origin.HUB, COMMIT, "org/model")
    assert (model.architecture, model.hidden_size, model.weights) == ("DeepseekV3ForCausalLM", 7168, Weights.BF16)
    assert model.says == f"hub: config.json and the weight index at {COMMIT[:12]}"
    assert model.tensors is not None
    assert set(model.tensors) == set(INDEX["weight_map"])
    assert (model.weight_bytes, model.draft_weight_bytes) == (None, None), "an index has no sizes"
    assert model.tokenizer is not None
    assert model.tokenizer.startswith("sha256:")
    assert not list(tmp_path.rglob("*.safetensors"))


def test_weight_files_of_the_hub_that_the_index_does_not_name_are_told(hub: str) -> None:
    assert read_model("org/model", TABLES, ask_hub=True).unindexed_files == ("mtp.safetensors",)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param(V3, "; the hub has no such repository, or hides it", id="not-on-this-hub"),
        pytest.param("org/unlike", "; the hub answered 404", id="a-file-that-does-not-come"),
    ],
)
def test_a_hub_that_does_not_tell_leaves_the_table_and_says_so(hub: str, name: str, says: str) -> None:
    model = read_model(name, TABLES, ask_hub=True)
    assert model.origin is (Origin.TABLE if name == V3 else Origin.UNKNOWN)
    assert model.says.endswith(says)


def test_offline_the_table_answers_and_says_so(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    model = read_model(V3, TABLES, ask_hub=True)
    assert (model.origin, model.weight_bytes) == (Origin.TABLE, 688586727753)
    assert "; the hub could not be asked" in model.says


def test_offline_the_hubs_cache_answers_before_the_table(
    hub: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read_model("org/model", TABLES, ask_hub=True)
    (tmp_path / "models--org--model/refs").mkdir(parents=True, exist_ok=True)
    (tmp_path / "models--org--model/refs/main").write_text(COMMIT)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    model = read_model("org/model", TABLES, ask_hub=True)
    assert (model.origin, model.commit, model.hidden_size) == (Origin.HUB, COMMIT, 7168)


def test_a_hub_that_is_slow_is_not_waited_for(hub: str) -> None:
    began = time.monotonic()
    model = read_model("org/slow", TABLES, ask_hub=True, deadline_seconds=0.5)
    assert time.monotonic() - began < 3
    assert model.says == "unknown: not in the tables; the hub did not answer within 0.5 s"


def test_a_folder_is_read_with_the_sizes_of_its_tensors(folder: Path) -> None:
    model = read_model(str(folder), TABLES)
    assert (model.origin, model.name) == (Origin.FOLDER, str(folder))
    assert (model.weight_bytes, model.draft_weight_bytes) == (96, 32)
    assert model.says == "folder: config.json and the weight files"
    assert model.tokenizer == tokenizer_hash(folder)
    assert model.unindexed_files == ()


def test_a_weight_file_beside_the_index_is_told(folder: Path) -> None:
    write_weights(folder / "mtp.safetensors", {"model.layers.2.y": 1})
    assert model_of_folder(folder).unindexed_files == ("mtp.safetensors",)


def test_near_miss_without_an_index_every_file_is_loaded(folder: Path) -> None:
    (folder / "model.safetensors.index.json").unlink()
    write_weights(folder / "mtp.safetensors", {"model.layers.2.y": 1})
    assert model_of_folder(folder).unindexed_files == ()


def test_a_folder_that_is_being_filled_is_read_as_far_as_it_is_there(folder: Path) -> None:
    (folder / "model-00001-of-00001.safetensors").unlink()
    (folder / "tokenizer.json").unlink()
    model = model_of_folder(folder)
    assert (model.weight_bytes, model.tokenizer, model.tensors is not None) == (None, None, True)
    (folder / "model.safetensors.index.json").unlink()
    assert model_of_folder(folder).tensors is None


def test_a_second_file_says_how_it_is_quantised(folder: Path) -> None:
    said = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    (folder / "hf_quant_config.json").write_text(json.dumps(said))
    model = model_of_folder(folder)
    assert model.quantization is not None
    assert (model.weights, model.quantization.kv_cache) == (Weights.NVFP4, "FP8")


@pytest.mark.parametrize(
    ("name", "found"),
    [("/nowhere", "no such folder"), ("./tests", "config.json: no such file")],
    ids=["gone", "no-config"],
)
def test_a_folder_that_is_none_is_an_error(name: str, found: str) -> None:
    with pytest.raises(FactsError, match=found):
        read_model(name, TABLES)


@pytest.mark.parametrize("repo", [repo for model in TABLES.models.values() for repo in model.checkpoints])
def test_a_known_model_has_what_the_table_has(repo: str) -> None:
    model, checkpoint = known_model(repo, TABLES), TABLES.checkpoint(repo)
    assert checkpoint is not None
    assert (model.weights, model.weight_bytes) == (checkpoint.weights.v, checkpoint.bytes.v)
    assert model.shape is not None
    assert model.says.startswith("table: ")
    assert (model.tensors, model.tokenizer, model.commit) == (None, None, None)


def test_what_the_table_does_not_know_of_a_checkpoint_is_none() -> None:
    unknown, none = known_model("amd/GLM-5.2-MXFP4", TABLES), known_model("zai-org/GLM-5.2", TABLES)
    assert (unknown.quantization, unknown.weight_bytes, unknown.draft_weights) == (None, None, None)
    assert "unknown: bytes, draft" in unknown.says
    assert none.quantization is not None
    assert none.quantization.method is None
