"""What the engine says, as SGLang 0.5.23 spells it: keys of `meta_info`, of `/server_info`, and its environment. Pure.

A key that is absent is None here, never zero: the same count has had three names upstream, and a reader that defaults to zero
reports no acceptance where there is only a renamed key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ROUNDS = "spec_verify_ct"
ACCEPTED_DRAFTS = "spec_num_correct_drafts"
PROPOSED_DRAFTS = "spec_num_proposed_drafts"
ACCEPTED_HISTOGRAM = "spec_correct_drafts_histogram"

# Environment of an engine process.
USE_CPU_ENGINE = "SGLANG_USE_CPU_ENGINE"
PLUGINS_ALLOWED = "SGLANG_PLUGINS"  # a whitelist that leaves our plugin out would drop every patch without a word
SIMULATED_ACCEPTANCE = "SGLANG_SIMULATE_ACC_LEN"
PREFILLS_APART = (
    "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION"  # a rank that prefills beside others' rounds does not vote
)
CORE_DUMP_ON_CRASH = "SGLANG_CUDA_COREDUMP_BEFORE_CRASH"
CPU_CORES_OF_RANKS = "SGLANG_CPU_OMP_THREADS_BIND"  # "0|1": a core list for each rank
STACK_DUMP_ON_CRASH = "SGLANG_PYSPY_DUMP_BEFORE_CRASH"


# Where the engine speaks of itself, to anyone; the last is an address it does not have, for what its errors say.
SELF_DESCRIPTIONS = ("/server_info", "/get_server_info", "/model_info", "/metrics", "/v1/models", "/nowhere")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How one answer was made."""

    emitted_tokens: int  # completion tokens, the first one (from prefill) included
    rounds: int | None  # verify passes; None: this engine did not speculate
    accepted_drafts: int | None  # bonus tokens not counted
    proposed_drafts: int | None
    accepted_histogram: (
        tuple[int, ...] | None
    )  # rounds by number of accepted drafts, [0 .. num_steps], trailing zeros cut

    @property
    def emitted_length(self) -> float | None:
        """Tokens per round, the bonus included: (accepted drafts + rounds) / rounds. Prefill's token is not a round's."""
        if not self.rounds or self.accepted_drafts is None:
            return None
        return (self.accepted_drafts + self.rounds) / self.rounds


def read_rounds(meta_info: Mapping[str, Any]) -> Rounds:
    histogram = meta_info.get(ACCEPTED_HISTOGRAM)
    return Rounds(
        emitted_tokens=int(meta_info["completion_tokens"]),
        rounds=meta_info.get(ROUNDS),
        accepted_drafts=meta_info.get(ACCEPTED_DRAFTS),
        proposed_drafts=meta_info.get(PROPOSED_DRAFTS),
        accepted_histogram=None if histogram is None else tuple(histogram),
    )


def read_top_logprobs(meta_info: Mapping[str, Any]) -> tuple[Mapping[int, float], ...] | None:
    """Nats by token id, per output position; None where they were not asked for. The engine gives (logprob, id, text)."""
    rows = meta_info.get("output_top_logprobs")
    return None if rows is None else tuple({token: logprob for logprob, token, *_ in row} for row in rows)


def read_tokenizer_place(server_info: Mapping[str, Any]) -> tuple[str, str]:
    """Folder or hub repository the engine's tokenizer comes from, and its revision."""
    return str(server_info.get("tokenizer_path")), str(server_info.get("revision"))
