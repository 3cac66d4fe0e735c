"""Where the engine decides something else than the plan reckons with. Pure. Each such place is a fault of the plan, not of the recipe."""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, warn
from spec_toolkit.launch.resolving.records import Decided
from spec_toolkit.planning.captured import chunk_tokens
from spec_toolkit.planning.plan import Plan
from spec_toolkit.planning.rules.resolved import backends_of, is_adaptive, kv_word

_ROUNDING = 0.0005  # the engine keeps three digits of its memory fraction


def misjudged(plan: Plan, found: Decided) -> Iterator[Finding]:
    for what, reckoned, taken in _pairs(plan, found):
        if reckoned is not None and not _same(reckoned, taken):
            yield warn(
                "resolve.misjudged",
                "plan",
                f"reckons with {what} {_shown(reckoned)}, the engine takes {_shown(taken)}",
                "what the plan says of memory and speed rests on it",
                "Trust the engine, and file this with the recipe.",
            )


def _pairs(plan: Plan, found: Decided) -> Iterator[tuple[str, object, object]]:
    """What it is about, the plan's value (None: it has none) and the engine's."""
    situation, ledger, admission = plan.situation, plan.forecast.ledger, plan.forecast.admission
    backends = backends_of(situation)
    yield "attention in prefill", backends.prefill, found.prefill_attention
    yield "attention in decode", backends.decode, found.decode_attention
    yield "pages in tokens", ledger.page_size, found.page_tokens
    yield "a memory fraction", ledger.fraction, found.memory_fraction
    yield "prefill chunks in tokens", chunk_tokens(situation), found.chunked_prefill_tokens
    yield "a request cap", admission and admission.cap, found.max_running_requests
    yield "prefill graphs", admission and admission.prefill_graphs, found.prefill_graphs
    yield "adaptive speculation", is_adaptive(situation), found.adaptive
    if found.kv_cache_dtype != "auto":
        yield "a KV cache in", kv_word(situation), found.kv_cache_dtype


def _same(reckoned: object, taken: object) -> bool:
    if isinstance(reckoned, float) and isinstance(taken, float):
        return abs(reckoned - taken) <= _ROUNDING
    return reckoned == taken


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} sizes up to {max(value)}" if value else "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
