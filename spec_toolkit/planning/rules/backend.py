"""Rules about attention backends: what each can run, with which pages, on which GPU, and how wide a draft it verifies. Pure.

A tree (topk above 1) over pages of more than one token needs a second pass per branch, which flashinfer, fa3 and triton have; the
backends for MLA and TRT-LLM's verify chains alone. What the engine refuses while it reads its arguments is in `REFUSED_BY_ENGINE`; the
rest it refuses when it builds the backend, minutes later, or at the first request. Read in SGLang 0.5.23: `arg_groups/overrides.py`,
`arg_groups/model_hook.py`, `layers/attention/attention_registry.py`, `speculative/draft_utils.py`.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, correct, refuse, warn
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.rules.resolved import EAGLE_FAMILY, Family, Generation
from spec_toolkit.planning.situation import Situation

REFUSED_BY_ENGINE = frozenset({"backend.page-tree", "backend.gemma", "backend.flex", "backend.sparse-kernels"})

_FIELDS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
_TREES_OVER_PAGES = frozenset({"flashinfer", "fa3", "triton"})
_CHAINS_ALONE = {  # by backend: the reason
    "flashmla": "FlashMLA verifies a chain alone",
    "trtllm_mla": "TRT-LLM's MLA kernels verify a chain alone",
    "cutedsl_mla": "the CuTe DSL kernels for MLA verify a chain alone",
    "trtllm_mha": "TRT-LLM's kernels verify a chain alone",
    "dsa": "sparse attention verifies a chain alone",
}
_DRAFTS = frozenset(
    {
        *("flashinfer", "triton", "fa3", "fa4", "flashmla", "trtllm_mha", "trtllm_mla", "cutedsl_mla", "dsa", "dsv4"),
        *("intel_amx", "intel_xpu", "aiter", "ascend", "hybrid_linear_attn"),
    }
)
_ALIAS = {"nsa": "dsa", "compressed": "dsv4", "tokenspeed_mla": "cutedsl_mla"}
_GEMMA = frozenset({"trtllm_mha", "triton", "fa4", "ascend", "intel_xpu", "intel_amx", "aiter"})
_GEMMA_ON_NVIDIA = "trtllm_mha, triton or fa4"
_MLA_ONLY = frozenset({"trtllm_mla", "cutedsl_mla", "flashmla"})
_NEVER_MLA = frozenset({"trtllm_mha", "hpc_ops"})


def chain_only(situation: Situation) -> Iterator[Finding]:
    """C024, and every other pairing of backend, page and topk."""
    topk, algorithm, family = (
        resolved.branches_of(situation),
        resolved.algorithm_of(situation),
        resolved.family_of(situation.target),
    )
    if topk == 1 or algorithm not in EAGLE_FAMILY or family is Family.V4:
        return
    backends, page = resolved.backends_of(situation), resolved.page_tokens(situation)
    found = f"is {topk}, with attention backend"
    for name in dict.fromkeys(
        _ALIAS.get(name, name) for name in (backends.base, backends.decode, backends.prefill) if name
    ):
        why = _CHAINS_ALONE.get(name)
        if name == "flashinfer" and family is Family.MLA:
            why = "FlashInfer's MLA kernels verify a chain alone"
        if why is not None:
            yield refuse(
                "backend.chain-only", "speculative_eagle_topk", f"{found} {_said(name, backends.asked)}", why, _CHAIN
            )
            return
    if page is not None and page > 1 and backends.base is not None and backends.base not in _TREES_OVER_PAGES:
        why = f"a tree over pages of {page} tokens runs on {', '.join(sorted(_TREES_OVER_PAGES))} alone"
        remedy = "Write page_size 1, one of those, or topk 1."
        yield refuse("backend.page-tree", "speculative_eagle_topk", f"{found} {backends.base}", why, remedy)


_CHAIN = "Write topk 1, or a backend that verifies trees."


def assistant_tree(situation: Situation) -> Iterator[Finding]:
    """Before an assistant nothing compares the two until the worker is built."""
    topk = resolved.branches_of(situation)
    if topk == 1 or resolved.algorithm_of(situation) != "FROZEN_KV_MTP":
        return
    decode = resolved.backends_of(situation).decode
    found = f"is {topk}, with attention backend {decode}"
    if decode == "trtllm_mha":
        why = "the draft makes a tree of it, and these kernels verify as if it were a chain"
        yield warn("backend.chain-only", "speculative_eagle_topk", found, why, "Write topk 1, or triton.")
    elif decode is not None and decode != "triton" and decode in _GEMMA:
        why = "a Gemma 4 assistant drafts trees on triton and trtllm_mha alone"
        yield refuse("backend.chain-only", "speculative_eagle_topk", found, why, "Write topk 1, or triton.")


def ngram_pages(situation: Situation) -> Iterator[Finding]:
    """NGRAM verifies a tree as broad as its search, whatever topk says."""
    if resolved.algorithm_of(situation) != "NGRAM" or resolved.family_of(situation.target) is Family.V4:
        return
    backends, page = resolved.backends_of(situation), resolved.page_tokens(situation)
    if page is not None and page > 1 and backends.base not in {None, "flashinfer"}:
        why = f"NGRAM verifies a tree, and over pages of {page} tokens that runs on flashinfer alone"
        yield refuse(
            "backend.page-tree", "speculative_algorithm", f"is NGRAM, with attention backend {backends.base}", why
        )


def can_draft(situation: Situation) -> Iterator[Finding]:
    asked = situation.arguments
    if asked.speculates and asked.attention_backend == "flex_attention":
        why = "it runs without speculation alone"
        yield refuse("backend.flex", "attention_backend", "is flex_attention", why, "Use another, or leave it out.")
        return
    if resolved.algorithm_of(situation) not in EAGLE_FAMILY or resolved.family_of(situation.target) is Family.V4:
        return
    for field in _FIELDS:
        name = getattr(asked, field)
        if name is not None and _ALIAS.get(name, name) not in _DRAFTS:
            why = "the engine has no draft for this backend"
            yield refuse("backend.cannot-draft", field, f"is {name}", why, "Use another, or leave it out.")


def sparse_attention(situation: Situation) -> Iterator[Finding]:
    """C027, C083: a backend written by hand keeps the engine from choosing the one that knows the indexer; it starts all the same.

    Not so on a CPU, where a rehearsal brings sparse attention under the one backend it has.
    """
    if resolved.family_of(situation.target) is not Family.DSA:
        return
    fp8 = resolved.kv_is_fp8(situation)
    for field in _FIELDS:
        name = getattr(situation.arguments, field)
        if name is None or _ALIAS.get(name, name) == "dsa":
            continue
        if name == "intel_amx" and situation.site.gpu == "cpu":
            continue
        found, remedy = f"is {name}, for {situation.target.architecture or situation.target.name}", "Leave it out."
        if situation.arguments.speculates:
            why = "only 'dsa' runs the indexer that the draft's first step is seeded from, and the first request ends every rank"
            yield refuse("backend.sparse", field, found, why, remedy)
        elif fp8:
            why = "only 'dsa' writes the FP8 layout of sparse attention"
            yield refuse("backend.sparse", field, found, why, remedy)
        else:
            yield warn("backend.sparse", field, found, "only 'dsa' reads the model's sparse indices", remedy)


def sparse_kernels(situation: Situation) -> Iterator[Finding]:
    """Under 'dsa' stand two kernels, for prefill and for decode."""
    if resolved.family_of(situation.target) is not Family.DSA:
        return
    asked = situation.arguments
    chosen = {"dsa_prefill_backend": asked.dsa_prefill_backend, "dsa_decode_backend": asked.dsa_decode_backend}
    for field, name in chosen.items():
        if name == "triton":
            why = "for sparse attention it is ROCm's alone"
            yield refuse(
                "backend.sparse-kernels",
                field,
                "is triton",
                why,
                "Leave it out: flashmla_kv on Hopper, trtllm on Blackwell.",
            )
        elif name == "tilelang" and {*chosen.values()} != {"tilelang"} and resolved.kv_is_fp8(situation):
            why = "it lays an FP8 cache out in its own way, and the other phase would read it in another"
            yield refuse(
                "backend.sparse-kernels",
                field,
                "is tilelang, in one phase of two",
                why,
                "Write it for both, or for none.",
            )


def gemma(situation: Situation) -> Iterator[Finding]:
    """C028: heads of 512 and windows between full layers."""
    if resolved.family_of(situation.target) is not Family.GEMMA4:
        return
    for field in _FIELDS:
        name = getattr(situation.arguments, field)
        if name is not None and name not in _GEMMA:
            why = f"Gemma 4's heads of 512 run on {_GEMMA_ON_NVIDIA} alone"
            yield refuse("backend.gemma", field, f"is {name}", why, "Leave it out, and the engine chooses one of them.")


def v4(situation: Situation) -> Iterator[Finding]:
    name = situation.arguments.attention_backend
    if resolved.family_of(situation.target) is Family.V4 and name is not None and _ALIAS.get(name, name) != "dsv4":
        why = "for DeepSeek V4 the engine takes dsv4, whatever is written"
        yield correct(
            "backend.v4",
            "attention_backend",
            f"is {name}",
            why,
            "Planned with dsv4; leave it out.",
            (("attention_backend", None),),
        )


def on_this_gpu(situation: Situation) -> Iterator[Finding]:
    generation, family = resolved.generation_of(situation.site), resolved.family_of(situation.target)
    if generation is None or family in {Family.V4, Family.DSA}:
        return
    blackwell = {Generation.BLACKWELL, Generation.BLACKWELL_WORKSTATION}
    needs = {
        "trtllm_mla": (blackwell, "a Blackwell GPU"),
        "cutedsl_mla": ({Generation.BLACKWELL}, "a B200 or B300"),
        "trtllm_mha": ({Generation.HOPPER, *blackwell}, "a Hopper or Blackwell GPU"),
        "fa3": (
            {Generation.HOPPER} if family is Family.MLA else {Generation.HOPPER, Generation.AMPERE},
            "a Hopper GPU",
        ),
    }
    for field in _FIELDS:
        name = getattr(situation.arguments, field)
        fitting, words = needs.get(name, (None, ""))
        if fitting is not None and generation not in fitting:
            found = f"is {name}, on {situation.site.gpu} ({generation.value})"
            yield refuse("backend.gpu", field, found, f"its kernels need {words}", "Leave it out.")
    if (
        _ALIAS.get(situation.arguments.prefill_attention_backend or "", situation.arguments.prefill_attention_backend)
        == "cutedsl_mla"
    ):
        yield refuse("backend.gpu", "prefill_attention_backend", "is cutedsl_mla", "it decodes alone", "Leave it out.")


def of_its_kind(situation: Situation) -> Iterator[Finding]:
    family = resolved.family_of(situation.target)
    if family is not Family.MLA:  # the other families have rules of their own above
        return
    for field in _FIELDS:
        name = getattr(situation.arguments, field)
        if name in _NEVER_MLA:
            why = "it is for models without MLA"
            yield refuse("backend.kind", field, f"is {name}, for {family.value}", why, "Leave it out.")


def _said(name: str, asked: bool) -> str:
    return name if asked else f"{name}, which the engine takes here"


RULES = (
    chain_only,
    assistant_tree,
    ngram_pages,
    can_draft,
    sparse_attention,
    sparse_kernels,
    gemma,
    v4,
    on_this_gpu,
    of_its_kind,
)
