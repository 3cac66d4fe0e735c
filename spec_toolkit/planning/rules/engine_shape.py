"""Rules about the steps, branches and width that a launch asks for, per architecture. Pure.

The engine fills them in only where a launch says none of the three; a part of them ends it in an assertion or a TypeError. DeepSeek
V4's check of topk runs before that, and before a Gemma 4 assistant nothing is filled in at all. Read in SGLang 0.5.23:
`arg_groups/speculative_hook.py`, `arg_groups/deepseek_v4_hook.py`. What `REFUSED_BY_ENGINE` names is compared with its resolver by
`tests/planning/rules/test_engine_agrees.py`.
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, correct, refuse, warn
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.rules.resolved import CHAIN_OR_TREE, Family
from spec_toolkit.planning.rules.shape import largest_tree
from spec_toolkit.planning.rules.version import release_of
from spec_toolkit.planning.situation import Situation

_WITHOUT_STEPS = frozenset({"DFLASH", "DSPARK"})

_STEPS, _TOPK, _WIDTH, _BLOCK = (
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_dspark_block_size",
)

REFUSED_BY_ENGINE = frozenset({"shape.v4-topk", "shape.steps-missing", "shape.topk-missing", "shape.block-width"})


def v4_topk(situation: Situation) -> Iterator[Finding]:
    """C018: the check runs before the engine fills topk in."""
    asked = situation.arguments
    if resolved.family_of(situation.target) is not Family.V4 or resolved.algorithm_of(situation) != "EAGLE":
        return
    why = "for DeepSeek V4 the engine wants to read topk 1 before it fills anything in"
    if asked.speculative_eagle_topk is None:
        yield correct("shape.v4-topk", _TOPK, "is left out", why, "Planned with 1; write that.", ((_TOPK, 1),))
    elif asked.speculative_eagle_topk != 1:
        found = f"is {asked.speculative_eagle_topk}"
        yield refuse("shape.v4-topk", _TOPK, found, "DeepSeek V4's attention verifies a chain alone", "Write 1.")


def v4_steps(situation: Situation) -> Iterator[Finding]:
    """C019: the first images for V4 drafted one step, and a build without a version does not say whether it is one of them."""
    pins, steps = situation.pins, situation.arguments.speculative_num_steps
    if resolved.family_of(situation.target) is not Family.V4 or steps is None or steps <= 1:
        return
    if pins.sglang is not None and release_of(pins.sglang) is None:
        yield warn(
            "shape.v4-steps",
            _STEPS,
            f"is {steps}, on an engine that calls itself '{pins.sglang}'",
            "the first images for DeepSeek V4 could draft one step, and this name does not say which it is",
            f"Use the image of a release ({situation.engine.version} drafts several), or write 1.",
        )


def steps_missing(situation: Situation) -> Iterator[Finding]:
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    if asked.speculative_num_steps is not None or algorithm not in CHAIN_OR_TREE or resolved.is_adaptive(situation):
        return
    if algorithm == "FROZEN_KV_MTP":
        why = "before a Gemma 4 assistant the engine fills nothing in, and its worker needs a number"
        yield refuse(
            "shape.steps-missing", _STEPS, "is left out", why, "Write it; SGLang's own cells for Gemma 4 have 5."
        )
        return
    written = [
        f"{word} {value}"
        for word, value in (("topk", asked.speculative_eagle_topk), ("width", asked.speculative_num_draft_tokens))
        if value is not None
    ]
    v4 = resolved.family_of(situation.target) is Family.V4
    if not written and v4:
        # The engine would fill 3 in, but its check of topk comes first: with the topk that must be written, so must the steps.
        written = ["topk 1, as DeepSeek V4 needs it,"]
    if written:
        why = "the engine fills steps in only where a launch says none of steps, topk and width"
        found = f"is left out, with {' and '.join(written)} written"
        yield refuse("shape.steps-missing", _STEPS, found, why, "Write it.")


def topk_missing(situation: Situation) -> Iterator[Finding]:
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    if asked.speculative_eagle_topk is not None or asked.speculative_num_steps is None:
        return
    v4 = resolved.family_of(situation.target) is Family.V4
    if algorithm not in CHAIN_OR_TREE or v4 or resolved.is_adaptive(situation):
        return
    why = f"with steps written ({asked.speculative_num_steps}) the engine does not fill it in, and fails comparing nothing with 1"
    yield correct(
        "shape.topk-missing", _TOPK, "is left out", why, "Planned with 1, a chain; write that.", ((_TOPK, 1),)
    )


def chain_width(situation: Situation) -> Iterator[Finding]:
    """C015. The engine corrects it for the EAGLE family and says so in its log; before an assistant it does neither."""
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    steps, width = asked.speculative_num_steps, asked.speculative_num_draft_tokens
    if algorithm not in CHAIN_OR_TREE or steps is None or resolved.branches_of(situation) != 1:
        return
    assistant = algorithm == "FROZEN_KV_MTP"
    if width == steps + 1 or (width is None and not assistant):
        return
    found = (
        "is left out, and before a Gemma 4 assistant the engine fills nothing in" if width is None else f"is {width}"
    )
    yield correct(
        "shape.chain-width",
        _WIDTH,
        found,
        f"topk 1 with num_steps {steps} is a chain {steps + 1} wide",
        f"Planned with {steps + 1}; write that{'' if assistant else ', or leave it out and it is derived'}.",
        ((_WIDTH, steps + 1),),
    )


def tree_width(situation: Situation) -> Iterator[Finding]:
    asked, topk = situation.arguments, resolved.branches_of(situation)
    steps, width = asked.speculative_num_steps, asked.speculative_num_draft_tokens
    if topk == 1 or steps is None or steps < 1 or resolved.is_adaptive(situation):
        return
    largest, tree = largest_tree(steps, topk), f"a tree of topk {topk} and num_steps {steps}"
    if width is None:
        why = f"how much of {tree} is verified is a choice"
        yield refuse("shape.tree-width", _WIDTH, "is left out", why, f"Write one from 2 to {largest}.")
    elif width > largest:
        why = f"{tree} offers {largest}, root included"
        yield refuse("shape.tree-width", _WIDTH, f"is {width}", why, f"Write at most {largest}.")


def blocks(situation: Situation) -> Iterator[Finding]:
    """DFLASH and DSPARK draft a block: one pass, and a width that follows from its size."""
    asked, algorithm = situation.arguments, resolved.algorithm_of(situation)
    if algorithm is None:
        return
    if algorithm != "DSPARK" and asked.speculative_dspark_block_size is not None:
        found = f"is {asked.speculative_dspark_block_size}"
        why = f"{algorithm} drafts no such block"
        yield correct("shape.block-only-dspark", _BLOCK, found, why, "Planned without.", ((_BLOCK, None),))
    if algorithm in _WITHOUT_STEPS:
        for where, value in ((_STEPS, asked.speculative_num_steps), (_TOPK, asked.speculative_eagle_topk)):
            if value not in {None, 1}:
                why = f"{algorithm} drafts a block in one pass, and the engine takes 1"
                yield correct(
                    "shape.block-only-dspark",
                    where,
                    f"is {value}",
                    why,
                    "Planned without; leave it out.",
                    ((where, None),),
                )
    block, width = _block_of(situation), asked.speculative_num_draft_tokens
    if algorithm == "DSPARK" and block is not None and width not in {None, block + 1}:
        why = f"a block of {block} is verified {block + 1} wide, root included"
        yield refuse("shape.block-width", _WIDTH, f"is {width}", why, f"Write {block + 1}, or leave it out.")


def _block_of(situation: Situation) -> int | None:
    """Tokens of DSPARK's block: what is asked, else what the checkpoint says."""
    asked = situation.arguments.speculative_dspark_block_size
    if asked is not None or resolved.has_draft_of_its_own(situation):
        return asked
    return situation.target.dspark_block_size


RULES = (v4_topk, v4_steps, steps_missing, topk_missing, chain_width, tree_width, blocks)
