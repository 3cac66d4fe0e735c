"""What an engine test needs around a rehearsal: launch_server's arguments, the patches, a request, readiness."""

import http.client
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from spec_toolkit.engine.patch_file import Family
from spec_toolkit.engine.patches import choose_patches, hand_over, patches_folder, read_patches
from spec_toolkit.handover import LIST_VARIABLE
from spec_toolkit.shipped import rehearsal, shipped

MODEL = rehearsal() / "models" / "deepseek_v3_tiny"
START_SECONDS = 480.0  # the stock launcher on a machine with much other work


def arguments(port: int, *more: str, num_steps: int = 3, topk: int = 1, num_draft_tokens: int = 4) -> list[str]:
    """A tiny DeepSeek-V3 on the CPU; num_steps 0 serves it autoregressively."""
    draft = [
        "--speculative-algorithm", "EAGLE", "--speculative-num-steps", str(num_steps),
        "--speculative-eagle-topk", str(topk), "--speculative-num-draft-tokens", str(num_draft_tokens),
    ]  # fmt: skip
    return [
        "--model-path", str(MODEL), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu",
        "--attention-backend", "intel_amx", "--dtype", "float32", "--mem-fraction-static", "0.1",
        "--max-total-tokens", "4096", "--max-running-requests", "8", "--skip-server-warmup", "--enable-metrics",
        "--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled",
        *(draft if num_steps else []), *more,
    ]  # fmt: skip


def patched(folder: Path, family: Family = Family.DEEPSEEK) -> dict[str, str]:
    """The environment that hands a rehearsal's patches to the engine; its processes report beside the list."""
    every = read_patches(patches_folder(shipped("patches"), "0.5.23"))
    chosen = choose_patches(every, family=family, rehearsal=True)
    return {
        LIST_VARIABLE: str(hand_over(chosen, folder)),
        "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
        "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",  # else /health makes a token and looks for it once a second
    }


def ask(port: int, method: str, path: str, body: object = None, seconds: float = 60.0) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def wait_ready(port: int, ended: Callable[[], int | None], log: Path) -> float:
    """Seconds until /health answers 200; AssertionError with the log's end where the engine ended first."""
    begin = time.monotonic()
    while time.monotonic() - begin < START_SECONDS:
        assert ended() is None, f"the engine ended with {ended()}:\n{log.read_text()[-3000:]}"
        try:
            if ask(port, "GET", "/health", seconds=10)[0] == 200:
                return time.monotonic() - begin
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"not ready after {START_SECONDS:.0f} s:\n{log.read_text()[-3000:]}")


def greedy(port: int, prompt: str | Sequence[int], tokens: int = 48) -> tuple[list[int], dict[str, float]]:
    """Output ids and meta_info of one greedy request."""
    given = {"text": prompt} if isinstance(prompt, str) else {"input_ids": list(prompt)}
    wanted = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    status, content = ask(port, "POST", "/generate", {**given, "sampling_params": wanted})
    assert status == 200, content
    answer = json.loads(content)
    return answer["output_ids"], answer["meta_info"]


def held_out(count: int) -> list[str]:
    """Held-out prompts, evenly over the buckets."""
    rows = (MODEL / "held_out.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(row)["prompt"] for row in rows[:: max(1, len(rows) // count)]][:count]
