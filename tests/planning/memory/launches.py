"""Launches whose pools are counted twice: by us, and by the engine's own code in a child process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.facts.config_json import config_json
from spec_toolkit.facts.known import load_tables
from spec_toolkit.facts.read_model import known_model
from spec_toolkit.facts.records import ModelFacts
from spec_toolkit.planning.situation import Pins, Site, Situation
from tests.launch.engine_says import as_argv

ROOT = Path(__file__).resolve().parents[3]
TABLES = load_tables()
TARGETS = {name: facts for name, facts in TABLES.models.items() if facts.drafts_for is None}
HOPPER, BLACKWELL = "h200", "b200"
CHAIN = {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    name: str
    situation: Situation

    def question(self) -> dict:
        situation = self.situation
        facts = situation.site.facts
        repos = [situation.target.name] + ([situation.draft.name] if situation.draft else [])
        quantization = situation.target.quantization
        return {
            "files": {f"{repo}/config.json": config_json(repo, TABLES) for repo in repos},
            "arguments": [*as_argv(situation.arguments), "--skip-tokenizer-init"],
            "gpu": {
                "name": facts.name.v,
                "capability": facts.compute_capability.v,
                "memory_mib": facts.memory_mib.v,
                "multiprocessors": facts.multiprocessors.v,
                "count": 8,
            },
            "kv_cache_quant_algo": quantization.kv_cache if quantization else None,
        }


def launch(facts: ModelFacts, gpu: str, *, speculates: bool, repo: str | None = None, **more) -> Launch:
    """One of the models of the tables, on one node."""
    repo = repo or facts.repo.v
    assistant = next((found for found in TABLES.models.values() if _drafts_for(found, facts)), None)
    asked = {"model_path": repo, "tp_size": 1 if assistant else 8, "max_running_requests": 48}
    draft = None
    if speculates:
        asked |= {"speculative_algorithm": "EAGLE", **CHAIN}
        if assistant is not None:
            asked["speculative_draft_model_path"] = assistant.repo.v
            draft = known_model(assistant.repo.v, TABLES)
    words = ", ".join(f"{key} {value}" for key, value in more.items())
    return Launch(
        name=f"{repo.partition('/')[2]} {gpu}{' speculating' if speculates else ''}{' ' if words else ''}{words}",
        situation=Situation(
            arguments=Arguments(**asked | more),
            target=known_model(repo, TABLES),
            draft=draft,
            site=Site(gpu=gpu, facts=TABLES.gpus[gpu], gpus_per_node=8),
            pins=Pins(sglang=TABLES.engine.version),
            engine=TABLES.engine,
        ),
    )


def every_model() -> list[Launch]:
    """On Hopper's and Blackwell's defaults, without a draft and with one."""
    return [
        launch(facts, gpu, speculates=speculates)
        for facts in TARGETS.values()
        for gpu in (HOPPER, BLACKWELL)
        for speculates in (False, True)
    ]


def further() -> list[Launch]:
    """One launch for each way in which a pool may come out otherwise."""
    v3, v32, glm = (TARGETS[name] for name in ("deepseek-v3-0324", "deepseek-v3.2", "glm-5.2"))
    flash, moe = TARGETS["deepseek-v4-flash"], TARGETS["gemma-4-26b-a4b"]
    tree = {"speculative_num_steps": 4, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 16}
    block = {"speculative_algorithm": "DSPARK", **dict.fromkeys(CHAIN)}
    table = {"speculative_algorithm": "NGRAM", **dict.fromkeys(CHAIN), "attention_backend": "flashinfer"}
    attention_dp = {"dp_size": 8, "enable_dp_attention": True, "max_running_requests": 256}
    return [
        launch(v3, HOPPER, speculates=True, kv_cache_dtype="fp8_e4m3"),
        launch(v3, BLACKWELL, speculates=True, repo="nvidia/DeepSeek-V3-0324-NVFP4"),
        launch(v3, HOPPER, speculates=True, **attention_dp),
        launch(v3, HOPPER, speculates=True, **attention_dp, moe_a2a_backend="deepep", cuda_graph_max_bs_decode=8),
        launch(v3, HOPPER, speculates=True, chunked_prefill_size=32768),
        launch(v3, BLACKWELL, speculates=False, disable_cuda_graph=True),
        launch(v3, HOPPER, speculates=True, **tree, attention_backend="flashinfer", page_size=64),
        launch(v32, HOPPER, speculates=True, kv_cache_dtype="fp8_e4m3"),
        launch(v32, BLACKWELL, speculates=True, kv_cache_dtype="bfloat16"),
        launch(glm, HOPPER, speculates=True, kv_cache_dtype="fp8_e4m3"),
        launch(glm, BLACKWELL, speculates=True, repo="nvidia/GLM-5.2-NVFP4"),
        launch(glm, BLACKWELL, speculates=True, **attention_dp),
        launch(flash, HOPPER, speculates=True, **attention_dp),
        launch(flash, BLACKWELL, speculates=True, swa_full_tokens_ratio=0.25, max_running_requests=256),
        launch(moe, HOPPER, speculates=True, tp_size=2),
        launch(moe, HOPPER, speculates=True, tp_size=4),
        launch(moe, BLACKWELL, speculates=True, repo="nvidia/Gemma-4-26B-A4B-NVFP4", tp_size=2),
        launch(moe, HOPPER, speculates=True, swa_full_tokens_ratio=0.5),
        launch(moe, HOPPER, speculates=True, disable_radix_cache=True),
        launch(moe, BLACKWELL, speculates=False, disable_radix_cache=True, tp_size=2),
        launch(flash, BLACKWELL, speculates=False, disable_radix_cache=True),
        launch(flash, BLACKWELL, speculates=True, repo="deepseek-ai/DeepSeek-V4-Flash-0731", **block),
        launch(flash, HOPPER, speculates=True, disaggregation_mode="decode"),
        launch(glm, HOPPER, speculates=True, kv_cache_dtype="fp8_e4m3", disaggregation_mode="decode"),
        launch(glm, HOPPER, speculates=True, disaggregation_mode="prefill"),
        launch(glm, HOPPER, speculates=True, speculative_adaptive=True),
        launch(v3, HOPPER, speculates=True, **table),
        launch(v3, HOPPER, speculates=True, **table | {"speculative_num_draft_tokens": 64}, page_size=64),
        launch(v3, HOPPER, speculates=True, **table | {"speculative_num_steps": 5}),
    ]


def ask_engine(launches: Sequence[Launch]) -> list[dict]:
    """One child process for all of them."""
    questions = json.dumps([launch.question() for launch in launches])
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("SGLANG_", "SGL_", "PYTHONPATH"))
    }
    environment |= {"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    child = [sys.executable, "-m", "tests.planning.memory.engine_pools"]
    done = subprocess.run(
        child, input=questions, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def failures(launches: Iterable[Launch], answers: Iterable[dict]) -> list[str]:
    return [f"{asked.name}: {said['error']}" for asked, said in zip(launches, answers, strict=True) if "error" in said]


def _drafts_for(found: ModelFacts, facts: ModelFacts) -> bool:
    return found.drafts_for is not None and TABLES.models[found.drafts_for] is facts
