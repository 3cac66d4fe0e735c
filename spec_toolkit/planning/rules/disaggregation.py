"""Rules about prefill and decode in engines of their own: what one writes, the other reads as it stands. Pure.

Read in the engine: disaggregation/common/conn.py (what a decode engine compares when it first meets a prefill engine: page size, KV
dtype, layout, ranks), disaggregation/nixl/conn.py (numbers of KV regions), speculative/eagle_disaggregation.py (the draft's first state,
and for GLM-5.2 the indices that its steps share, come with the request). It compares no draft: another one's KV is read all the same.
"""

from collections.abc import Iterator
from itertools import chain

from spec_toolkit.errors import Finding, refuse, warn
from spec_toolkit.facts.model import DsaAttention
from spec_toolkit.planning.rules.resolved import Family, algorithm_of, branches_of, family_of, kv_word, page_tokens
from spec_toolkit.planning.situation import Situation

_MOST_BRANCHES = 16  # of a request's metadata
_V4_LAYOUT = "SGLANG_DSV4_KV_LAYOUT"
_LATENT = frozenset({Family.MLA, Family.DSA, Family.V4})  # one latent for all ranks: any rank may read any other's
_ALIKE = (
    *("speculative_draft_model_revision", "speculative_draft_model_quantization"),
    *("speculative_token_map", "enable_multi_layer_eagle"),
)
_ALIKE_IF_WRITTEN = ("speculative_num_steps", "speculative_num_draft_tokens", "speculative_dspark_block_size")
_CANARY = "Before it serves, run concurrent requests through the pair and compare them with the decode engine alone."


def roles(prefill: Situation, decode: Situation) -> Iterator[Finding]:
    for role, situation in (("prefill", prefill), ("decode", decode)):
        mode = situation.arguments.disaggregation_mode
        if mode not in {None, role}:
            where = f"{role}.disaggregation_mode"
            yield refuse("disaggregation.roles", where, f"is {mode}", "this is the other engine's", f"Write {role}.")


def one_model(prefill: Situation, decode: Situation) -> Iterator[Finding]:
    """Weights may be stored in two ways, the KV they make may not differ."""
    rule = "disaggregation.model"
    here, there = decode.target, prefill.target
    if here.tokenizer is not None and there.tokenizer is not None and here.tokenizer != there.tokenizer:
        found = "its tokenizer is not that of prefill"
        yield refuse(rule, "decode.model_path", found, "token ids would mean other words", "Serve one model.")
    if here.shape is not None and there.shape is not None and here.shape != there.shape:
        found = f"is {here.name}, and prefill's is {there.name}"
        yield refuse(rule, "decode.model_path", found, "their KV has another shape", "Serve one model.")
    names = [situation.arguments.model_path for situation in (prefill, decode)]
    if None not in names and names[0] == names[1]:
        yield from _equal(rule, "revision", prefill, decode, "one would read what another model wrote")


def kv_cache(prefill: Situation, decode: Situation) -> Iterator[Finding]:
    why = "the decode engine compares it when it first meets the prefill engine, and stops"
    pages = page_tokens(prefill), page_tokens(decode)
    if None not in pages and pages[0] != pages[1]:
        found = f"comes to {pages[1]} tokens, and prefill's to {pages[0]}"
        yield refuse("disaggregation.page-size", "decode.page_size", found, why, "Write the same page size on both.")
    words = kv_word(prefill), kv_word(decode)
    if None not in words and words[0] != words[1]:
        written = prefill.arguments.kv_cache_dtype or decode.arguments.kv_cache_dtype
        found = f"comes to {words[1]}, and prefill's to {words[0]}" + ("" if written else ", as nothing is written")
        yield refuse("disaggregation.kv-dtype", "decode.kv_cache_dtype", found, why, "Write the same word on both.")
    if family_of(decode.target) is Family.V4 and prefill.environment.get(_V4_LAYOUT) != decode.environment.get(
        _V4_LAYOUT
    ):
        values = [situation.environment.get(_V4_LAYOUT, "not set") for situation in (prefill, decode)]
        found = f"is {values[1]} for decode, and {values[0]} for prefill"
        yield refuse("disaggregation.kv-layout", _V4_LAYOUT, found, why, "Set it alike, and the attention backend too.")


def transfer(prefill: Situation, decode: Situation) -> Iterator[Finding]:
    why = "they could not speak to each other"
    yield from _equal("disaggregation.transfer", "disaggregation_transfer_backend", prefill, decode, why)


def layout(prefill: Situation, decode: Situation) -> Iterator[Finding]:
    """Ranks of one side are mapped onto those of the other."""
    ours, theirs = decode.arguments, prefill.arguments
    stages = ours.pp_size or 1, theirs.pp_size or 1
    if stages[0] not in {1, stages[1]}:
        found = f"is {stages[0]}, and prefill's is {stages[1]}"
        why = "decode takes as many stages as prefill, or one"
        yield refuse("disaggregation.stages", "decode.pp_size", found, why, "Write 1.")
    if (ours.attn_cp_size or 1) != 1:
        why = "only prefill may split a context"
        yield refuse("disaggregation.context", "decode.attn_cp_size", f"is {ours.attn_cp_size}", why, "Leave it out.")
    ranks = _attention_ranks(decode), _attention_ranks(prefill)
    if max(ranks) % min(ranks):
        found = f"comes to {ranks[0]} attention ranks, and prefill's to {ranks[1]}"
        why = "each rank of the smaller side serves a whole number of the larger"
        yield refuse("disaggregation.ranks", "decode.tp_size", found, why, "Let one be a multiple of the other.")
    elif ranks[0] != ranks[1] and family_of(decode.target) not in {*_LATENT, None}:
        found = f"comes to {ranks[0]} attention ranks, and prefill's to {ranks[1]}"
        why = "each rank keeps heads of its own, which are cut and sent one by one; the engine promises no speed"
        yield warn("disaggregation.ranks", "decode.tp_size", found, why)


def one_side(prefill: Situation, decode: Situation) -> Iterator[Finding]:
    where = "speculative_algorithm"
    if prefill.arguments.speculates and not decode.arguments.speculates:
        yield refuse(
            "disaggregation.prefill-only",
            f"decode.{where}",
            f"is left out, and prefill's is {prefill.arguments.speculative_algorithm}",
            "prefill would send a draft's KV that decode has no place for",
            "Write the same on both, or leave it out on both.",
        )
    elif decode.arguments.speculates and not prefill.arguments.speculates:
        risks = ["each request's first drafts start from nothing"]
        if decode.arguments.attention_dp > 1:
            risks.append("under attention data parallelism such pairs were seen to hang")
        attention = decode.target.shape.attention if decode.target.shape is not None else None
        if isinstance(attention, DsaAttention) and attention.shared_in_draft:
            risks.append("the indices its steps share do not come either, and those batches run without a graph")
        found = f"is {decode.arguments.speculative_algorithm}, and prefill's is left out"
        yield warn("disaggregation.decode-only", f"decode.{where}", found, "; ".join(risks), _CANARY)


def one_draft(prefill: Situation, decode: Situation) -> Iterator[Finding]:
    """Where both speculate they draft alike: decode goes on from the draft's state and KV that prefill made."""
    if not (prefill.arguments.speculates and decode.arguments.speculates):
        return
    rule, why = "disaggregation.draft", "decode goes on with the draft's state and KV that prefill makes"
    algorithms = algorithm_of(prefill), algorithm_of(decode)
    if algorithms[0] != algorithms[1]:
        found = f"comes to {algorithms[1]}, and prefill's to {algorithms[0]}"
        yield refuse(rule, "decode.speculative_algorithm", found, why, "Write the same on both.")
    branches = branches_of(prefill), branches_of(decode)
    if branches[0] != branches[1]:
        found = f"is {branches[1]}, and prefill's is {branches[0]}"
        yield refuse(rule, "decode.speculative_eagle_topk", found, why, "Write the same on both.")
    elif branches[1] > _MOST_BRANCHES:
        why = f"a request carries {_MOST_BRANCHES} from prefill to decode"
        yield refuse(rule, "decode.speculative_eagle_topk", f"is {branches[1]}", why, "Write 1.")
    elif branches[1] > 1 and family_of(decode.target) in _LATENT:
        why = "trees across two engines were seen to fail with the MTP layer of these models, and nobody has shown them since"
        yield warn("disaggregation.tree", "decode.speculative_eagle_topk", f"is {branches[1]}", why, "Write 1.")
    paths = _draft_path(prefill), _draft_path(decode)
    if paths[0] != paths[1]:
        found = f"is {_said(paths[1])}, and prefill's is {_said(paths[0])}"
        yield refuse(rule, "decode.speculative_draft_model_path", found, why, "Write the same on both.")
    yield from chain.from_iterable(_equal(rule, name, prefill, decode, why) for name in _ALIKE)
    for name in _ALIKE_IF_WRITTEN:
        if None not in {getattr(prefill.arguments, name), getattr(decode.arguments, name)}:
            yield from _equal(rule, name, prefill, decode, why)


def _equal(rule: str, name: str, prefill: Situation, decode: Situation, why: str) -> Iterator[Finding]:
    ours, theirs = getattr(decode.arguments, name), getattr(prefill.arguments, name)
    if ours != theirs:
        found = f"is {_said(ours)}, and prefill's is {_said(theirs)}"
        yield refuse(rule, f"decode.{name}", found, why, "Write the same on both.")


def _said(value: object) -> str:
    return "left out" if value is None else str(value)


def _draft_path(situation: Situation) -> str | None:
    """The target's own path, written or not, is the head in its checkpoint."""
    path = situation.arguments.speculative_draft_model_path
    return None if path == situation.arguments.model_path else path


def _attention_ranks(situation: Situation) -> int:
    asked = situation.arguments
    return max(1, (asked.tp_size or 1) // (asked.attention_dp * (asked.attn_cp_size or 1)))


PAIR_RULES = (roles, one_model, kv_cache, transfer, layout, one_side, one_draft)
