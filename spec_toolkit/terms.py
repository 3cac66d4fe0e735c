"""The words every room shares. Pure: enums whose values may appear in recipes, logs, metrics and messages."""

from enum import Enum


class Mode(Enum):
    """What the service does with speculation; the ladder of ARCHITECTURE.md, section 4."""

    FULL = "full"  # num_steps as the recipe says
    REDUCED = "reduced"  # fewer steps
    ZERO_DRAFT = "zero_draft"  # the speculative path, nothing drafted
    AUTOREGRESSIVE = "autoregressive"  # an engine without speculation


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


LOSSY = "lossy"  # the label RELAXED puts on every plan, metric and report
