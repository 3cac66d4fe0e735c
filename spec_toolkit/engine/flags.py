"""The engine's flags as SGLang 0.5.23 spells them. Pure. What we launch and look for is named here; all there are is in command_line."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec.structs import asdict

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.terms import Method

LAUNCH_MODULE = "sglang.launch_server"
_SPECULATIVE = "--speculative-"
SERVED_KIND = "--model-type"  # of `sglang serve` itself, which chooses a server by it and hands the other flags on


class Flag(StrEnum):
    ACCEPT_THRESHOLD_ACCUMULATED = "--speculative-accept-threshold-acc"
    ACCEPT_THRESHOLD_SINGLE = "--speculative-accept-threshold-single"
    ADAPTIVE = "--speculative-adaptive"
    ADAPTIVE_CONFIG = "--speculative-adaptive-config"
    ALGORITHM = "--speculative-algorithm"
    ATTENTION_BACKEND = "--attention-backend"
    BLOCK_TOKENS = "--speculative-dspark-block-size"
    CHUNKED_PREFILL_TOKENS = "--chunked-prefill-size"
    CONFIG = "--config"
    CONTEXT_TOKENS = "--context-length"
    DECODE_GRAPH_BACKEND = "--cuda-graph-backend-decode"
    DECODE_GRAPH_SIZES = "--cuda-graph-bs-decode"
    DEVICE = "--device"
    DISABLE_OVERLAP = "--disable-overlap-schedule"
    DP = "--dp-size"
    DP_ATTENTION = "--enable-dp-attention"
    DP_LM_HEAD = "--enable-dp-lm-head"
    DRAFT_MODEL = "--speculative-draft-model-path"
    DRAFT_MOE_A2A_BACKEND = "--speculative-moe-a2a-backend"
    DRAFT_MOE_RUNNER_BACKEND = "--speculative-moe-runner-backend"
    DRAFT_REVISION = "--speculative-draft-model-revision"
    DTYPE = "--dtype"
    EP = "--ep-size"
    HOST = "--host"
    KV_CACHE_DTYPE = "--kv-cache-dtype"
    KV_POOL_TOKENS = "--max-total-tokens"
    MAX_RUNNING_REQUESTS = "--max-running-requests"
    MEMORY_FRACTION = "--mem-fraction-static"
    METRICS = "--enable-metrics"
    MODEL = "--model-path"
    MOE_A2A_BACKEND = "--moe-a2a-backend"
    MOE_PRECISION = "--flashinfer-mxfp4-moe-precision"
    MOE_RUNNER_BACKEND = "--moe-runner-backend"
    NODES = "--nnodes"
    NUM_DRAFT_TOKENS = "--speculative-num-draft-tokens"
    NUM_STEPS = "--speculative-num-steps"
    PORT = "--port"
    PREFILL_GRAPH_BACKEND = "--cuda-graph-backend-prefill"
    REJECTION_SAMPLING = "--speculative-use-rejection-sampling"
    REVISION = "--revision"
    SERVED_NAME = "--served-model-name"
    SKIP_WARMUP = "--skip-server-warmup"
    SLEEP_ON_IDLE = "--sleep-on-idle"
    TOPK = "--speculative-eagle-topk"
    TP = "--tp-size"
    WINDOW_POOL_RATIO = "--swa-full-tokens-ratio"
    WATCHDOG_SECONDS = "--watchdog-timeout"

    @property
    def is_speculative(self) -> bool:
        return self.value.startswith(_SPECULATIVE)


def is_shape_of_draft(flag: str) -> bool:
    """Whether any flag, of ours or not, is about speculation and names none of its kernels."""
    return flag.startswith(_SPECULATIVE) and not flag.endswith("-backend")


# The key of the file that CONFIG names: the one way a secret reaches the engine outside its arguments and environment.
ADMIN_KEY = "admin-api-key"

ALGORITHM_OF: Mapping[Method, str] = {
    Method.MTP: "EAGLE",
    Method.EAGLE3: "EAGLE3",
    Method.FROZEN_KV_MTP: "NEXTN",  # with an assistant as draft model the engine turns it into FROZEN_KV_MTP
    Method.STANDALONE: "STANDALONE",
    Method.NGRAM: "NGRAM",
    Method.DFLASH: "DFLASH",
    Method.DSPARK: "DSPARK",
}

Value = str | int | float | bool | Sequence[int] | None


def as_options(asked: Arguments) -> dict[Flag, Value]:
    """By flag, what is said. ValueError for an argument that no launch of ours sets."""
    return {
        Flag("--" + name.replace("_", "-")): value
        for name, value in asdict(asked).items()
        if value is not None and name != "others"
    }


def to_argv(options: Mapping[Flag, Value]) -> tuple[str, ...]:
    """Arguments in the given order; None and False leave a flag out, True is a switch, a sequence repeats its values."""
    argv: list[str] = []
    for flag, value in options.items():
        match value:
            case None | False:
                continue
            case True:
                argv.append(flag.value)
            case str() | int() | float():
                argv += [flag.value, str(value)]
            case _:
                argv += [flag.value, *(str(v) for v in value)]
    return tuple(argv)
