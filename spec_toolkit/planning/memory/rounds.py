"""The shapes of the rounds that an engine is started with, and what it captures for them. Pure.

Under adaptive speculation every step count has graphs of its own, and an attention workspace beside them (ARCHITECTURE.md, D13). What a
launch leaves open is filled in as SGLang 0.5.23 does, algorithm by algorithm (srt/arg_groups/speculative_hook.py).
"""

from collections.abc import Sequence

from msgspec import Struct

from spec_toolkit.planning.memory.reserve import slots_per_decode, temporary_slots
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.situation import Situation

_STEPS_WHERE_NO_FILE_SAYS = (0, 1, 3, 5, 7)  # of adaptive speculation, srt/speculative/adaptive_spec_params.py
_NGRAM_WIDTH, _NGRAM_BREADTH = 12, 10


class Rounds(Struct, frozen=True, kw_only=True):
    """The shapes of a round that an engine is started with."""

    steps: tuple[int, ...] = ()  # ascending, 0 included; empty: it does not speculate
    topk: int = 1
    width: int | None = 1  # the largest, root included; None: not known
    has_draft_passes: bool = True  # False: all is drafted at once, a block (DSpark, DFlash) or out of a table
    branches_have_slots: bool = True  # False: a tree that lives in the mask of its verify pass alone (NGRAM)
    beside: int = 0  # slots kept beside those of a verify pass: UNO's root

    @property
    def widths(self) -> tuple[int, ...]:
        """Of a verify pass, one for each step count, ascending; empty: not known."""
        if self.width is None:
            return ()
        if self.topk > 1 or not self.has_draft_passes or not self.steps:
            return (self.width,)
        return tuple(sorted({step + 1 for step in self.steps}))

    def slots_per_decode(self, page_size: int) -> int | None:
        """KV slots of one request in one round; None: not known."""
        if self.width is None or not self.steps:
            return None
        page = page_size if self.branches_have_slots else 1
        return self.beside + slots_per_decode(
            num_steps=max(self.steps), topk=self.topk, width=self.width, page_size=page
        )

    def reserve_slots(self, page_size: int) -> int | None:
        """Kept for each request while it runs; 0 without speculation, None: not known."""
        if not self.steps:
            return 0
        slots = self.slots_per_decode(page_size)
        return None if slots is None else temporary_slots(slots, page_size=page_size)


def rounds_of(situation: Situation) -> Rounds:
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    written = asked.speculative_num_draft_tokens
    match algorithm:
        case None:
            return Rounds()
        case "DSPARK":
            block = asked.speculative_dspark_block_size or (situation.draft or situation.target).dspark_block_size
            return _at_once(block + 1 if block else written)
        case "DFLASH":
            return _at_once(asked.speculative_dflash_block_size or written)  # else its draft's own, which nobody read
        case "UNO":
            return Rounds(steps=(1,), width=_positive(written), has_draft_passes=False, beside=1)
        case "NGRAM":
            return _of_a_table(situation)
        case _:
            return _step_by_step(situation)


def widths_of(situation: Situation) -> tuple[int, ...]:
    """Positions of one request in a verify pass, for each step count the engine is started with; empty: not known."""
    return rounds_of(situation).widths


def graph_families(rounds: Rounds) -> Sequence[tuple[str, str]]:
    """Captured and given an attention workspace once for each step count; nobody has published what one takes (C012)."""
    if not rounds.steps:
        return ()
    widths = ", ".join(map(str, rounds.widths))
    of_them = f"{len(rounds.widths)} of them, {widths} tokens a request" if widths else "of a width that nobody read"
    found = [("graphs: target verify", of_them)]
    drafting = [step for step in rounds.steps if step > 0]
    if rounds.has_draft_passes and drafting:
        passes, branches = ", ".join(map(str, drafting)), f"{rounds.topk} token{'' if rounds.topk == 1 else 's'}"
        found.append(("graphs: draft decode", f"{len(drafting)} of them, {passes} passes of {branches} a request"))
        extend = ", ".join(str(step + 1) for step in drafting) if rounds.topk == 1 else widths or "unknown"
        found.append(("graphs: draft extend", f"{len(drafting)} of them, {extend} tokens a request"))
    found.append(("attention workspaces", f"one for each of {max(1, len(rounds.widths))} widths and each family"))
    return found


def _at_once(width: int | None) -> Rounds:
    return Rounds(steps=(1,), width=_positive(width), has_draft_passes=False)


def _of_a_table(situation: Situation) -> Rounds:
    asked = situation.arguments
    width = asked.speculative_num_draft_tokens
    width = _positive(_NGRAM_WIDTH if width is None else width)
    breadth = asked.speculative_ngram_max_bfs_breadth or _NGRAM_BREADTH
    steps = asked.speculative_num_steps
    if steps is None:
        steps = (width or 0) // breadth
    return Rounds(steps=(steps,), topk=breadth, width=width, has_draft_passes=False, branches_have_slots=False)


def _step_by_step(situation: Situation) -> Rounds:
    asked, topk = situation.arguments, resolved.branches_of(situation)
    written = asked.speculative_num_steps
    steps = resolved.DEFAULT_STEPS if written is None else written
    candidates = situation.steps or (_adaptive_steps(situation, steps) if resolved.is_adaptive(situation) else (steps,))
    width = max(candidates) + 1 if topk == 1 else asked.speculative_num_draft_tokens
    return Rounds(steps=tuple(sorted(set(candidates))), topk=topk, width=_positive(width))


def _adaptive_steps(situation: Situation, steps: int) -> tuple[int, ...]:
    """A file of candidates lies elsewhere: without having read it, none and the launch's own."""
    if situation.arguments.speculative_adaptive_config is not None:
        return (0, steps)
    return (*_STEPS_WHERE_NO_FILE_SAYS, steps)


def _positive(width: int | None) -> int | None:
    return width if width is not None and width > 0 else None
