"""Rules about speculation on a model that lies across ranks: under attention data parallelism, with pipeline stages, with experts. Pure.

Read in SGLang 0.5.23: `_handle_dspark`, `_handle_dflash`, `_handle_eagle_family` and `_handle_ngram` of
`arg_groups/speculative_hook.py`, `check_pipeline_parallel_compat` of `arg_groups/validation_hook.py`.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, correct, refuse, warn
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.rules.parallel import dp_field
from spec_toolkit.planning.rules.version import is_before
from spec_toolkit.planning.situation import Situation

REFUSED_BY_ENGINE = frozenset(
    {
        *("draft-parallel.dp-algorithm", "draft-parallel.lm-head", "draft-parallel.cp", "draft-parallel.exchange"),
        *("draft-parallel.ragged", "draft-parallel.pipeline"),
    }
)

_NOT_UNDER_DP = frozenset({"STANDALONE", "NGRAM", "UNO"})
_BLOCKS = frozenset({"DFLASH", "DSPARK"})
_EXCHANGES = (None, "none", "megamoe", "mori")
_RAGGED, _PIPELINED = "SGLANG_RAGGED_VERIFY_MODE", "SGLANG_ENABLE_PP_SPEC"
_FIRST_WITH_DP = "0.4.7"  # C029: reported on 0.4.6; the pull request was merged between the two releases


def attention_data_parallel(situation: Situation) -> Iterator[Finding]:
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    ranks, where = asked.attention_dp, dp_field(situation)
    if ranks <= 1 or algorithm is None:
        return
    if algorithm in _NOT_UNDER_DP:
        why = "the engine runs it without attention data parallelism alone"
        yield refuse("draft-parallel.dp-algorithm", where, f"is {ranks}, with {algorithm}", why, "Drop one of the two.")
    elif is_before(situation.pins.sglang, _FIRST_WITH_DP):
        why = f"before {_FIRST_WITH_DP} the engine hangs at its start with the two together"
        found = f"is {ranks}, with {algorithm} on {situation.pins.sglang}"
        yield refuse("draft-parallel.version", where, found, why, f"Use {situation.engine.version}.")
    tp = asked.tp_size or 1
    if algorithm in resolved.EAGLE_FAMILY - _NOT_UNDER_DP and ranks < tp:
        yield warn(
            "draft-parallel.partial-dp",
            where,
            f"is {ranks} inside tp {tp}: {tp // ranks} ranks share a request's attention",
            "drafts in such groups have failed once several requests ran, while dp equal to tp and no speculation both worked",
            "Try it with at least 4 requests at once before traffic.",
        )


def blocks_under_dp(situation: Situation) -> Iterator[Finding]:
    """C033: a block draft samples inside its own attention group."""
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    if asked.attention_dp <= 1 or algorithm not in _BLOCKS:
        return
    if not asked.enable_dp_lm_head:
        why = f"{algorithm} samples inside each attention rank, and without it would wait for ranks that have nothing to do"
        remedy = "Planned with it; write that."
        where, found = "enable_dp_lm_head", "is left out, under attention data parallelism"
        yield correct("draft-parallel.lm-head", where, found, why, remedy, ((where, True),))
    if (asked.attn_cp_size or 1) > 1:
        why = f"{algorithm} under attention data parallelism has no context parallelism"
        yield refuse("draft-parallel.cp", "attn_cp_size", f"is {asked.attn_cp_size}", why, "Write 1.")
    if algorithm == "DSPARK":
        yield from _exchange(situation)


def _exchange(situation: Situation) -> Iterator[Finding]:
    asked, exchange = situation.arguments, situation.arguments.moe_a2a_backend
    if exchange not in _EXCHANGES:
        why = "DSPARK under attention data parallelism exchanges experts by none, megamoe or mori"
        yield refuse("draft-parallel.exchange", "moe_a2a_backend", f"is {exchange}", why, "Write one of them.")
        return
    mode = situation.environment.get(_RAGGED, "static")
    if exchange not in {None, "none"} and mode != "static":
        why = f"with {exchange} every request is verified at one width"
        yield refuse("draft-parallel.ragged", _RAGGED, f"is {mode}", why, "Write static, or leave it out.")
    draft = asked.speculative_moe_a2a_backend
    if draft is not None and draft != (exchange or "none"):
        why = f"DSPARK takes the target's exchange ({exchange or 'none'}), and the engine refuses another"
        yield refuse("draft-parallel.exchange", "speculative_moe_a2a_backend", f"is {draft}", why, "Leave it out.")


def pipeline(situation: Situation) -> Iterator[Finding]:
    """C101. The draft is the reason: it lies on the last stage alone."""
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    stages, mode = asked.pp_size or 1, asked.disaggregation_mode
    if stages <= 1 or algorithm is None:
        return
    found, where = f"is {stages}, with {algorithm} as draft", "pp_size"
    may = algorithm == "EAGLE" and not asked.enable_multi_layer_eagle
    switched = _is_on(situation.environment.get(_PIPELINED))
    if not may and algorithm != "DSPARK":
        why = "with pipeline stages the engine drafts with EAGLE alone"
        yield refuse("draft-parallel.pipeline", where, found, why, "Write pp_size 1, or serve without speculation.")
    elif mode != "prefill" and not (switched and may and mode in {None, "null"}):
        why = "the draft lies on the last stage, and the engine runs it across stages in a prefill role alone"
        yield refuse("draft-parallel.pipeline", where, found, why, "Write pp_size 1, or serve without speculation.")
    elif switched and (
        algorithm == "DSPARK" or mode == "prefill" or asked.attention_dp > 1 or resolved.is_adaptive(situation)
    ):
        why = "relayed drafts go with EAGLE of one depth, without roles and without attention data parallelism"
        yield refuse("draft-parallel.pipeline", where, f"{found} and {_PIPELINED} on", why, "Unset the variable.")


def _is_on(value: str | None) -> bool:
    return value is not None and value.lower() in {"1", "true", "yes", "y", "on", "t"}


RULES = (attention_data_parallel, blocks_under_dp, pipeline)
