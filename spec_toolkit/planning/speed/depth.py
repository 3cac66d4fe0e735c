"""How many drafts a round should make: as long as one more pays for being drafted and verified. Pure.

With K drafts a round emits E(K) = 1 + s_1 + ... + s_K tokens and costs C(K) = 1 + c_1 + ... + c_K autoregressive steps, so a token costs
C/E. Position i pays while s_i tokens at what a token costs without it, C(i-1)/E(i-1), exceed its own cost c_i: just as long as E/C still
grows. Survival falls with every position, so the best depth is the last position that pays; it is capped by what the checkpoint drafts.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from spec_toolkit.facts.evidence import Evidence
from spec_toolkit.facts.model import Model
from spec_toolkit.planning.speed.speedup import round_seconds
from spec_toolkit.terms import Method


def best_depth(survival: Sequence[float], costs: Sequence[float], *, most: int | None = None) -> int:
    """The last position that pays; 0 where none does. `costs` are of one more position, in autoregressive steps, [K].

    Where a dear position hides cheap ones behind it, what counts is what all positions up to there bring together.
    """
    prices = token_prices(survival[:most], costs)
    return prices.index(min(prices))


def token_prices(survival: Sequence[float], costs: Sequence[float]) -> tuple[float, ...]:
    """C/E with 0, 1, ... drafts: what a token costs, in autoregressive steps."""
    lengths, spent = accumulate(survival, initial=1.0), accumulate(costs, initial=1.0)
    return tuple(cost / length for length, cost in zip(lengths, spent, strict=False))


def affordable_costs(survival: Sequence[float]) -> tuple[float, ...]:
    """What each position may cost for a round of that many to pay, [K], in autoregressive steps; all positions cost the same.

    From c_i <= s_i C(i-1)/E(i-1) with C(i-1) = 1 + (i-1) c: where no cost is known, this is what a measured one is compared with.
    """
    lengths = accumulate(survival, initial=1.0)
    found = []
    for before, (share, length) in enumerate(zip(survival, lengths, strict=False)):
        found.append(share / (length - before * share))
    return tuple(found)


def marginal_costs(evidence: Evidence, batch: int) -> tuple[float, ...]:
    """Of position 1, 2, ..., in autoregressive steps of this batch; between two step counts that were measured, spread evenly.

    Empty where the batch has no autoregressive row. The first costs what a round of it costs beyond a plain step.
    """
    seconds = {
        row.num_steps or 0: round_seconds(row) for row in evidence.rows if row.batch == batch and row.num_steps != 0
    }
    if 0 not in seconds:
        return ()
    return tuple(_spread(sorted(seconds.items()), seconds[0]))


def _spread(measured: Sequence[tuple[int, float]], step_seconds: float) -> Iterator[float]:
    for (fewer, less), (more, longer) in pairwise(measured):
        yield from [(longer - less) / (more - fewer) / step_seconds] * (more - fewer)


def supported_steps(model: Model, method: Method, *, every_layer_a_step: bool = False) -> int | None:
    """The most a checkpoint can draft; None: as many as one likes, or not known.

    A single MTP layer is run once for each step. With a layer for every step (multi-layer EAGLE) there are as many steps as layers, and
    DSpark drafts the block its head was made for.
    """
    if method is Method.DSPARK:
        return model.dspark_block_size
    return model.num_nextn_predict_layers if every_layer_a_step else None
