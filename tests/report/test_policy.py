"""What is shown of the policy: unknown stays unknown, and a block is drawn anew only where something happened."""

import os
import time

import msgspec
import pytest

from spec_toolkit.gateway.counters import Snapshot as Counted
from spec_toolkit.launch.deployment import Folder, Status
from spec_toolkit.report.policy import block, policy_lines, what_matters
from spec_toolkit.report.standing import Standing, as_record, read_standing
from spec_toolkit.report.text import status_lines
from spec_toolkit.sidecar.files import write_snapshot
from spec_toolkit.sidecar.records import Snapshot

STATUS = Status(
    name="d",
    recipe="r.yaml",
    recipe_sha256="0",
    phase="ready",
    address="http://127.0.0.1:1",
    run="run-a",
    labels=("rehearsal", "unproven"),
)
BARE = Snapshot(
    run="run-a", at="2026-11-29T22:00:00.000+00:00", at_s=1000.0, wall_s=1000.0, mode="full", steps=3, since_s=940.0, signal="", held=False,
    why="full stays: window 3.0 of 10 s", address="http://127.0.0.1:2",
)  # fmt: skip
FULL = msgspec.structs.replace(
    BARE,
    mode="reduced(1)",
    signal="load_high",
    held=True,
    scrape_age_seconds=0.4,
    emitted_length=1.62,
    emitted_low=1.58,
    emitted_high=1.66,
    rounds=214,
    break_even=1.5,
    batch=8.0,
    queue_depth=9,
    running=8,
    draft_faults=2,
    draft_kv_missing=1,
    last_fault="draft: ValueError: no",
    epochs=(4, 4),
    act_problem="actuator: asked for full ... [act.not-taken]",
    act_failures=3,
    decisions=("22:00:00 full -> reduced(1): load_high: queue depth at least 9",),
)
GATEWAY = Counted(
    run="run-a", at="now", wall_s=1000.0, route=3, engine=1, stopping=False, in_flight=4, waiting=1, cap=20, streams=3, completed=7, resumed=2, resume_failed=0,
    remade=0, refused=5, client_gone=0, reasons={}, losses={}, resume_seconds=(), completions_per_second=None,
)  # fmt: skip


def standing(policy=FULL, gateway=GATEWAY, age=0.4, gateway_age=0.3, status=STATUS) -> Standing:
    return Standing(
        status=status,
        policy=policy,
        policy_age_seconds=age,
        gateway=gateway,
        gateway_age_seconds=gateway_age,
        held=None,
    )


def test_a_block_says_the_mode_its_reason_the_length_and_what_it_is_measured_by():
    shown = block(standing())
    for said in (
        "d: ready at http://127.0.0.1:1 [rehearsal, unproven]\n",
        "reduced(1) for 60 s, since load_high, held by a person",
        "length 1.62 over 214 rounds (95 % each way 1.58 to 1.66), break-even 1.50 at batch 8",
        "running 8, queue depth 9",
        "faults 2, prefills without draft KV 1; last fault draft: ValueError: no",
        "[act.not-taken] (3 in a row)",
        "last good look 0.4 s ago, epoch 4",
        "in flight 4 of 20, waiting for an engine 1, completed 7, resumed 2, resume failed 0, refused 5, as of 0.3 s ago",
        "    22:00:00 full -> reduced(1): load_high: queue depth at least 9",
    ):
        assert said in shown


def test_what_is_not_known_is_called_unknown_and_never_zero():
    shown = block(standing(policy=BARE, gateway=None))
    for said in (
        "length unknown: too few rounds, or nothing drafted; break-even unknown at this batch",
        "running unknown, queue depth unknown",
        "faults unknown, prefills without draft KV unknown",
        "last good look never",
        "gateway   unknown",
    ):
        assert said in shown
    assert "0" not in shown.split("load")[1].split("engine")[0]


def test_without_a_word_of_the_sidecar_nothing_is_claimed():
    assert policy_lines(standing(policy=None, age=None)) == ["  policy    unknown: its sidecar has said nothing yet"]


def test_a_mode_of_no_engine_is_not_shown_as_one_that_serves():
    [line, *_] = policy_lines(standing(policy=msgspec.structs.replace(FULL, address="")))
    assert line.endswith("; no engine takes requests now")


def test_a_sidecar_that_fell_silent_is_told():
    assert "(as of 12 s ago: its sidecar does not speak)" in block(standing(age=12.0))
    assert "does not speak" not in block(standing(age=2.0))
    assert "(as of 12 s ago: it does not speak)" in block(standing(gateway_age=12.0))


def test_an_age_that_cannot_be_is_called_unknown():
    for_policy = policy_lines(standing(age=None))[0]
    assert for_policy.endswith(" (of unknown age: this machine's clock was set back)")
    assert block(standing(gateway_age=None)).count("of unknown age") == 1


def test_a_mode_that_is_not_known_is_called_so():
    unknown = msgspec.structs.replace(BARE, mode="", steps=None)
    assert policy_lines(standing(policy=unknown))[0] == "  policy    unknown"


def test_of_a_deployment_that_ended_nothing_is_counted():
    over = msgspec.structs.replace(STATUS, phase="failed", address="")
    assert block(standing(status=over, policy=None, gateway=None)) == "d: failed [rehearsal, unproven]"


def test_what_an_engine_was_handed_over_with_is_not_called_the_mode():
    serving = msgspec.structs.replace(STATUS, engine_address="http://127.0.0.1:2", emitted_length=2.5)
    shown = status_lines([serving])
    said = "handed over at full: speculating, emitted length 2.50 in the smoke test [rehearsal, unproven]"
    assert f"  engine    http://127.0.0.1:2, {said}\n" in shown
    assert "  mode " not in shown


@pytest.mark.parametrize(
    "changed",
    [
        {"policy": msgspec.structs.replace(FULL, mode="full")},
        {"policy": msgspec.structs.replace(FULL, held=False)},
        {"policy": msgspec.structs.replace(FULL, decisions=())},
        {"policy": msgspec.structs.replace(FULL, limits_problem="limits.json: no")},
        {"policy": None},
        {"gateway": msgspec.structs.replace(GATEWAY, resumed=3)},
        {"age": 30.0},
        {"gateway_age": 30.0},
        {"status": msgspec.structs.replace(STATUS, phase="stopping")},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_happened_is_worth_a_new_block(changed):
    assert what_matters(standing(**changed)) != what_matters(standing())


def test_the_passing_of_time_is_not():
    later = msgspec.structs.replace(
        FULL, at_s=1001.0, scrape_age_seconds=0.7, emitted_length=1.63, why="reduced(1) stays: 4 of 10 s"
    )
    busier = msgspec.structs.replace(GATEWAY, in_flight=9, completed=9)
    assert what_matters(standing(policy=later, gateway=busier, age=1.1)) == what_matters(standing())


def test_a_record_has_the_statuss_fields_and_the_policys_beside_them():
    record = as_record(standing())
    assert record["phase"] == "ready"
    assert record["policy"]["mode"] == "reduced(1)"
    assert record["gateway"]["resumed"] == 2


@pytest.fixture
def folder(tmp_path):
    made = Folder(tmp_path / "d")
    made.create()
    made.write_status(STATUS)
    owned = made.own()
    yield made
    os.close(owned)


def test_files_that_are_not_there_are_unknown(folder):
    found = read_standing(folder)
    assert (found.policy, found.policy_age_seconds, found.gateway, found.held) == (None, None, None, None)
    assert found.gateway_age_seconds is None


def test_a_snapshot_of_an_earlier_run_says_nothing_about_this_one(folder):
    write_snapshot(folder, msgspec.structs.replace(FULL, run="yesterday"))
    assert read_standing(folder).policy is None
    write_snapshot(folder, FULL)
    assert read_standing(folder).policy == FULL


def test_counters_of_an_earlier_run_say_nothing_about_this_one(folder):
    folder.gateway_snapshot.write_bytes(msgspec.json.encode(msgspec.structs.replace(GATEWAY, run="yesterday")))
    assert read_standing(folder).gateway is None
    folder.gateway_snapshot.write_bytes(msgspec.json.encode(GATEWAY))
    assert read_standing(folder).gateway == GATEWAY


def test_of_a_run_that_is_over_nothing_is_present(folder):
    write_snapshot(folder, FULL)
    folder.gateway_snapshot.write_bytes(msgspec.json.encode(GATEWAY))
    folder.write_status(msgspec.structs.replace(STATUS, phase="stopped"))
    found = read_standing(folder)
    assert (found.policy, found.gateway, found.gateway_age_seconds) == (None, None, None)


def test_ages_go_by_the_machines_clock_and_not_by_the_policys(folder):
    now_s = time.time()  # noqa: TID251 - what the writers of these files do
    write_snapshot(folder, msgspec.structs.replace(FULL, at_s=now_s + 3600, wall_s=now_s - 7))
    folder.gateway_snapshot.write_bytes(msgspec.json.encode(msgspec.structs.replace(GATEWAY, wall_s=now_s + 60)))
    found = read_standing(folder)
    assert 7 <= found.policy_age_seconds < 60
    assert found.gateway_age_seconds is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"mode": 3}'])
def test_snapshots_that_cannot_be_read_are_unknown(folder, content):
    folder.sidecar_snapshot.write_bytes(content)
    folder.gateway_snapshot.write_bytes(content)
    found = read_standing(folder)
    assert (found.policy, found.gateway) == (None, None)
