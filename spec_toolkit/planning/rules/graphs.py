"""Rules about a recipe's graph list and cap, and the list that is derived. Whether graphs reach the cap is `rules/admission`. Pure.

The engine captures one decode graph per listed batch size and pads a batch up to the next; a batch above the list's end runs without a
graph, launch by launch. With speculation and nothing said the engine admits 48 requests at once, so a higher cap and a list that
reaches it are raised together. Under attention data parallelism the ranks share the cap. Ranks that share a request and gather what they
computed also want a batch that divides among them: the engine leaves out other sizes, so such a list ends with the cap rounded up.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile

from spec_toolkit.errors import Finding, correct, note, refuse
from spec_toolkit.facts.records import EngineFacts, ModelFacts, Rung
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.terms import Method

_LARGEST = 131_072  # requests or tokens of one pass: far beyond any that is captured


def batch_cap(recipe: Recipe) -> int:
    """Most requests in one rank's batch."""
    layout = recipe.hardware.layout
    shares = layout.dp if layout.dp_attention else 1
    return max(1, recipe.limits.max_running_requests // shares)


def last_size(recipe: Recipe) -> int:
    """The batch that a graph list has to end with: the cap, rounded up to what the ranks of attention can share."""
    layout = recipe.hardware.layout
    dp = layout.dp if layout.dp_attention else 1
    exchanges = layout.moe_a2a_backend not in {None, "none"}
    return round_up(batch_cap(recipe), ranks_in_step(layout.tp, attention_dp=dp, exchanges=exchanges))


def ranks_in_step(ranks: int, *, attention_dp: int, exchanges: bool) -> int:
    """Ranks that share a request and gather their parts: with attention data parallelism, or an all-to-all of experts."""
    return max(1, ranks // max(1, attention_dp)) if attention_dp > 1 or exchanges else 1


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def derive_graph_list(recipe: Recipe, engine: EngineFacts) -> tuple[int, ...]:
    """Batch sizes to capture: the recipe's, in order; left open, the engine's own ladder up to the cap. Empty on a CPU."""
    if recipe.is_rehearsal:
        return ()
    written = recipe.graphs.decode_batch_sizes
    if written is not None:
        return tuple(sorted(set(written)))
    autoregressive = recipe.draft.method is Method.NONE
    ladder = engine.decode_graphs_autoregressive.v if autoregressive else engine.decode_graphs_speculating.v
    return climb(ladder, last_size(recipe))


def climb(ladder: Sequence[Rung], cap: int) -> tuple[int, ...]:
    """The ladder's sizes up to the cap, and the cap itself."""
    return (*below(ladder, cap - 1), cap)


def below(ladder: Sequence[Rung], most: int) -> tuple[int, ...]:
    """The ladder's sizes up to the most; a slip of the keyboard makes no list that fills the memory."""
    most = min(most, _LARGEST)
    sizes = (size for rung in ladder for size in range(rung.first, (rung.last or most) + 1, rung.step))
    return tuple(takewhile(lambda size: size <= most, sizes))


def order(recipe: Recipe) -> Iterator[Finding]:
    written = recipe.graphs.decode_batch_sizes
    if written is None:
        return
    if not written:
        why = "without a size there is no graph, and every step would be launched kernel by kernel"
        yield refuse("graphs.empty", "graphs.decode_batch_sizes", "is empty", why, "Leave it out and it is derived.")
    elif tuple(sorted(set(written))) != written:
        yield correct(
            "graphs.order",
            "graphs.decode_batch_sizes",
            "is not ascending, or holds a size twice",
            remedy="Planned in order and once each.",
        )


def graphs_on_cpu(recipe: Recipe) -> Iterator[Finding]:
    if recipe.is_rehearsal and recipe.graphs.decode_batch_sizes:
        why = "a CPU has no CUDA graphs"
        yield correct(
            "graphs.cpu", "graphs.decode_batch_sizes", "is written for a CPU", why, "Planned without; leave it out."
        )


def request_cap(recipe: Recipe, engine: EngineFacts, model: ModelFacts | None = None) -> Iterator[Finding]:
    """The one place where the engine changes a cap by itself; the plan always passes it, and says so where it matters."""
    cap, usual = recipe.limits.max_running_requests, engine.default_max_running_requests.v
    usual = engine.max_running_requests_of.v.get(model.architecture.v, usual) if model else usual
    if recipe.draft.method is not Method.NONE and cap > usual:
        yield note(
            "capacity.request-cap",
            "limits.max_running_requests",
            f"is {cap}, above the {usual} requests that the engine admits by itself when it speculates",
            remedy="Cap and graph list are passed to it together.",
        )
