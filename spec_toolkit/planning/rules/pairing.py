"""Rules about a target and its draft: made for each other, of one vocabulary, for one context. Pure.

A draft that was made for another target is not always refused by the engine: where the shapes happen to fit it starts, drafts
nonsense and is slower than no draft at all. Read in the engine: arg_groups/speculative_hook.py (which algorithm an assistant takes),
models/gemma4_mtp.py (what it multiplies), speculative/standalone_worker_v2.py (vocabularies), configs/model_config.py (contexts).
"""

from collections.abc import Iterator

from spec_toolkit.errors import Finding, refuse, warn
from spec_toolkit.facts.model import Model
from spec_toolkit.planning.rules.positions import STRETCHES, is_stretched
from spec_toolkit.planning.situation import Situation

_DRAFT = "speculative_draft_model_path"
ASSISTANTS = frozenset({"Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"})
_FOR_ASSISTANTS = frozenset({"EAGLE", "NEXTN", "FROZEN_KV_MTP"})
NEEDS_ASSISTANT = frozenset({"Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"})
_FROM_HIDDEN_STATES = frozenset({"EAGLE", "NEXTN"})  # their draft reads the target's last hidden state as it is


def assistant_algorithm(situation: Situation) -> Iterator[Finding]:
    draft, algorithm = situation.draft, asked_algorithm(situation)
    if draft is None or algorithm is None:
        return
    if draft.architecture in ASSISTANTS and algorithm not in _FOR_ASSISTANTS:
        yield refuse(
            "pairing.assistant-algorithm",
            "speculative_algorithm",
            f"is {algorithm}, with {draft.architecture} as draft",
            "an assistant reads the target's KV and last hidden state, which only Frozen-KV MTP hands it",
            "Write NEXTN or EAGLE: with this draft both become FROZEN_KV_MTP.",
        )
    if algorithm == "FROZEN_KV_MTP" and draft.architecture is not None and draft.architecture not in ASSISTANTS:
        yield refuse(
            "pairing.assistant-algorithm",
            "speculative_algorithm",
            f"is {algorithm}, with {draft.architecture} as draft",
            "Frozen-KV MTP is for the assistants of Gemma 4",
            "Name an assistant, or another algorithm.",
        )


def assistant_missing(situation: Situation) -> Iterator[Finding]:
    """The engine takes this through its argument checks as EAGLE 3/1/4 and finds no draft weights."""
    target, algorithm = situation.target, asked_algorithm(situation)
    named = situation.arguments.speculative_draft_model_path not in {None, situation.arguments.model_path}
    if (
        target.architecture in NEEDS_ASSISTANT
        and algorithm in _FOR_ASSISTANTS
        and not named
        and situation.draft is None
    ):
        why = "Gemma 4 checkpoints hold no draft layer"
        remedy = (
            f"Name its assistant, such as {target.name}-assistant." if "/" in target.name else "Name its assistant."
        )
        yield refuse("pairing.assistant-missing", _DRAFT, "is left out", why, remedy)


def assistant_size(situation: Situation) -> Iterator[Finding]:
    """`backbone_hidden_size` is what an assistant multiplies with the target's states; its own hidden size is nobody's business."""
    draft, target = situation.draft, situation.target
    if draft is None or draft.backbone_hidden_size is None or target.hidden_size is None:
        return
    if draft.backbone_hidden_size != target.hidden_size:
        yield refuse(
            "pairing.assistant-size",
            _DRAFT,
            f"{draft.name} is made for a target of hidden size {draft.backbone_hidden_size:,}, and {target.name} has {target.hidden_size:,}",
            "it multiplies the target's hidden states",
            "Use the assistant of this size, or run autoregressive.",
        )


def assistant_variant(situation: Situation) -> Iterator[Finding]:
    """Quantisation-aware training changed the weights: its targets have assistants of their own. Other quantised copies have not."""
    draft, target = situation.draft, situation.target
    if draft is None or draft.architecture not in ASSISTANTS or _is_qat(draft) == _is_qat(target):
        return
    of = "quantisation-aware training" if _is_qat(draft) else "the plain checkpoint"
    to = "one of quantisation-aware training" if _is_qat(target) else "the plain one"
    why = "each has an assistant of its own, and the other one's drafts are accepted less often"
    yield warn("pairing.assistant-variant", _DRAFT, f"{draft.name} is of {of}, and the target is {to}", why)


def hidden_size(situation: Situation) -> Iterator[Finding]:
    draft, target = situation.draft, situation.target
    if draft is None or draft.architecture in ASSISTANTS or asked_algorithm(situation) not in _FROM_HIDDEN_STATES:
        return
    if draft.hidden_size is None or target.hidden_size is None or draft.hidden_size == target.hidden_size:
        return
    yield refuse(
        "pairing.hidden-size",
        _DRAFT,
        f"{draft.name} has hidden size {draft.hidden_size:,}, and {target.name} {target.hidden_size:,}",
        "its layer reads the target's hidden states and shares its embedding",
        "Use a draft made for this target, or run autoregressive.",
    )


def other_checkpoint(situation: Situation) -> Iterator[Finding]:
    """A whole model of the target's own kind as draft: its head was trained on that model's hidden states."""
    draft, target = situation.draft, situation.target
    if draft is None or asked_algorithm(situation) not in _FROM_HIDDEN_STATES or draft.name == target.name:
        return
    if draft.architecture is not None and draft.architecture == target.architecture:
        found = f"takes the head of {draft.name} for {target.name}"
        why = "a head is trained on its own target's hidden states, and another one's drafts are accepted less often"
        yield warn(
            "pairing.other-checkpoint", _DRAFT, found, why, "Leave it out: the head in the target's checkpoint is used."
        )


def vocabulary(situation: Situation) -> Iterator[Finding]:
    """Sizes may differ by padding alone, and equal sizes say nothing: what decides is what the token ids mean."""
    draft, target = situation.draft, situation.target
    if draft is None or not situation.arguments.speculates:
        return
    sizes_known = draft.vocab_size is not None and target.vocab_size is not None
    sizes_differ = sizes_known and draft.vocab_size != target.vocab_size
    sizes = f"{draft.vocab_size:,} and {target.vocab_size:,} entries" if sizes_known else "entries that are not known"
    same = _same_tokenizer(draft, target)
    standalone = asked_algorithm(situation) == "STANDALONE"
    if same is False and (sizes_differ or standalone):
        yield refuse(
            "pairing.tokenizer",
            _DRAFT,
            f"{draft.name} and {target.name} differ in their tokenizer ({sizes})",
            "accepted tokens would mean other words",
            "Use a draft with the target's tokenizer, or run autoregressive.",
        )
    elif same is False:
        why = "if it is more than the chat template, drafts mean other words and are always rejected"
        yield warn("pairing.tokenizer", _DRAFT, f"the tokenizer of {draft.name} is not that of {target.name}", why)
    elif sizes_differ and standalone:
        yield refuse(
            "pairing.vocabulary-size",
            _DRAFT,
            f"{draft.name} and {target.name} have {sizes}",
            "with STANDALONE the engine wants equal sizes" + (", though here the rest is padding" if same else ""),
            "Use a draft padded to the target's size.",
        )
    elif sizes_differ:
        why = (
            "the tokenizers are equal, the rest is padding"
            if same
            else "whether that is padding cannot be told: a tokenizer is not known"
        )
        yield warn("pairing.vocabulary-size", _DRAFT, f"{draft.name} and {target.name} have {sizes}", why)


def draft_context(situation: Situation) -> Iterator[Finding]:
    """The draft's worker is built with the target's context: the engine refuses a shorter draft, or, told to, stretches it."""
    draft = situation.draft
    served = situation.arguments.context_length or situation.target.max_position_embeddings
    if draft is None or not situation.arguments.speculates or draft.max_position_embeddings is None or served is None:
        return
    if draft.max_position_embeddings < served:
        why = (
            f"{STRETCHES} lets it start, and it crashes or drafts nonsense past its last position"
            if is_stretched(situation)
            else "the engine builds the draft with the target's context"
        )
        written = situation.arguments.context_length is not None
        taken = f"is {served:,} tokens" if written else f"is left out, the target's {served:,} tokens are taken"
        yield refuse(
            "pairing.draft-context",
            "context_length",
            f"{taken}, and {draft.name} has {draft.max_position_embeddings:,} positions",
            why,
            f"Serve at most {draft.max_position_embeddings:,}, or use another draft.",
        )


def asked_algorithm(situation: Situation) -> str | None:
    """As the engine reads it: in capitals."""
    written = situation.arguments.speculative_algorithm
    return written.upper() if written is not None else None


def _same_tokenizer(draft: Model, target: Model) -> bool | None:
    if draft.tokenizer is None or target.tokenizer is None:
        return None
    return draft.tokenizer == target.tokenizer


def _is_qat(model: Model) -> bool:
    return "-qat-" in f"{model.name.lower()}-"


RULES = (
    assistant_algorithm,
    assistant_missing,
    assistant_size,
    assistant_variant,
    hidden_size,
    other_checkpoint,
    vocabulary,
    draft_context,
)
