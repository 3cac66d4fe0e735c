"""Flags that earlier releases of SGLang took and 0.5.23 does not, and what became of them. Pure.

Sources: the registrations of deprecated flags that sgl-project/sglang#38375 (2026-09) removed; for the experts' flags and the micro-batch the
argument tables of earlier server documentation; for FlashInfer's and FlashMLA's MLA switches #5005, #5052 and #5480 (2025-04). Two of them,
--cuda-graph-bs and --cuda-graph-max-bs, fail in 0.5.23 as abbreviations that fit several flags. FOREIGN are vLLM's names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """What stands for an old flag now; without `instead`, nothing does."""

    instead: str = ""
    value: str | None = None  # an old switch became this value of a flag
    value_of: str = ""  # an old switch became a flag with the value that this destination has
    values: Mapping[str, str] = field(default_factory=dict)  # values that were renamed with the flag
    takes_value: bool = False  # the old flag had one, though its successor is nothing or a switch
    why: str = ""  # where there is no successor: what to make of it
    harmless: bool = False  # without a successor: it can be left out, and nothing changes


RETIRED: Mapping[str, Retired] = {
    "--cuda-graph-bs": Retired(instead="--cuda-graph-bs-decode"),
    "--cuda-graph-max-bs": Retired(instead="--cuda-graph-max-bs-decode"),
    "--enable-breakable-cuda-graph": Retired(instead="--cuda-graph-backend-prefill", value="breakable"),
    "--disable-piecewise-cuda-graph": Retired(instead="--cuda-graph-backend-prefill", value="disabled"),
    "--enable-piecewise-cuda-graph": Retired(harmless=True, why="prefill graphs are on where the engine can use them"),
    "--enforce-piecewise-cuda-graph": Retired(why="its kind of prefill graph was removed; breakable, full or disabled are left"),
    "--piecewise-cuda-graph-tokens": Retired(instead="--cuda-graph-bs-prefill"),
    "--piecewise-cuda-graph-max-tokens": Retired(instead="--cuda-graph-max-bs-prefill"),
    "--piecewise-cuda-graph-compiler": Retired(takes_value=True, harmless=True, why="no prefill graph has a compiler any more"),
    "--nsa-prefill-backend": Retired(instead="--dsa-prefill-backend"),
    "--nsa-decode-backend": Retired(instead="--dsa-decode-backend"),
    "--enable-nsa-prefill-context-parallel": Retired(instead="--enable-prefill-cp"),
    "--enable-prefill-context-parallel": Retired(instead="--enable-prefill-cp"),
    "--nsa-prefill-cp-mode": Retired(instead="--cp-strategy", values={"in-seq-split": "zigzag", "round-robin-split": "interleave"}),
    "--speculative-dflash-draft-window-size": Retired(instead="--speculative-draft-window-size"),
    "--mamba-scheduler-strategy": Retired(instead="--mamba-radix-cache-strategy"),
    "--enable-gdn-replayssm-spec": Retired(instead="--enable-linear-replayssm-spec"),
    "--stream-output": Retired(instead="--incremental-streaming-output"),
    "--enable-expert-distribution-metrics": Retired(why="--expert-balancedness-report-mode (off, server_log, prometheus, both) took its place"),
    "--prefill-round-robin-balance": Retired(harmless=True, why="it had no effect any more before it was removed"),
    "--collect-tokens-histogram": Retired(harmless=True, why="--enable-metrics collects them"),
    "--enable-ep-moe": Retired(instead="--ep-size", value_of="tp_size"),
    "--enable-deepep-moe": Retired(instead="--moe-a2a-backend", value="deepep"),
    "--enable-flashinfer-cutlass-moe": Retired(instead="--moe-runner-backend", value="flashinfer_cutlass"),
    "--enable-flashinfer-cutedsl-moe": Retired(instead="--moe-runner-backend", value="flashinfer_cutedsl"),
    "--enable-flashinfer-trtllm-moe": Retired(instead="--moe-runner-backend", value="flashinfer_trtllm"),
    "--enable-flashinfer-mxfp4-moe": Retired(instead="--moe-runner-backend", value="flashinfer_mxfp4"),
    "--enable-triton-kernel-moe": Retired(instead="--moe-runner-backend", value="triton_kernel"),
    "--enable-flashinfer-mla": Retired(instead="--attention-backend", value="flashinfer"),
    "--enable-flashmla": Retired(instead="--attention-backend", value="flashmla"),
    "--max-micro-batch-size": Retired(instead="--pp-max-micro-batch-size"),
}  # fmt: skip

# What another server calls what ours has.
FOREIGN: Mapping[str, str] = {
    "--max-model-len": "--context-length",
    "--gpu-memory-utilization": "--mem-fraction-static",
    "--max-num-seqs": "--max-running-requests",
    "--max-num-batched-tokens": "--chunked-prefill-size",
    "--enable-expert-parallel": "--ep-size",
    "--num-speculative-tokens": "--speculative-num-steps",
    "--speculative-config": "--speculative-algorithm",
    "--enforce-eager": "--cuda-graph-backend-decode",
    "--enable-auto-tool-choice": "--tool-call-parser",
}
