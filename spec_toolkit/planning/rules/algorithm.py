"""Rules about the algorithm that a launch asks for, per architecture. Pure.

The engine turns names into algorithms late (upper case, NEXTN into EAGLE, either into FROZEN_KV_MTP before a Gemma 4 assistant), and
DeepSeek V4's own check runs before that. Read in SGLang 0.5.23: `arg_groups/speculative_hook.py`, `arg_groups/deepseek_v4_hook.py`,
`speculative/adaptive_spec_params.py`, `managers/scheduler.py`. What `REFUSED_BY_ENGINE` names is compared with its resolver by
`tests/planning/rules/test_engine_agrees.py`.
"""

from collections.abc import Iterator
from difflib import get_close_matches

from spec_toolkit.errors import Finding, correct, note, refuse, warn
from spec_toolkit.planning.rules import resolved
from spec_toolkit.planning.rules.resolved import Family
from spec_toolkit.planning.rules.version import release_of
from spec_toolkit.planning.situation import Situation

REFUSED_BY_ENGINE = frozenset(
    {"algorithm.unknown", "algorithm.v4", "algorithm.device", "algorithm.adaptive-steps", "features.draft-model"}
)

_NAMES = ("EAGLE", "NEXTN", "EAGLE3", "FROZEN_KV_MTP", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "UNO")
_NEEDS_A_MODEL = frozenset({"EAGLE3", "STANDALONE", "DFLASH"})
_NEEDS_A_GPU = frozenset({"DFLASH", "DSPARK", "UNO"})
_ON_V4 = ("EAGLE", "DSPARK")
_STEPS_WHERE_NO_FILE_SAYS = (0, 1, 3, 5, 7)  # of the engine's built-in table, all batch sizes together
_ALGORITHM, _STEPS, _TOPK, _WIDTH = (
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
)
_SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"
_SPARSE_HEAD = "SGLANG_EMBEDDINGS_SPARSE_HEAD"
_CHAIN_ONLY_FROM, _CHAIN_ONLY_TO = (
    (0, 5, 5),
    (0, 5, 9),
)  # releases of which C067 tells; the docs of that time say the same


def known_algorithm(situation: Situation) -> Iterator[Finding]:
    asked = situation.arguments.speculative_algorithm
    if asked is None or asked.upper() in _NAMES or asked.upper() == "NONE":
        return
    close = get_close_matches(asked.upper(), _NAMES, n=1)
    remedy = f"Did you mean {close[0]}?" if close else f"It knows {', '.join(_NAMES)}."
    yield refuse("algorithm.unknown", _ALGORITHM, f"is '{asked}'", "the engine knows no such algorithm", remedy)


def v4_algorithm(situation: Situation) -> Iterator[Finding]:
    """C018: V4's check sees the name as it was typed."""
    asked = situation.arguments.speculative_algorithm
    if asked is None or asked in _ON_V4 or resolved.family_of(situation.target) is not Family.V4:
        return
    name = "EAGLE" if asked.upper() == "NEXTN" else asked.upper()
    found, why = f"is {asked}", "for DeepSeek V4 the engine takes EAGLE and DSPARK alone, spelled so"
    if name in _ON_V4:
        yield correct(
            "algorithm.v4", _ALGORITHM, found, why, f"Planned with {name}; write that.", ((_ALGORITHM, name),)
        )
    elif name in _NAMES:
        yield refuse("algorithm.v4", _ALGORITHM, found, why, "Use one of the two.")


def adaptive(situation: Situation) -> Iterator[Finding]:
    """C021, C031: what is asked and dropped with one line in a log."""
    if not situation.arguments.speculative_adaptive or not situation.arguments.speculates:
        return
    dropped = resolved.why_not_adaptive(situation)
    if dropped is not None:
        yield warn(
            "algorithm.adaptive-ignored",
            "speculative_adaptive",
            "is asked for, and the engine runs without it",
            dropped[1],
            "Leave it out.",
        )


def adaptive_steps(situation: Situation) -> Iterator[Finding]:
    asked, candidates = situation.arguments, _STEPS_WHERE_NO_FILE_SAYS
    if asked.speculative_adaptive_config is not None or situation.loads_knob or not resolved.is_adaptive(situation):
        return
    if asked.speculative_num_steps is not None and asked.speculative_num_steps not in candidates:
        yield refuse(
            "algorithm.adaptive-steps",
            _STEPS,
            f"is {asked.speculative_num_steps}",
            f"without a file of its own adaptive speculation moves between {', '.join(map(str, candidates))}",
            "Write one of those, or name a file that holds this one.",
        )


def draft_model(situation: Situation) -> Iterator[Finding]:
    """An algorithm whose draft is a model of its own, and no such model. Gemma 4's are `pairing`'s to miss."""
    algorithm, named = resolved.algorithm_of(situation), situation.arguments.speculative_draft_model_path
    if algorithm is None or named is not None or situation.draft is not None:
        return
    where, found = "speculative_draft_model_path", "names no model"
    if algorithm in _NEEDS_A_MODEL:
        why = f"the draft of {algorithm} is a model of its own"
        yield refuse("features.draft-model", where, found, why, "Name the draft model.")
    elif algorithm == "DSPARK" and situation.target.shape is not None and situation.target.dspark_block_size is None:
        why = (
            "DSPARK drafts with stages in the checkpoint or with a model of its own, and this checkpoint has no stages"
        )
        yield refuse("features.draft-model", where, found, why, "Name the draft model, or use EAGLE.")


def stages_for_a_head(situation: Situation) -> Iterator[Finding]:
    """DeepSeek V4's later checkpoints carry DSPARK's stages where the earlier ones have the MTP layer; SGLang's cookbook says so."""
    block = situation.target.dspark_block_size
    if block is None or resolved.algorithm_of(situation) != "EAGLE" or resolved.has_draft_of_its_own(situation):
        return
    found = f"is {situation.arguments.speculative_algorithm}, on a checkpoint with DSPARK's stages (block of {block})"
    why = "the engine loads them as a head without an error, and no draft is ever accepted"
    yield refuse("algorithm.stages-for-a-head", _ALGORITHM, found, why, "Write DSPARK.")


def blocks_on_cpu(situation: Situation) -> Iterator[Finding]:
    algorithm, on_cpu = (
        resolved.algorithm_of(situation),
        situation.arguments.device == "cpu" or situation.site.gpu == "cpu",
    )
    if algorithm in _NEEDS_A_GPU and on_cpu:
        why = "the engine drafts blocks on GPUs alone"
        yield refuse("algorithm.device", _ALGORITHM, f"is {algorithm}, on a CPU", why, "Use EAGLE.")


def without_algorithm(situation: Situation) -> Iterator[Finding]:
    asked = situation.arguments
    if asked.speculates:
        return
    for where in (_STEPS, _TOPK, _WIDTH, "speculative_draft_model_path"):
        value = getattr(asked, where)
        if value is not None:
            why = "without speculative_algorithm the engine drafts nothing and serves autoregressively"
            yield warn("algorithm.missing", where, f"is {value}", why, "Name the algorithm, or leave it out.")
            return


def tree_in_spec_v2(situation: Situation) -> Iterator[Finding]:
    """C067. In 0.5.23 nothing reads the variable: overlap with speculation is the rule, and trees are part of it."""
    if situation.environment.get(_SPEC_V2, "").lower() not in {"1", "true", "yes"}:
        return
    if situation.pins.sglang == situation.engine.version:
        why = f"{situation.engine.version} reads it nowhere: it overlaps with speculation by itself"
        yield note("algorithm.spec-v2-unread", _SPEC_V2, f"is {situation.environment[_SPEC_V2]}", why, "Leave it out.")
    topk, pinned = situation.arguments.speculative_eagle_topk or 1, release_of(situation.pins.sglang)
    if topk > 1 and pinned is not None and _CHAIN_ONLY_FROM <= pinned[0] <= _CHAIN_ONLY_TO:
        yield refuse(
            "algorithm.spec-v2-chain",
            _TOPK,
            f"is {topk}, with {_SPEC_V2}={situation.environment[_SPEC_V2]}",
            f"on {situation.pins.sglang} speculation under the overlap schedule verifies chains alone",
            f"Write 1, unset the variable, or use {situation.engine.version}.",
        )


def assistant_without_overlap(situation: Situation) -> Iterator[Finding]:
    """Read in 0.5.23 (`Scheduler.run_batch`, `FrozenKVMTPWorkerV2.forward_batch_generation`), seen on a CPU, where a patch mends it.

    Pipeline stages and multiplexing need the schedule off as well: the first are refused with an assistant, the second asks for the flag.
    """
    if resolved.algorithm_of(situation) != "FROZEN_KV_MTP" or situation.site.gpu == "cpu":
        return
    asked = situation.arguments
    hands_over = (
        "without it the scheduler hands pp_proxy_tensors to the worker of a Gemma 4 assistant, which takes none"
    )
    why = f"{hands_over}: the first prompt ends the engine"
    if asked.disable_overlap_schedule:
        found = "switches the overlap schedule off"
        remedy = "Leave it out, and multiplexing with it." if asked.enable_pdmux else "Leave it out."
        yield refuse("algorithm.assistant-overlap", "disable_overlap_schedule", found, why, remedy)
    elif _SPARSE_HEAD in situation.environment:
        found = "is set, and the engine switches the overlap schedule off for it"
        yield refuse("algorithm.assistant-overlap", _SPARSE_HEAD, found, why, "Unset the variable.")


RULES = (
    known_algorithm,
    v4_algorithm,
    draft_model,
    stages_for_a_head,
    blocks_on_cpu,
    adaptive,
    adaptive_steps,
    tree_in_spec_v2,
    assistant_without_overlap,
    without_algorithm,
)
