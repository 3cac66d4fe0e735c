"""The words every room shares. Pure: enums whose values may appear in recipes, logs, metrics and messages."""

from enum import Enum, IntEnum


class Mode(Enum):
    """What the service does with speculation; the ladder of ARCHITECTURE.md, section 4."""

    FULL = "full"  # num_steps as the recipe says
    REDUCED = "reduced"  # fewer steps
    ZERO_DRAFT = "zero_draft"  # the speculative path, nothing drafted
    AUTOREGRESSIVE = "autoregressive"  # an engine without speculation


def mode_at(steps: int, most: int) -> Mode:
    """What so many draft passes are for an engine that can make `most`. One that can only idle is not full."""
    if steps == 0:
        return Mode.ZERO_DRAFT
    return Mode.FULL if steps == most else Mode.REDUCED


class KnobMode(IntEnum):
    """A mode as the knob's number, since the engine's control endpoint carries numbers only: `KnobMode[mode.name]`.

    Autoregressive has none: it is another engine, and no command reaches it.
    """

    FULL = 0
    REDUCED = 1
    ZERO_DRAFT = 2


class KnobAnswer(IntEnum):
    """What the engine did with the last command, as a number: the endpoint itself answers only yes or no."""

    TAKEN = 0
    STALE = 1  # the epoch is not above the one in force
    WRONG_KEYS = 2  # not exactly `KNOB_KEYS`; with anything else beside them it is refused whole
    NOT_WHOLE = 3  # a value that is no finite whole number
    UNKNOWN_MODE = 4  # no number of KnobMode
    UNKNOWN_STEPS = 5  # the engine was not started with this step count
    CONTRADICTION = 6  # the mode does not fit the steps
    NO_CONTROLLER = 7  # this engine cannot change its steps: it runs without adaptive speculation
    FAILED = 8  # a defect of ours


class DraftPart(Enum):
    """A part of the draft that can fail without the engine: the sites that faults are counted by."""

    DRAFT = "draft"  # proposing, at the head of a round
    DRAFT_EXTEND = "draft_extend"  # catching up with what was accepted, at its end
    PREFILL = "prefill"  # the prompt's draft KV


class FaultPoint(IntEnum):
    """Where a rehearsal plants a fault, as the number its command carries."""

    DRAFT_BEFORE = 0
    DRAFT_IN = 1  # between the draft's collectives: after the first of its forwards
    DRAFT_AFTER = 2
    DRAFT_EXTEND_BEFORE = 3
    DRAFT_EXTEND_AFTER = 4
    PREFILL_BEFORE = 5
    PREFILL_AFTER = 6
    DRAFT_NOT_FINITE = 7  # NaN in place of the logits of a forward
    DRAFT_EXTEND_NOT_FINITE = 8
    PREFILL_NOT_FINITE = 9
    UNLIKE_DRAFTS = 10  # drafts that are not the other ranks', at the same width and without an exception


KNOB_KEYS = ("epoch", "mode", "steps")  # of a command
FAULT_KEYS = ("fault_point", "fault_rank", "fault_after", "fault_times")  # of a fault to plant; see plugin.injection
RANKS_KEY = "spec_toolkit"  # under which each of the engine's internal states carries its ranks' rows


class Signal(Enum):
    """Why the policy moves, or stays: the typed reason of a decision.

    Which of them have moves stands in `policy.modes.NEXT`; the others are named so that whoever reads them first spells them so.
    """

    IDENTITY_MISMATCH = "identity_mismatch"  # tokenizer, template, revision, weights, engine or patches are others
    ACCEPTANCE_CHANGED = "acceptance_changed"  # an accept threshold below 1 that the recipe does not call lossy
    DRAFT_FAULT = "draft_fault"  # an exception or NaN in the draft, agreed by all ranks
    DRAFT_KV_MISSING = "draft_kv_missing"  # rounds whose prefix has no draft KV
    DRAFT_OVER_CAP = "draft_over_cap"  # draft weights, draft KV or temporary slots above their caps
    KV_PRESSURE = "kv_pressure"
    LOAD_HIGH = "load_high"  # requests queue, and speculation is not known to pay at this batch
    ACCEPTANCE_LOW = "acceptance_low"  # emitted length below break-even at this batch
    DRAFT_SLOW = "draft_slow"
    VERIFY_SLOW = "verify_slow"
    GRAPH_MISSED = "graph_missed"
    SHORT_OR_HOT = "short_or_hot"  # of a request, not of the engine
    ENGINE_UNREACHABLE = "engine_unreachable"
    ENGINE_LOST = "engine_lost"  # it ended or hung without being asked to
    TELEMETRY_STALE = "telemetry_stale"
    PROFIT_POSSIBLE = "profit_possible"  # one rung more pays, or may be tried
    INJECTED = "injected"  # by chaos
    HELD = "held"  # a person chose the mode


class Method(Enum):
    """Kind of draft; what proposes the tokens."""

    MTP = "mtp"  # the head that ships inside the target's checkpoint
    EAGLE3 = "eagle3"
    FROZEN_KV_MTP = "frozen_kv_mtp"  # Gemma 4 assistants: read the target's KV, write none
    STANDALONE = "standalone"
    NGRAM = "ngram"
    DFLASH = "dflash"
    DSPARK = "dspark"  # drafts a block: has a block size, no step count
    NONE = "none"


class Acceptance(Enum):
    """The rule drafts are verified by; evidence taken under one says nothing about another."""

    TARGET_ONLY = "target_only"  # lossless; the engine's default, and the only rule for trees and Gemma 4
    REJECTION = "rejection"  # lossless; chains only
    RELAXED = "relaxed"  # not lossless: everything it touches is labelled LOSSY


class RanksAfterFault(Enum):
    """What several ranks of one engine do when the draft fails on one of them."""

    # The default: the stream goes on. One byte is all-reduced before each verify; where it says "fault" nobody's drafts count.
    VOTE = "vote"
    END_ENGINE = "end_engine"  # no byte, no vote: the engine ends and the supervisor starts it autoregressively


class Comeback(Enum):
    """How a speculating engine takes over from the autoregressive one that stood in for it."""

    BESIDE = "beside"  # started beside it: needs room for two engines; nobody waits
    IN_PLACE = "in_place"  # after it, at a time when nothing runs: needs no room; who comes meanwhile waits for a start
    BY_HAND = "by_hand"  # when a person asks


class Basis(Enum):
    """Who says that a recipe's cell works; none of them says that it pays."""

    VENDOR_DOCS = "vendor_docs"  # of the engine or of the model
    THIRD_PARTY = "third_party"  # somebody else's published runs
    UNPROVEN = "unproven"  # nobody: it follows from what is documented for its neighbours


LOSSY = "lossy"  # the label RELAXED puts on every plan, metric and report
