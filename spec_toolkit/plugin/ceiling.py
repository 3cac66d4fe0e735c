"""The policy the engine's adaptive controller asks for the steps of each round: always those the knob says. Version-free.

One width for the whole engine, whatever the batch. Under attention DP each rank sees a batch of its own, and ranks that choose by it
would part; and a measured emitted length belongs to a step count, which must therefore be known from outside.
"""

from collections.abc import Sequence

from spec_toolkit.plugin.knob import Knob


class Ceiling:
    """In the shape of the engine's `AdaptiveSpecPolicy`."""

    def __init__(self, knob: Knob) -> None:
        self._knob = knob
        self._graph_batches: list[int] | None = None

    @property
    def candidate_steps(self) -> list[int]:
        """The engine prepares one runtime state for each."""
        return list(self._knob.candidates)

    def set_cuda_graph_bs(self, cuda_graph_bs: Sequence[int] | None) -> None:
        """The batch sizes graphs are captured for; None where there are no graphs."""
        self._graph_batches = sorted(cuda_graph_bs) if cuda_graph_bs else None

    def cuda_graph_bs_for_step(self, step: int) -> list[int] | None:  # noqa: ARG002 - the engine asks for each step count
        """All of them: any width may be commanded at any batch, and a width without a graph for it would run eagerly."""
        return self._graph_batches

    def get_steps_for_batch(self, batch_size: int) -> int:  # noqa: ARG002 - see the module
        """Asked once before each round; on a rank without requests too."""
        return self._knob.begin_round()

    def on_verify_complete(self, num_correct_drafts_per_req: Sequence[int], batch_size: int) -> None:  # noqa: ARG002 - the engine's signature
        """Counted, and never a switch of its own: deciding is the policy's, outside."""
        self._knob.end_round(num_correct_drafts_per_req)
