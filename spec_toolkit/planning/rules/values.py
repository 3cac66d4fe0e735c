"""Rules about single values, whatever stands beside them: a word that the engine knows, a number in its range. Pure.

A command's words were compared by its parser already; a recipe's keys reach the engine as flags, and are compared with the same table.
Most numbers out of range get past the engine's arguments (its resolver was asked): it ends minutes later, or serves something else. Read
in SGLang 0.5.23: `mem_cache/kv_cache_configurator.py`, `arg_groups/kv_cache_hook.py`. The sizes of a layout are `parallel`'s.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from spec_toolkit.errors import Finding, Verdict, refuse, warn
from spec_toolkit.planning.situation import Situation

# The engine's whole flag table is read for a word, and most launches have none: it is imported where one is there.

_WORDS = (
    *("dtype", "load_format", "quantization", "kv_cache_dtype", "speculative_draft_model_quantization"),
    *("attention_backend", "prefill_attention_backend", "decode_attention_backend", "sampling_backend"),
    *("dsa_prefill_backend", "dsa_decode_backend", "grammar_backend", "speculative_attention_mode"),
    *("moe_a2a_backend", "moe_runner_backend", "speculative_moe_a2a_backend", "speculative_moe_runner_backend"),
    *("flashinfer_mxfp4_moe_precision", "deepep_mode", "cuda_graph_backend_decode", "cuda_graph_backend_prefill"),
    *("hicache_write_policy", "hicache_storage_backend", "disaggregation_mode", "disaggregation_transfer_backend"),
)
_COUNTS_FROM_ONE = {  # by argument: what a smaller number would be
    "speculative_eagle_topk": "no branch is no draft",
    "speculative_num_draft_tokens": "a verify pass has its root at least",
    "speculative_dspark_block_size": "a block has a token at least",
    "speculative_dflash_block_size": "a block has a token at least",
    "speculative_ngram_max_bfs_breadth": "a search without breadth finds nothing",
    "max_running_requests": "of less the engine makes one request at a time on every rank",
    "max_total_tokens": "a pool without tokens holds no request",
    "max_prefill_tokens": "no prompt would fit in a pass",
    "context_length": "no request would fit",
    "page_size": "a page has a token at least",
    "cuda_graph_max_bs_decode": "a graph is of one request at least",
}
_STEPS, _FRACTION, _GRAPHS = "speculative_num_steps", "mem_fraction_static", "cuda_graph_bs_decode"
_SHAPE = frozenset({_STEPS, "speculative_eagle_topk", "speculative_num_draft_tokens"})
_WATCHDOG, _RATIO, _SCHEDULE = "watchdog_timeout", "swa_full_tokens_ratio", "schedule_conservativeness"


def known_words(situation: Situation) -> Iterator[Finding]:
    asked = {name: word for name in _WORDS if (word := getattr(situation.arguments, name)) is not None}
    if not asked:
        return
    from spec_toolkit.engine.command_line.table import flag_table  # noqa: PLC0415 - see above
    from spec_toolkit.engine.command_line.values import UnfitError, read_value  # noqa: PLC0415 - see above

    rows = {row.dest: row for row in flag_table().by_name.values() if row.dest in asked}
    for name, word in asked.items():
        try:
            read_value(rows[name], word)
        except UnfitError as unfit:
            why = f"sglang {flag_table().version} would not start: {unfit.needed}"
            remedy = f"Did you mean '{unfit.nearest}'?" if unfit.nearest else ""
            yield refuse("values.word", name, f"is '{word}'", why, remedy)


def counts(situation: Situation) -> Iterator[Finding]:
    asked = situation.arguments
    for name, why in _COUNTS_FROM_ONE.items():
        value = getattr(asked, name)
        if value is not None and value < 1:
            yield refuse("values.range", name, f"is {value}", why, "Write 1 or more, or leave it out.")
    smallest = min(asked.cuda_graph_bs_decode or (1,))
    if smallest < 1:
        yield refuse(
            "values.range", _GRAPHS, f"holds {smallest}", "a graph is of one request at least", "Write 1 or more."
        )


def steps(situation: Situation) -> Iterator[Finding]:
    asked = situation.arguments
    value = asked.speculative_num_steps
    if value is None or not asked.speculates or value > 0:
        return
    if value < 0:
        yield refuse("values.range", _STEPS, f"is {value}", "steps count from 1", "Write 1 or more, or leave it out.")
    else:
        why = "every round would verify one token and draft none"
        yield warn(
            "values.no-steps", _STEPS, "is 0", why, "Write 1 or more, or leave speculation out to serve without it."
        )


def shares(situation: Situation) -> Iterator[Finding]:
    asked = situation.arguments
    fraction = asked.mem_fraction_static
    if fraction is not None and not 0 < fraction < 1:
        why = "it is the share of a GPU's memory for weights and KV, and what is captured and computed needs the rest"
        remedy = "Write one above 0 and below 1, or leave it out."
        yield refuse("values.range", _FRACTION, f"is {fraction:g}", why, remedy)
    ratio = asked.swa_full_tokens_ratio
    if ratio is not None and not 0 < ratio <= 1:
        why = "a window's pool holds a token at least, and no more than that of the other layers"
        yield refuse("values.range", _RATIO, f"is {ratio:g}", why, "Write one above 0 and up to 1, or leave it out.")
    conservative = asked.schedule_conservativeness
    if conservative is not None and conservative < 0:
        why = "it multiplies what a request is expected to need"
        yield refuse("values.range", _SCHEDULE, f"is {conservative:g}", why, "Write 0 or more, or leave it out.")
    watchdog = asked.watchdog_timeout
    if watchdog is not None and not watchdog > 0:
        why = "every pass would be taken for one that hangs, and the engine ended"
        yield refuse("values.range", _WATCHDOG, f"is {watchdog:g} s", why, "Write seconds, or leave it out.")


def without_refused(situation: Situation, findings: Iterable[Finding]) -> Situation:
    """For the other rules: nothing follows from a value that cannot be. What shapes a draft stays, or it would be missed."""
    refused = {finding.where for finding in findings if finding.verdict is Verdict.REFUSE} - _SHAPE
    return (
        replace(situation, arguments=replace(situation.arguments, **dict.fromkeys(refused))) if refused else situation
    )


RULES = (known_words, counts, steps, shares)
