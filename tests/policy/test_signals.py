"""Each row is one window; each signal has near misses that must not fire it."""

import pytest
from msgspec.structs import replace

from spec_toolkit.policy.signals import read_signal
from spec_toolkit.terms import Mode, Signal
from tests.policy.traces import break_even, limits, seen, state

NOW = 1000.0
KNOWN = limits(break_even=(*break_even(1, {1: 1.8, 8: 1.3}), *break_even(3, {1: 2.6, 8: 1.7})))
FULL, REDUCED, ZERO_DRAFT = state(), state(Mode.REDUCED), state(Mode.ZERO_DRAFT)
AUTOREGRESSIVE = state(Mode.AUTOREGRESSIVE)
BUSY = {"queue_least": 8, "queue_most": 20}


def fired(at, window, chosen=KNOWN, now_s=NOW):
    return read_signal(at, window, now_s, chosen).signal


@pytest.mark.parametrize(
    ("at", "window", "expected"),
    [
        pytest.param(FULL, seen(engine_lost=True), Signal.ENGINE_LOST, id="lost"),
        pytest.param(FULL, seen(engine_lost=None), None, id="near-miss-nobody-can-say"),
        pytest.param(FULL, seen(draft_faults=1), Signal.DRAFT_FAULT, id="fault"),
        pytest.param(state(faults_seen=1), seen(draft_faults=1), None, id="near-miss-answered-fault"),
        pytest.param(state(faults_seen=5), seen(draft_faults=2), Signal.DRAFT_FAULT, id="fault-of-a-restarted-engine"),
        pytest.param(state(faults_seen=5), seen(draft_faults=0), None, id="near-miss-restarted-without-fault"),
        pytest.param(FULL, seen(draft_faults=None), None, id="near-miss-faults-not-reported"),
        pytest.param(AUTOREGRESSIVE, seen(draft_faults=4, queue_most=5), None, id="near-miss-no-draft-to-fail"),
        pytest.param(FULL, seen(NOW - 5.1), Signal.TELEMETRY_STALE, id="stale"),
        pytest.param(FULL, seen(NOW - 5.0), None, id="near-miss-as-old-as-allowed"),
        pytest.param(FULL, seen(**BUSY), Signal.LOAD_HIGH, id="load"),
        pytest.param(FULL, seen(queue_least=7, queue_most=900), None, id="near-miss-load-not-throughout"),
        pytest.param(FULL, seen(length=1.76, **BUSY), None, id="near-miss-load-where-it-pays"),
        pytest.param(FULL, seen(length=1.74, **BUSY), Signal.LOAD_HIGH, id="load-where-it-may-not-pay"),
        pytest.param(ZERO_DRAFT, seen(**BUSY), None, id="near-miss-load-where-nothing-is-drafted"),
        pytest.param(FULL, seen(from_s=NOW - 9.9, **BUSY), None, id="near-miss-window-too-short"),
        pytest.param(state(since_s=NOW - 9), seen(**BUSY), None, id="near-miss-window-began-before-the-last-move"),
        pytest.param(FULL, seen(length=1.64), Signal.ACCEPTANCE_LOW, id="acceptance"),
        pytest.param(FULL, seen(length=1.66), None, id="near-miss-break-even-within-the-interval"),
        pytest.param(FULL, seen(length=1.64, rounds=199), None, id="near-miss-too-few-rounds"),
        pytest.param(FULL, seen(length=1.64, running=None), None, id="near-miss-batch-not-reported"),
        pytest.param(FULL, seen(length=1.64, running=8.1), None, id="near-miss-batch-never-measured"),
        pytest.param(FULL, seen(length=2.50, running=1.0), Signal.ACCEPTANCE_LOW, id="acceptance-at-batch-1"),
        pytest.param(
            FULL, seen(length=2.50, running=0.2), Signal.ACCEPTANCE_LOW, id="a-round-has-one-request-at-least"
        ),
        pytest.param(FULL, seen(length=1.64, steps=1), None, id="near-miss-drafted-with-other-steps"),
        pytest.param(REDUCED, seen(length=1.2, steps=1), Signal.ACCEPTANCE_LOW, id="acceptance-with-fewer-steps"),
        pytest.param(REDUCED, seen(), Signal.PROFIT_POSSIBLE, id="probe"),
        pytest.param(REDUCED, seen(queue_most=1), Signal.PROFIT_POSSIBLE, id="probe-at-the-limit"),
        pytest.param(REDUCED, seen(queue_most=2), None, id="near-miss-inside-the-band"),
        pytest.param(REDUCED, seen(queue_least=7, queue_most=7), None, id="near-miss-top-of-the-band"),
        pytest.param(REDUCED, seen(queue_most=None), None, id="near-miss-queue-not-reported"),
        pytest.param(state(Mode.REDUCED, probe_after_s=NOW + 1), seen(), None, id="near-miss-probe-not-due"),
        pytest.param(state(Mode.REDUCED, cool_down_until_s=NOW + 1), seen(), None, id="near-miss-cooling-down"),
        pytest.param(state(Mode.REDUCED, cool_down_until_s=NOW), seen(), Signal.PROFIT_POSSIBLE, id="cooled-down"),
        pytest.param(FULL, seen(), None, id="near-miss-nothing-above-full"),
        pytest.param(state(Mode.AUTOREGRESSIVE, sticky=True), seen(), None, id="near-miss-sticky"),
        pytest.param(AUTOREGRESSIVE, seen(steps=None), Signal.PROFIT_POSSIBLE, id="back-to-a-speculating-engine"),
        pytest.param(
            state(Mode.AUTOREGRESSIVE, probe_after_s=NOW + 1),
            seen(steps=None),
            Signal.PROFIT_POSSIBLE,
            id="zero-drafts-are-no-probe",
        ),
    ],
)
def test_a_window_fires(at, window, expected) -> None:
    assert fired(at, window) is expected


REMEMBERS = state(Mode.REDUCED, lengths=((3, 1.8),), probe_after_s=NOW + 500, signal=Signal.ACCEPTANCE_LOW)


@pytest.mark.parametrize(
    ("at", "window", "expected"),
    [
        pytest.param(REMEMBERS, seen(), Signal.PROFIT_POSSIBLE, id="pays-at-this-batch"),
        pytest.param(REMEMBERS, seen(queue_most=5), Signal.PROFIT_POSSIBLE, id="pays-whatever-queues"),
        pytest.param(
            state(Mode.ZERO_DRAFT, lengths=((1, 1.5),)), seen(**BUSY), Signal.PROFIT_POSSIBLE, id="pays-under-load"
        ),
        pytest.param(REMEMBERS, seen(running=1.0), None, id="near-miss-not-at-that-batch"),
        pytest.param(REMEMBERS, seen(running=None), None, id="near-miss-batch-not-reported"),
        pytest.param(replace(REMEMBERS, lengths=((3, 1.78),)), seen(), None, id="near-miss-within-the-margin"),
        pytest.param(replace(REMEMBERS, lengths=((1, 1.8),)), seen(), None, id="near-miss-remembered-of-other-steps"),
        pytest.param(replace(REMEMBERS, signal=Signal.LOAD_HIGH), seen(), None, id="near-miss-load-undid-the-climb"),
    ],
)
def test_what_is_remembered_shortens_the_wait(at, window, expected) -> None:
    assert fired(at, window) is expected


def test_the_weightiest_signal_is_read_first() -> None:
    worst = seen(NOW - 40, engine_lost=True, draft_faults=1, length=1.1, **BUSY)
    order = []
    for cure in (
        {"engine_lost": False},
        {"draft_faults": 0},
        {"from_s": NOW - 10, "until_s": NOW},
        {"queue_least": 0},
        {},
    ):
        order.append(fired(FULL, worst))
        worst = replace(worst, **cure)
    assert order == [
        Signal.ENGINE_LOST,
        Signal.DRAFT_FAULT,
        Signal.TELEMETRY_STALE,
        Signal.LOAD_HIGH,
        Signal.ACCEPTANCE_LOW,
    ]


@pytest.mark.parametrize(
    ("at", "window", "chosen", "why"),
    [
        pytest.param(
            FULL,
            seen(length=1.31, rounds=214),
            KNOWN,
            "emitted length 1.31 over 214 rounds (95 % below 1.36), break-even 1.70 at batch 8",
            id="acceptance",
        ),
        pytest.param(FULL, seen(**BUSY), KNOWN, "queue depth at least 8 over 10 s, limit 8", id="load"),
        pytest.param(
            FULL,
            seen(NOW - 7),
            KNOWN,
            "last good scrape 7.0 s ago, limit 5; nothing is drafted from 30 s on",
            id="stale",
        ),
        pytest.param(
            FULL, seen(NOW - 31), KNOWN, "last good scrape 31.0 s ago, limit 5, and 30 to go on drafting", id="blind"
        ),
        pytest.param(state(faults_seen=2), seen(draft_faults=5), KNOWN, "draft faults 5, of them new 3", id="faults"),
        pytest.param(
            FULL,
            seen(length=1.31),
            limits(),
            "break-even with 3 steps is unknown at batch 8: acceptance_low cannot fire",
            id="unknown-break-even-says-so",
        ),
        pytest.param(
            FULL,
            seen(running=None),
            limits(),
            "break-even with 3 steps is unknown at batch not reported: acceptance_low cannot fire",
            id="unknown-batch-says-so",
        ),
        pytest.param(FULL, seen(rounds=12), KNOWN, "rounds 12, fewest to judge acceptance 200", id="few-rounds"),
        pytest.param(
            FULL, seen(rounds=None), KNOWN, "rounds not reported, fewest to judge acceptance 200", id="rounds-missing"
        ),
        pytest.param(
            FULL,
            seen(steps=0),
            KNOWN,
            "the engine drafted with other steps: 0 steps, 3 asked for",
            id="engine-differs",
        ),
        pytest.param(
            state(Mode.REDUCED, lengths=((3, 1.8),)),
            seen(),
            KNOWN,
            "emitted length 1.80 when last measured at full, break-even 1.70 and 5% at batch 8",
            id="expected-profit",
        ),
        pytest.param(
            state(Mode.REDUCED, probe_after_s=NOW + 70, failed_probes=2),
            seen(),
            KNOWN,
            "next probe in 70 s, failed in a row 2",
            id="probe-not-due",
        ),
        pytest.param(
            state(Mode.AUTOREGRESSIVE, sticky=True, crash_times_s=(1.0, 2.0, 3.0)),
            seen(),
            KNOWN,
            "sticky after 3 crashes, until the recipe or the version changes",
            id="sticky",
        ),
        pytest.param(FULL, seen(from_s=NOW - 4), KNOWN, "window 4.0 of 10 s", id="short-window"),
    ],
)
def test_the_sentence_holds_value_limit_and_sample_size(at, window, chosen, why) -> None:
    assert read_signal(at, window, NOW, chosen).why == why
