"""Rules about how a model lies across ranks: tensor, data, expert, pipeline and context parallelism, nodes and GPUs. Pure.

`tp_size` counts every rank of one copy; attention data and context parallelism and experts divide it, pipeline stages and whole copies
(`dp_size`) multiply it. Read in SGLang 0.5.23: `arg_groups/parallel_hook.py`, `arg_groups/validation_hook.py`.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, correct, note, refuse, warn
from spec_toolkit.facts.model import DsaAttention, WindowedAttention
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.rules.resolved import Generation
from spec_toolkit.planning.situation import Situation

REFUSED_BY_ENGINE = frozenset(
    {
        *("layout.dp-attention", "layout.nodes", "layout.copies-over-nodes", "layout.copies-and-ranks", "layout.cp"),
        *("layout.moe-dp", "layout.overlap-two-batches", "layout.exchange"),
    }
)

_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_SIZES = ("tp_size", "dp_size", "ep_size", "pp_size", "attn_dp_size", "attn_cp_size", "moe_dp_size", "nnodes")
# Exchanges that make every rank of tp an expert rank, whatever ep_size says.
_SPANS_TP = frozenset(
    {
        *("megamoe", "deepep", "deepep_v2", "mooncake", "nixl", "flashinfer", "flashinfer_megamoe", "mori", "pplx"),
        "ascend_fuseep",
    }
)


def copies_of(situation: Situation) -> int:
    """Whole copies of the model."""
    asked = situation.arguments
    return 1 if asked.enable_dp_attention or asked.attn_dp_size is not None else _size(asked.dp_size)


def sizes(situation: Situation) -> Iterator[Finding]:
    for where in _SIZES:
        value = getattr(situation.arguments, where)
        if value is not None and value < 1:
            yield refuse("layout.size", where, f"is {value}", "a layout counts from 1", "Leave it out, or write one.")


def _size(asked: int | None) -> int:
    """What is refused above is taken for 1, so that the other rules can go on."""
    return max(1, asked or 1)


def dp_field(situation: Situation) -> str:
    return "attn_dp_size" if situation.arguments.attn_dp_size is not None else "dp_size"


def attention_ranks(situation: Situation) -> Iterator[Finding]:
    asked, tp = situation.arguments, _size(situation.arguments.tp_size)
    ranks = _size(asked.attention_dp)
    if tp % ranks:
        why, remedy = f"attention ranks lie inside tp {tp}", "Choose a divisor of tp."
        yield refuse("layout.dp-attention", dp_field(situation), f"is {ranks}", why, remedy)
    if _size(asked.attn_dp_size) > 1 and _size(asked.dp_size) > 1 and not asked.enable_dp_attention:
        found = f"is {asked.dp_size}, with attn_dp_size {asked.attn_dp_size}"
        why = "the engine does not combine copies of the model with ranks of attention data parallelism"
        yield refuse("layout.copies-and-ranks", "dp_size", found, why, "Keep one of the two.")
    if asked.enable_dp_lm_head and ranks == 1 and copies_of(situation) == 1:
        why = "it divides the output layer between ranks of attention data parallelism, and there are none"
        where, remedy = "enable_dp_lm_head", "Planned without; leave it out."
        yield correct("layout.dp-lm-head", where, "is asked for", why, remedy, ((where, None),))


def context_ranks(situation: Situation) -> Iterator[Finding]:
    asked, tp = situation.arguments, _size(situation.arguments.tp_size)
    cp, moe_dp = _size(asked.attn_cp_size), _size(asked.moe_dp_size)
    if cp > 1 and tp % (_size(asked.attention_dp) * cp):
        inside = f" with attn_dp {asked.attention_dp}" if asked.attention_dp > 1 else ""
        why = f"ranks of context parallelism lie inside tp {tp}{inside}"
        yield refuse("layout.cp", "attn_cp_size", f"is {cp}", why, "Choose one that divides it.")
    if moe_dp == 1:
        return
    where, found, experts = "moe_dp_size", f"is {moe_dp}", _size(asked.ep_size)
    if asked.moe_a2a_backend in _SPANS_TP:
        experts = tp
    if tp % moe_dp or (experts > 1 and experts * moe_dp != tp):
        why = f"it must divide tp {tp}" + (f", and with ep_size {experts} make it up" if experts > 1 else "")
        yield refuse("layout.moe-dp", where, found, why, "Choose other sizes.")
    elif _size(asked.pp_size) > 1:
        yield refuse("layout.moe-dp", where, found, f"it goes with one pipeline stage, and pp_size is {asked.pp_size}")
    elif cp != moe_dp:
        yield refuse("layout.moe-dp", where, found, f"above 1 it equals attn_cp_size, which is {cp}")


def experts(situation: Situation) -> Iterator[Finding]:
    asked, tp = situation.arguments, _size(situation.arguments.tp_size)
    ep = _size(asked.ep_size)
    if asked.moe_a2a_backend in _SPANS_TP:
        if asked.ep_size not in {None, tp}:
            why = f"with {asked.moe_a2a_backend} every rank of tp is an expert rank, and the engine takes {tp}"
            remedy = f"Planned with {tp}; write that, or leave it out."
            yield correct("layout.ep", "ep_size", f"is {ep}", why, remedy, (("ep_size", tp),))
        ep = tp
    elif tp % ep:
        yield refuse(
            "layout.ep", "ep_size", f"is {ep}", f"experts are spread inside tp {tp}", "Choose a divisor of tp."
        )
        return
    shape = situation.target.shape
    if shape is not None and shape.experts is not None and shape.experts.routed % ep:
        why = f"the model has {shape.experts.routed} experts, and every rank holds as many as the others"
        yield refuse("layout.experts", "ep_size", f"is {ep}", why, "Choose a divisor.")


def heads(situation: Situation) -> Iterator[Finding]:
    shape, asked = situation.target.shape, situation.arguments
    across = _size(asked.tp_size) // _size(asked.attention_dp) // _size(asked.attn_cp_size)
    if shape is None or across <= 1:
        return
    attention = shape.attention
    number = attention.mla.num_heads if isinstance(attention, DsaAttention) else attention.num_heads
    if number % across:
        why = f"the model has {number} attention heads, and {across} ranks share them"
        yield refuse(
            "layout.heads", "tp_size", f"is {asked.tp_size}", why, "Choose a divisor, or attention data parallelism."
        )
    elif isinstance(attention, WindowedAttention):
        for kind, count in (("window", attention.window_kv_heads), ("full", attention.full_kv_heads)):
            if count % across and across % count:
                why = f"its {kind} layers have {count} KV heads, and {across} ranks share or repeat them evenly"
                yield refuse("layout.heads", "tp_size", f"is {asked.tp_size}", why, "Choose a divisor or a multiple.")


def nodes(situation: Situation) -> Iterator[Finding]:
    asked, count = situation.arguments, _size(situation.arguments.nnodes)
    size = _size(asked.tp_size) * _size(asked.pp_size)
    if size % count:
        why = f"tp_size times pp_size is {size}, and nodes share the ranks evenly"
        yield refuse("layout.nodes", "nnodes", f"is {count}", why, "Choose a divisor.")
    if copies_of(situation) > 1 and count > 1:
        found, why = f"is {asked.dp_size}, over {count} nodes", "the engine keeps copies of the model on one node"
        remedy = "Use attention data parallelism, or one launch a node behind a router."
        yield refuse("layout.copies-over-nodes", "dp_size", found, why, remedy)
    if asked.node_rank is not None and not 0 <= asked.node_rank < count:
        why = f"the {count} {'nodes are' if count > 1 else 'node is'} numbered from 0"
        yield refuse("layout.node-rank", "node_rank", f"is {asked.node_rank}", why, "Write this node's number.")


def gpus(situation: Situation) -> Iterator[Finding]:
    """Ranks against the GPUs under them; says nothing where nobody said which machines these are."""
    asked, site = situation.arguments, situation.site
    if site.gpu in {None, "cpu"}:
        return
    copies = copies_of(situation)
    needed = _size(asked.tp_size) * _size(asked.pp_size) * copies
    parts = [f"tp {_size(asked.tp_size)}"]
    parts += [f"{word} {value}" for word, value in (("pp", _size(asked.pp_size)), ("dp", copies)) if value > 1]
    found = f"takes {needed} GPUs ({', '.join(parts)})"
    has = f"{site.nodes} x {site.gpus_per_node}" if site.nodes > 1 else f"{site.ranks}"
    if needed > site.ranks:
        yield refuse("layout.count", "tp_size", found, f"the hardware has {has}", "Describe more GPUs, or lower tp.")
    elif needed < site.ranks:
        yield warn(
            "layout.count",
            "tp_size",
            found,
            f"the hardware has {has}: the others would stand idle",
            "Raise tp, or ask for fewer.",
        )
    if _size(asked.nnodes) != site.nodes and needed > site.gpus_per_node:
        why = f"one node has {site.gpus_per_node} GPUs, and the engine on it would look for {-(-needed // _size(asked.nnodes))}"
        yield refuse(
            "layout.node-count", "nnodes", f"is {_size(asked.nnodes)}, on {site.nodes}", why, f"Write {site.nodes}."
        )


def network(situation: Situation) -> Iterator[Finding]:
    """C103: without a word the collectives take the first interface they find, and that is seldom the fast one."""
    asked = situation.arguments
    if _size(asked.nnodes) == 1:
        return
    why = "collectives take the first interface they find: they hang, or run over TCP where RDMA was meant"
    pod = "A pod also needs the RDMA device and IPC_LOCK."
    if situation.sets_environment:  # of each node, and of no recipe
        remedy = f"Where its nodes are deployed, set node 0's address and {' and '.join(_INTERFACES)}. {pod}"
        yield note("network.interfaces", "nnodes", f"is {asked.nnodes}", f"left to themselves, {why}", remedy)
        return
    if asked.dist_init_addr is None:
        yield warn(
            "network.meeting-point",
            "dist_init_addr",
            "is left out, over several nodes",
            "every node would wait for the others at an address of its own",
            "Write node 0's address and a port.",
        )
    unset = [name for name in _INTERFACES if name not in situation.environment]
    if unset:
        found = f"is not set{f', nor is {unset[1]}' if len(unset) > 1 else ''}, over {asked.nnodes} nodes"
        yield warn("network.interfaces", unset[0], found, why, f"Name the interface. {pod}")


def two_batches(situation: Situation) -> Iterator[Finding]:
    asked, shape = situation.arguments, situation.target.shape
    if not asked.enable_two_batch_overlap:
        return
    where, found = "enable_two_batch_overlap", "is asked for"
    if asked.moe_a2a_backend in {None, "none"} and _size(asked.attention_dp) == 1:
        why = "without an expert exchange it needs attention data parallelism"
        yield refuse("layout.overlap-two-batches", where, found, why, "Write one of the two, or leave it out.")
    attention = shape.attention if shape is not None else None
    if shape is not None and isinstance(attention, DsaAttention) and attention.indexer_layers < shape.layers:
        why = f"layers share their indices here ({attention.indexer_layers} indexers for {shape.layers} layers), and halves of a batch would not pass them on"
        yield refuse("layout.overlap-two-batches", where, found, why, "Leave it out.")


def exchanges(situation: Situation) -> Iterator[Finding]:
    """What an exchange between experts asks of the layout under it."""
    asked, name = situation.arguments, situation.arguments.moe_a2a_backend
    ranks = _size(asked.attention_dp)
    where, found = "moe_a2a_backend", f"is {name}"
    if name in {"flashinfer", "flashinfer_megamoe"} and ranks != _size(asked.tp_size):
        why = f"every rank of tp {_size(asked.tp_size)} must hold requests of its own, and {ranks} do"
        yield refuse("layout.exchange", where, found, why, "Write attn_dp_size equal to tp_size, or another exchange.")
    if name == "pplx" and ranks < 2:
        why = "it needs two ranks of attention data parallelism or more"
        yield refuse("layout.exchange", where, found, why, "Write attn_dp_size, or another exchange.")
    generation = resolved.generation_of(situation.site)
    if name == "flashinfer_megamoe" and generation not in {None, Generation.BLACKWELL}:
        yield refuse(
            "layout.exchange",
            where,
            f"{found}, on {situation.site.gpu}",
            "its kernels need a B200 or B300",
            "Use another.",
        )
    if name == "deepep_v2" and asked.enable_two_batch_overlap:
        yield refuse(
            "layout.exchange",
            where,
            f"{found}, with two batches",
            "it cannot overlap them",
            "Leave one of the two out.",
        )
    draft = asked.speculative_moe_a2a_backend or name
    if draft == "deepep_v2" and resolved.algorithm_of(situation) not in {None, "NGRAM"}:
        why = "the engine does not take deepep_v2 for a draft, which follows the target where nothing is said"
        remedy = "Write another for the draft."
        yield refuse(
            "layout.exchange",
            "speculative_moe_a2a_backend",
            "is deepep_v2" if asked.speculative_moe_a2a_backend else "is left out",
            why,
            remedy,
        )
    if name == "deepep" and asked.deepep_mode == "normal":
        why = "its normal mode cannot be captured, and the engine runs every batch without a graph"
        yield warn("layout.exchange-without-graphs", "deepep_mode", "is normal", why, "Write low_latency, or auto.")


RULES = (sizes, attention_ranks, context_ranks, experts, heads, nodes, gpus, network, two_batches, exchanges)
