"""The shapes of the rounds that an engine is started with, and what it captures for them. Pure.

Under adaptive speculation every step count has graphs of its own, and an attention workspace beside them (ARCHITECTURE.md, D13).
"""

from collections.abc import Sequence

from msgspec import Struct


class Rounds(Struct, frozen=True, kw_only=True):
    """The shapes of a round that an engine is started with."""

    steps: tuple[int, ...] = ()  # ascending, 0 included; empty: it does not speculate
    topk: int = 1
    width: int = 1  # the largest, root included
    has_draft_passes: bool = True  # False: a block is drafted at once (DSpark)

    @property
    def widths(self) -> tuple[int, ...]:
        """Of a verify pass, one for each step count."""
        if self.topk > 1 or not self.has_draft_passes:
            return (self.width,)
        return tuple(sorted({step + 1 for step in self.steps}))


def graph_families(rounds: Rounds) -> Sequence[tuple[str, str]]:
    """Captured and given an attention workspace once for each step count; nobody has published what one takes (C012)."""
    if not rounds.steps:
        return ()
    widths = ", ".join(map(str, rounds.widths))
    found = [("graphs: target verify", f"{len(rounds.widths)} of them, {widths} tokens a request")]
    drafting = [step for step in rounds.steps if step > 0]
    if rounds.has_draft_passes and drafting:
        passes, branches = ", ".join(map(str, drafting)), f"{rounds.topk} token{'' if rounds.topk == 1 else 's'}"
        found.append(("graphs: draft decode", f"{len(drafting)} of them, {passes} passes of {branches} a request"))
        extend = ", ".join(str(step + 1) for step in drafting) if rounds.topk == 1 else str(rounds.width)
        found.append(("graphs: draft extend", f"{len(drafting)} of them, {extend} tokens a request"))
    found.append(("attention workspaces", f"one for each of {len(rounds.widths)} widths and each family"))
    return found
