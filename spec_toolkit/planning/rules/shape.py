"""Rules about the draft's shape: steps, branches, width. Pure.

A chain (topk 1) of n steps is n + 1 wide: n drafts and the root. A tree keeps topk branches at every step: the first step offers topk
drafts and each later one topk x topk, of which the best `num_draft_tokens - 1` are verified (SGLang's `organize_draft_results`). A
block draft (dspark) has no steps: one pass drafts a block, and the block with its root is what is verified.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from spec_toolkit.errors import Finding, correct, refuse
from spec_toolkit.facts.records import ModelFacts
from spec_toolkit.recipe.schema import Draft
from spec_toolkit.terms import Method

STEPPING = frozenset({Method.MTP, Method.EAGLE3, Method.FROZEN_KV_MTP, Method.STANDALONE})


@dataclass(frozen=True, slots=True)
class Shape:
    """What one round drafts and verifies."""

    num_steps: int  # draft passes; 0: nothing is drafted, 1 for a block
    topk: int
    num_draft_tokens: int  # positions of one verify pass, root included

    @property
    def is_chain(self) -> bool:
        return self.topk == 1


def derive_shape(draft: Draft, block_tokens: int | None = None) -> Shape | None:
    """None where the draft does not say enough; a rule below says what is missing.

    `block_tokens`: the block a dspark checkpoint is made for, where the recipe leaves it open.
    """
    if draft.method is Method.NONE:
        return Shape(0, 1, 1)
    if draft.method is Method.DSPARK:
        block = draft.block_tokens or block_tokens
        return Shape(1, 1, block + 1) if block else None
    if draft.method not in STEPPING or draft.num_steps is None:
        return None
    if draft.topk == 1:
        return Shape(draft.num_steps, 1, draft.num_steps + 1)
    return None if draft.num_draft_tokens is None else Shape(draft.num_steps, draft.topk, draft.num_draft_tokens)


def largest_tree(num_steps: int, topk: int) -> int:
    """Width of the widest tree: every draft offered, and the root."""
    return topk + (num_steps - 1) * topk**2 + 1


def chain_width(draft: Draft) -> Iterator[Finding]:
    if draft.method not in STEPPING or draft.topk != 1 or draft.num_steps is None or draft.num_draft_tokens is None:
        return
    width = draft.num_steps + 1
    if draft.num_draft_tokens != width:
        yield correct(
            "shape.chain-width",
            "draft.num_draft_tokens",
            f"is {draft.num_draft_tokens}",
            f"topk 1 with num_steps {draft.num_steps} is a chain {width} wide",
            f"Planned with {width}; write that, or leave the key out and it is derived.",
        )


def steps_missing(draft: Draft, model: ModelFacts | None) -> Iterator[Finding]:
    if draft.method in STEPPING and draft.num_steps is None:
        shape = model.engine.steps_topk_width.v if model and model.engine else None
        usual = f" The engine would take {shape[0]} for this model." if shape else ""
        yield refuse(
            "shape.steps-missing",
            "draft.num_steps",
            "is left out",
            f"with {draft.method.value} it is the choice everything else follows from",
            f"Write it.{usual}",
        )


def tree_width(draft: Draft) -> Iterator[Finding]:
    if draft.method not in STEPPING or draft.topk == 1 or draft.num_steps is None:
        return
    largest = largest_tree(draft.num_steps, draft.topk)
    tree = f"a tree of topk {draft.topk} and num_steps {draft.num_steps}"
    if draft.num_draft_tokens is None:
        why = f"how much of {tree} is verified is a choice"
        yield refuse(
            "shape.tree-width", "draft.num_draft_tokens", "is left out", why, f"Write one from 2 to {largest}."
        )
    elif draft.num_draft_tokens > largest:
        found = f"is {draft.num_draft_tokens}"
        yield refuse(
            "shape.tree-width",
            "draft.num_draft_tokens",
            found,
            f"{tree} offers {largest}, root included",
            f"Write at most {largest}.",
        )


def block_only_dspark(draft: Draft) -> Iterator[Finding]:
    if draft.block_tokens is not None and draft.method is not Method.DSPARK:
        why = f"{draft.method.value} drafts no block"
        yield refuse("shape.block-only-dspark", "draft.block_tokens", f"is {draft.block_tokens}", why, "Leave it out.")
    if draft.method is Method.DSPARK:
        for key, value in _written(draft):
            why = "dspark drafts a block and has neither steps nor branches"
            yield refuse(
                "shape.block-only-dspark", f"draft.{key}", f"is {value}", why, "Leave it out; see draft.block_tokens."
            )


def nothing_to_shape(draft: Draft) -> Iterator[Finding]:
    """A recipe without speculation that sets a shape says two things at once."""
    if draft.method is not Method.NONE:
        return
    for key, value in _written(draft):
        why = "method none drafts nothing"
        yield refuse("shape.without-method", f"draft.{key}", f"is {value}", why, "Leave it out, or choose a method.")


def _written(draft: Draft) -> Iterator[tuple[str, int]]:
    """What a recipe says of steps, branches and width; a topk of 1 is what it is where nothing is said."""
    for key in ("num_steps", "topk", "num_draft_tokens"):
        value = getattr(draft, key)
        if value is not None and (key, value) != ("topk", 1):
            yield key, value
