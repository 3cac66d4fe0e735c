"""What one verify pass sends between GPUs, and how much of it is for tokens that are rejected. Pure.

Bytes that one rank sends, counted as the usual algorithms do: of an all-reduce over p ranks 2 (p-1)/p of the payload (a reduce-scatter
and an all-gather, whether they stand together or apart), of either half (p-1)/p. A payload is tokens x hidden size x bytes of a value.

- Tensor parallelism: one all-reduce behind attention and one behind the feed-forward part of each layer, over all ranks; experts that
  are spread without an all-to-all (EP) make the same sum.
- Attention data parallelism: attention's all-reduce runs within a group of tp/dp ranks over the group's own tokens; in front of the
  feed-forward part the tokens of all groups are gathered, and their sums scattered behind it.
- An all-to-all (DeepEP and its like): in layers with experts each token travels to the k experts it chose, those on its own rank
  excepted, and as many results travel back. Tokens of a group are shared out among its ranks first, half an all-reduce, and gathered
  again for the next layer.

Routing is taken as uniform; a token that chose two experts of one rank is sent twice, as low-latency dispatch does. Of `width` positions
an emitted length of E makes use of E: the root and the drafts that were right. The rest was sent for nothing.
"""

from msgspec import Struct

from spec_toolkit.facts.model import ModelShape


class Layout(Struct, frozen=True, kw_only=True):
    """How a pass lies across ranks."""

    tp: int  # ranks
    attention_dp: int = 1  # groups that hold requests of their own
    all_to_all: bool = False  # experts are reached by dispatch and combine
    value_bytes: float = 2.0  # of an activation; BF16
    dispatch_bytes: float = 2.0  # of a value on its way to an expert; with FP8 1, and 4 more for every 128

    @property
    def attention_tp(self) -> int:
        return max(1, self.tp // self.attention_dp)


class Traffic(Struct, frozen=True, kw_only=True):
    """Bytes one rank sends in one verify pass over the whole batch."""

    reduced: float  # all-reduces, and their halves within an attention group
    gathered: float  # all groups' tokens to every rank, and their sums back
    all_to_all: float  # dispatch and combine
    rejected_share: float | None  # of all of it, 0 to 1; None: how much is accepted is not known

    @property
    def total(self) -> float:
        return self.reduced + self.gathered + self.all_to_all

    @property
    def rejected(self) -> float | None:
        return None if self.rejected_share is None else self.total * self.rejected_share


def verify_traffic(
    shape: ModelShape, layout: Layout, *, batch: int, width: int, emitted_length: float | None
) -> Traffic:
    """`batch` is of one attention group, `width` the positions of one request, root included."""
    own = batch * width  # tokens of the group
    value = shape.hidden_size * layout.value_bytes
    group, ranks = layout.attention_tp, layout.tp
    behind_attention = _all_reduce(own * value, group)
    # A layer without an all-to-all: its feed-forward part is split over all ranks.
    summed = _all_reduce(own * value, ranks) if layout.attention_dp == 1 else 0.0
    gathered = 0.0 if layout.attention_dp == 1 else _all_reduce(own * layout.attention_dp * value, ranks)
    exchanging = _layers_with_experts(shape) if layout.all_to_all else 0
    plain = shape.layers - exchanging
    return Traffic(
        # Where tokens are shared out, a reduce-scatter behind attention and a gather in front of the next one make one all-reduce.
        reduced=shape.layers * behind_attention + plain * summed,
        gathered=plain * gathered,
        all_to_all=exchanging * _exchange(shape, layout, own / group),
        rejected_share=None if emitted_length is None else rejected_share(width, emitted_length),
    )


def rejected_share(width: int, emitted_length: float) -> float:
    """Of the positions of a verify pass, those that nothing came of."""
    return 1 - emitted_length / width


def _exchange(shape: ModelShape, layout: Layout, tokens: float) -> float:
    """Of one layer: `tokens` of this rank to their experts, and the results back."""
    if shape.experts is None:
        return 0.0
    copies = tokens * shape.experts.per_token * (layout.tp - 1) / layout.tp
    return copies * shape.hidden_size * (layout.dispatch_bytes + layout.value_bytes)


def _layers_with_experts(shape: ModelShape) -> int:
    return shape.layers - shape.experts.dense_layers if shape.experts else 0


def _all_reduce(payload_bytes: float, ranks: int) -> float:
    return 2 * (ranks - 1) / ranks * payload_bytes
