"""How many parameters a model has, by kind, counted from its shape. Pure.

Kinds are what is stored and divided among ranks alike. Counts equal those of the published models (tests); left out are DeepSeek V4's
mixing of residual streams and Gemma 4's towers for images and sound, together the difference to a checkpoint's size.
"""

import functools
from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

from spec_toolkit.facts.model import (
    CompressedAttention,
    DsaAttention,
    Experts,
    MlaAttention,
    ModelShape,
    WindowedAttention,
)


class Kind(Enum):
    EMBEDDING = "embedding"
    HEAD = "output head"
    PROJECTIONS = "attention projections"  # by heads: query, key and value out of their latents
    OUTPUT = "attention output"
    LATENTS = "attention latents"  # into the latents: whole on each rank
    INDEXER = "indexer"
    DENSE = "dense MLP"
    ROUTED = "routed experts"
    SHARED = "shared experts"
    SMALL = "norms and gates"
    LAYER_EMBEDDING = "embedding of each layer"


class Count(Struct, frozen=True):
    kind: Kind
    params: int


@functools.cache
def count_target(shape: ModelShape) -> tuple[Count, ...]:
    h, vocab = shape.hidden_size, shape.vocab_size
    found = [Count(Kind.EMBEDDING, vocab * h), Count(Kind.SMALL, h)]
    if not shape.tied_embeddings:
        found.append(Count(Kind.HEAD, vocab * h))
    if shape.per_layer_embedding:
        width = shape.per_layer_embedding
        found.append(Count(Kind.LAYER_EMBEDDING, vocab * width * shape.layers))
        found.append(Count(Kind.LATENTS, shape.layers * (3 * h * width + h)))  # into it, its gate and back
    found.append(Count(Kind.DENSE, 3 * h * shape.intermediate_size * shape.double_width_layers))  # the other half
    for layer in range(shape.layers):
        found.extend(_attention(shape, layer))
        found.extend(_mlp(shape, dense=layer < shape.experts.dense_layers if shape.experts else True))
        found.append(Count(Kind.SMALL, (4 if isinstance(shape.attention, WindowedAttention) else 2) * h))
    return _summed(found)


@functools.cache
def count_draft(shape: ModelShape, *, stages: int | None = None) -> tuple[Count, ...]:
    """Of the draft in the checkpoint, without the copies of embedding and head that it shares with the target when it is loaded.

    `stages`: layers of a DSpark draft; left out: the MTP layer's.
    """
    h = shape.hidden_size
    found: list[Count] = []
    for layer in range(stages if stages is not None else shape.mtp_layers):
        found.extend(_attention(shape, shape.layers + layer))
        found.extend(_mlp(shape, dense=False))
        found.append(Count(Kind.LATENTS, 2 * h * h))  # joins the hidden state and the token
        found.append(Count(Kind.SMALL, 5 * h))
    return _summed(found)


def _attention(shape: ModelShape, layer: int) -> Iterator[Count]:
    match shape.attention:
        case MlaAttention() as mla:
            yield from _mla(mla, shape.hidden_size)
        case DsaAttention() as dsa:
            yield from _mla(dsa.mla, shape.hidden_size)
            if (
                layer < dsa.indexer_layers or layer >= shape.layers
            ):  # which of the layers own one does not change the sum
                yield from _indexer(dsa, shape.hidden_size)
        case CompressedAttention() as v4:
            ratio = v4.compress_ratios[layer] if layer < len(v4.compress_ratios) else 0
            yield from _compressed(v4, shape.hidden_size, ratio)
        case WindowedAttention() as gemma:
            yield from _windowed(gemma, shape.hidden_size, full=layer < gemma.full_layers)


def _mla(mla: MlaAttention, h: int) -> Iterator[Count]:
    query = mla.num_heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    latent = mla.q_lora_rank or 0
    yield Count(Kind.LATENTS, h * (latent + mla.kv_lora_rank + mla.qk_rope_head_dim))
    yield Count(Kind.PROJECTIONS, (latent or h) * query)
    yield Count(Kind.PROJECTIONS, mla.kv_lora_rank * mla.num_heads * (mla.qk_nope_head_dim + mla.v_head_dim))
    yield Count(Kind.OUTPUT, mla.num_heads * mla.v_head_dim * h)
    yield Count(Kind.SMALL, latent + mla.kv_lora_rank)


def _indexer(dsa: DsaAttention, h: int) -> Iterator[Count]:
    yield Count(
        Kind.INDEXER, (dsa.mla.q_lora_rank or h) * dsa.index_heads * dsa.index_head_dim + h * dsa.index_head_dim
    )
    yield Count(Kind.SMALL, 2 * dsa.index_head_dim + h * dsa.index_heads)


def _compressed(v4: CompressedAttention, h: int, ratio: int) -> Iterator[Count]:
    heads = v4.num_heads * v4.head_dim
    yield Count(Kind.LATENTS, h * (v4.q_lora_rank + v4.head_dim))
    yield Count(Kind.PROJECTIONS, v4.q_lora_rank * heads)
    yield Count(Kind.PROJECTIONS, heads * v4.o_lora_rank)
    yield Count(Kind.OUTPUT, v4.o_groups * v4.o_lora_rank * h)
    yield Count(Kind.SMALL, v4.q_lora_rank + v4.head_dim + v4.num_heads)
    if ratio:
        yield Count(Kind.INDEXER, _compressor(h, v4.head_dim, ratio))
    if ratio == 4:
        yield Count(Kind.INDEXER, v4.q_lora_rank * v4.index_heads * v4.index_head_dim + h * v4.index_heads)
        yield Count(Kind.INDEXER, _compressor(h, v4.index_head_dim, ratio))


def _compressor(h: int, width: int, ratio: int) -> int:
    overlap = 2 if ratio == 4 else 1
    return 2 * h * overlap * width + ratio * overlap * width + width


def _windowed(gemma: WindowedAttention, h: int, *, full: bool) -> Iterator[Count]:
    width = gemma.full_head_dim if full else gemma.window_head_dim
    heads = gemma.full_kv_heads if full else gemma.window_kv_heads
    values = 1 if full and gemma.keys_are_values else 2
    yield Count(Kind.PROJECTIONS, h * width * (gemma.num_heads + values * heads))
    yield Count(Kind.OUTPUT, gemma.num_heads * width * h)
    yield Count(Kind.SMALL, 2 * width)


def _mlp(shape: ModelShape, *, dense: bool) -> Iterator[Count]:
    h, experts = shape.hidden_size, shape.experts
    if dense or experts is None or experts.beside_dense:
        yield Count(Kind.DENSE, 3 * h * shape.intermediate_size)
    if experts is not None and not dense:
        yield from _experts(experts, h)


def _experts(experts: Experts, h: int) -> Iterator[Count]:
    one = 3 * h * experts.intermediate_size
    yield Count(Kind.ROUTED, experts.routed * one)
    yield Count(Kind.SHARED, experts.shared * one)
    yield Count(Kind.SMALL, experts.routed * (h + 1))


def _summed(counts: list[Count]) -> tuple[Count, ...]:
    sums = {kind: sum(count.params for count in counts if count.kind is kind) for kind in Kind}
    return tuple(Count(kind, params) for kind, params in sums.items() if params)
