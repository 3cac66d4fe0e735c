"""SGLang's own pool configurators under a described GPU: a child process that imports the engine once and forks for each launch.

Reads a JSON list of {"files": {path: content}, "arguments": [...], "gpu": {...}} from standard input, writes a JSON list of what its pool
costs, or of {"error"}. No GPU and no weights: the same stand-ins as for its resolver answer what it asks of them.
"""

import json
import os
import sys
import tempfile
import traceback
import types
from collections.abc import Mapping
from pathlib import Path

from spec_toolkit.launch.resolving import absent, described_gpu

BUDGET = 60 * 2**30  # bytes of a pool, for the tokens that fit it


def count(launch: Mapping) -> dict:
    """What the engine's pool for this launch costs."""
    described_gpu.describe_to_torch(launch["gpu"])
    described_gpu.describe_to_engine(launch["gpu"])
    for name, content in launch["files"].items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(json.dumps(content), encoding="utf-8")
    from sglang.srt.mem_cache.allocation_sizing import get_alloc_len_per_decode
    from sglang.srt.model_executor.pool_configurator import create_memory_pool_configurator
    from sglang.srt.runtime_context import SpawnRanks, get_exec, get_parallel, get_schedule, publish
    from sglang.srt.server_args import prepare_server_args

    arguments = prepare_server_args(launch["arguments"])
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=0, gpu_id=0, dp_rank=None))
    kv_cache = launch.get("kv_cache_quant_algo")
    pool = configurator_of(arguments, kv_cache)
    configurator = create_memory_pool_configurator(pool)
    schedule, graphs = get_schedule(), get_exec().graph.cuda_graph_config
    requests = max(1, (schedule.max_running_requests or 1) // get_parallel().attn_dp_size)
    each, fixed = price_of(configurator, requests, schedule.page_size)
    return {
        "configurator": type(configurator).__name__,
        "bytes_per_token": each,
        "window_token": getattr(configurator, "bytes_per_swa_token", None),
        "fixed": fixed,
        "requests": requests,
        "kv_word": pool.kv_cache_dtype_str,
        "dtype": str(pool.kv_cache_dtype).removeprefix("torch."),
        "page_size": schedule.page_size,
        "attention_tp": get_parallel().attn_tp_size,
        "tokens": configurator.calculate_pool_sizes(BUDGET, schedule.page_size).max_total_num_tokens,
        "memory_fraction": schedule.mem_fraction_static,
        "largest_graph": graphs.decode.max_bs,
        "slots_per_decode": get_alloc_len_per_decode(),
    }


def price_of(configurator, requests, page_size):
    """(bytes per token, bytes before the first token), by the fields that its own sizing goes by."""
    if hasattr(configurator, "_swa_cap"):  # a window pool by requests
        windows = -(-configurator._swa_cap // page_size) * page_size
        return configurator._full_cell_bytes(), windows * configurator._swa_cell_bytes()
    if hasattr(configurator, "bytes_per_full_token"):
        return configurator.bytes_per_full_token, configurator._get_c128_state_fixed_bytes(requests)
    return configurator._cell_size, 0


def configurator_of(arguments, kv_cache):
    """The object that the engine sizes its pools with, in the place where a loaded model would have made it."""
    from sglang.srt.configs.model_config import AttentionArch, ModelConfig
    from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
    from sglang.srt.mem_cache.kv_cache_dtype import configure_kv_cache_dtype
    from sglang.srt.model_executor.model_runner_components.layer_setup import resolve_layer_indices
    from sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state import (
        resolve_spec_aux_hidden_state_config,
    )
    from sglang.srt.runtime_context import get_model, get_parallel, get_schedule, get_spec
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    config = ModelConfig.from_server_args(arguments)
    algorithm = SpeculativeAlgorithm.from_string(get_spec().speculative_algorithm)
    model = types.SimpleNamespace(quant_config=types.SimpleNamespace(kv_cache_quant_algo=kv_cache))
    resolved, dtype = configure_kv_cache_dtype(
        server_args_kv_cache_dtype=get_model().kv_cache_dtype,
        model=model,
        model_dtype=config.dtype,
        is_draft_worker=False,
        is_dflash=False,
        speculative_draft_attention_backend=None,
    )
    return KVCacheConfigurator(
        device="cuda",
        gpu_id=0,
        attn_dp_size=get_parallel().attn_dp_size,
        pp_size=1,
        pp_group=None,
        model=model,
        model_config=config,
        server_args=arguments,
        kv_cache_dtype=dtype,
        kv_cache_dtype_str=resolved or get_model().kv_cache_dtype,
        model_dtype=config.dtype,
        page_size=get_schedule().page_size,
        sliding_window_size=config.sliding_window_size,
        spec_algorithm=algorithm,
        is_draft_worker=False,
        post_capture_kv_active=False,
        spec_aux_config=resolve_spec_aux_hidden_state_config(
            server_args=arguments, model_config=config, spec_algorithm=algorithm, is_draft_worker=False
        ),
        is_hybrid_swa=config.is_hybrid_swa,
        is_hybrid_swa_compress=getattr(config, "is_hybrid_swa_compress", False),
        use_mla_backend=config.attention_arch == AttentionArch.MLA,
        layer_info=resolve_layer_indices(model=model, model_config=config, is_draft_worker=False),
        forward_stream=None,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=None,
        memory_pool_config=None,
    )


def count_in_a_fork(launch: Mapping) -> dict:
    """What a launch resolves is process-wide, so each has a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as pipe, tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                answer = count(launch)
            except BaseException:  # noqa: BLE001 - the parent reports it
                answer = {"error": traceback.format_exc(limit=-3)}
            json.dump(answer, pipe)
            pipe.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = json.load(pipe)
    os.waitpid(child, 0)
    return answer


def main() -> None:
    launches = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the engine prints; standard output is ours
    import torch  # noqa: F401 - before the stand-ins: it would take that of Triton for the compiler

    absent.stand_in()
    described_gpu.describe_to_torch(launches[0]["gpu"])
    import sglang.srt.model_executor.pool_configurator
    import sglang.srt.server_args  # noqa: F401 - here, so that no fork pays for it

    json.dump([count_in_a_fork(launch) for launch in launches], answers)
    answers.close()


if __name__ == "__main__":
    main()
