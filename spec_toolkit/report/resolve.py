"""What the engine decided, as text. Pure: a record in, a string out."""

import msgspec

from spec_toolkit.errors import Verdict
from spec_toolkit.launch.resolving.records import Decided, Resolution


def as_json(found: Resolution) -> str:
    return msgspec.json.encode(found).decode()


def resolution(found: Resolution) -> str:
    """What it decided, by subject; then what it said, what differs, and one line that sums it up."""
    parts = [f"{found.name} on {found.machine}, as sglang {found.engine or '(not asked)'} resolves it"]
    if found.decided:
        parts.append(_table(found.decided))
    if found.autoregressive:
        parts.append("without speculation\n" + _table(found.autoregressive, only=_FALLBACK))
    if found.said:
        parts.append("sglang says\n" + "\n".join(f"  {' '.join(line.split())}" for line in found.said))
    if found.findings:
        parts.append("\n".join(f"{f.verdict.value:<7}  {f.sentence()}" for f in found.findings))
    return "\n\n".join([*parts, _sum(found)])


_FALLBACK = ("attention", "memory", "requests", "decode graphs", "prefill")


def _table(decided: Decided, only: tuple[str, ...] | None = None) -> str:
    rows = [(name, said) for name, said in _rows(decided) if said and (only is None or name in only)]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {said}" for name, said in rows)


def _rows(d: Decided) -> list[tuple[str, str]]:
    return [
        ("attention", _attention(d)),
        ("layout", _layout(d)),
        ("weights", _listed(d.dtype, d.quantization and f"quantised as {d.quantization}")),
        ("KV cache", _listed(_kv(d), d.page_tokens and f"pages of {_count(d.page_tokens, 'token')}")),
        ("memory", _memory(d)),
        ("requests", _requests(d)),
        ("decode graphs", _graphs(d.decode_graph_backend, d.decode_graphs, "batch")),
        ("prefill", _prefill(d)),
        ("prefill graphs", _graphs(d.prefill_graph_backend, d.prefill_graphs, "token")),
        ("experts", _experts(d.moe_runner, d.moe_all_to_all)),
        ("speculation", _speculation(d)),
        ("draft's experts", _experts(d.draft_moe_runner, d.draft_moe_all_to_all)),
        ("schedule", _schedule(d)),
    ]


def _attention(d: Decided) -> str:
    same = d.prefill_attention == d.decode_attention
    main = d.prefill_attention if same else f"{d.prefill_attention} in prefill, {d.decode_attention} in decode"
    sparse = d.sparse_prefill and f"sparse kernels {d.sparse_prefill} in prefill, {d.sparse_decode} in decode"
    draft = d.draft_attention and f"{d.draft_attention} for the draft"
    return _listed(main, sparse, draft, d.verify_attention and f"verified by {d.verify_attention}'s")


def _layout(d: Decided) -> str:
    parts = [f"tp {d.tp}"]
    parts += [
        f"{name} {size}" for name, size in (("attention dp", d.attention_dp), ("ep", d.ep), ("pp", d.pp)) if size > 1
    ]
    return _listed(*parts, d.nodes > 1 and f"{d.nodes} nodes")


def _kv(d: Decided) -> str | None:
    return f"auto ({d.dtype}, where the checkpoint says nothing)" if d.kv_cache_dtype == "auto" else d.kv_cache_dtype


def _memory(d: Decided) -> str:
    fraction = d.memory_fraction is not None and f"{d.memory_fraction:.3f} of a GPU for weights and KV pool"
    return _listed(fraction, d.pool_tokens and f"a pool of at most {_count(d.pool_tokens, 'token')}")


def _requests(d: Decided) -> str:
    if d.max_running_requests is None:
        return "as many as memory holds"
    share = d.max_running_requests // d.attention_dp
    return _listed(
        f"at most {d.max_running_requests} at once", d.attention_dp > 1 and f"{share} on each attention-DP rank"
    )


def _prefill(d: Decided) -> str:
    chunk = d.chunked_prefill_tokens
    if chunk is None:
        return ""
    return f"chunks of {_count(chunk, 'token')}" if chunk > 0 else "not chunked"


def _graphs(backend: str | None, sizes: tuple[int, ...], unit: str) -> str:
    if not sizes:
        return "none"
    shown = " ".join(map(str, sizes)) if len(sizes) <= 30 else f"{' '.join(map(str, sizes[:8]))} ... {sizes[-1]}"
    return f"{backend}, {len(sizes)} {unit} sizes: {shown}"


def _experts(runner: str | None, exchange: str | None) -> str:
    return _listed(runner and f"kernels {runner}", exchange not in (None, "none") and f"all-to-all {exchange}")


def _speculation(d: Decided) -> str:
    if d.algorithm is None:
        return "none"
    return _listed(
        d.algorithm,
        d.num_steps is not None and _count(d.num_steps, "step"),
        d.topk is not None and f"topk {d.topk}",
        d.num_draft_tokens is not None and f"{_count(d.num_draft_tokens, 'token')} a round",
        d.adaptive and f"adaptive, {d.widest_round} at most",
        d.rejection_sampling and "rejection sampling",
        d.draft_model and f"draft {d.draft_model}",
    )


def _schedule(d: Decided) -> str:
    return _listed(
        "overlap" if d.overlap else "no overlap",
        "prefix cache" if d.radix_cache else "no prefix cache",
        d.conservativeness is not None and f"conservativeness {d.conservativeness:g}",
        d.sampling and f"sampling {d.sampling}",
    )


def _sum(found: Resolution) -> str:
    if not found.resolved:
        return f"{found.name} does not resolve"
    differing = sum(finding.rule == "resolve.differs" for finding in found.findings)
    refused = any(finding.verdict is Verdict.REFUSE for finding in found.findings)
    if refused:
        return f"{found.name} is refused"
    differs = f"{_count(differing, 'value')} other than asked" if differing else "nothing differs from what is asked"
    return f"{found.name} resolves: {differs}"


def _listed(*parts: str | bool | int | None) -> str:
    return ", ".join(part for part in parts if isinstance(part, str) and part)


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"
