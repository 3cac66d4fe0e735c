"""Lock two: which processes must report, and what is said when one does not."""

import os
import subprocess
import sys

import pytest

from spec_toolkit.engine.patch_reports import (
    alive,
    expected_processes,
    missing_reports,
    read_reports,
)
from spec_toolkit.handover import HandedHook, HookType, Report, Role, encode_report, report_folder

HOOKS = (
    HandedHook(
        patch="double-it",
        target="engine.work.step",
        fingerprint="abc",
        file="/patches/double_it/hooks.py",
        file_sha256="def",
        function="double",
        type=HookType.AROUND,
        roles=(Role.SCHEDULER,),
    ),
)
EXPECTED = expected_processes(tp=2)
ALL_LIVE = frozenset({1, 2, 3, 4})


def report(pid: int, role: Role, applied=(), list_sha256="now", **ranks: int) -> Report:
    return Report(role=role, ranks=ranks, pid=pid, list_sha256=list_sha256, applied=applied)


def scheduler(pid: int, tp: int, **changes) -> Report:
    return report(pid, Role.SCHEDULER, **{"applied": ("engine.work.step",), "pp": 0, "tp": tp, **changes})


LAUNCHER, DETOKENIZER = report(1, Role.LAUNCHER), report(2, Role.DETOKENIZER)
COMPLETE = [LAUNCHER, DETOKENIZER, scheduler(3, 0), scheduler(4, 1)]


def said(reports, live=ALL_LIVE) -> list[str]:
    return [finding.sentence() for finding in missing_reports(HOOKS, "now", reports, expected=EXPECTED, live=live)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param({"tp": 1}, {"launcher", "detokenizer", "scheduler-pp0-tp0"}, id="one-rank"),
        pytest.param(
            {"tp": 2, "pp": 2},
            {"launcher", "detokenizer", *(f"scheduler-pp{p}-tp{t}" for p in (0, 1) for t in (0, 1))},
            id="tensor-and-pipeline",
        ),
        pytest.param(
            {"tp": 1, "dp": 2},
            {"launcher", "detokenizer", "dp_controller", "scheduler-dp0-pp0-tp0", "scheduler-dp1-pp0-tp0"},
            id="replicas",
        ),
        pytest.param(
            {"tp": 4, "dp": 2, "dp_attention": True},
            {
                "launcher",
                "detokenizer",
                "dp_controller",
                "scheduler-dp0-pp0-tp0",
                "scheduler-dp0-pp0-tp1",
                "scheduler-dp1-pp0-tp2",
                "scheduler-dp1-pp0-tp3",
            },
            id="dp-attention",
        ),
    ],
)
def test_every_process_of_every_role_is_expected(sizes, expected):
    assert expected_processes(**sizes) == expected


def test_with_every_report_there_is_nothing_to_say():
    assert said(COMPLETE) == []


def test_a_rank_without_its_list_is_named():
    (sentence,) = said(COMPLETE[:3])
    assert sentence == (
        "scheduler-pp0-tp1: has not reported its patches (it got no SPEC_TOOLKIT_PATCHES, or could not load plugin 'spec_toolkit'); the "
        "engine would serve without them. Look for 'Failed to load plugin spec_toolkit' in the engine's log. [patches.not-reported]"
    )


def test_a_plugin_that_could_not_be_imported_is_every_report_missing():
    assert [sentence.split(":")[0] for sentence in said([])] == sorted(EXPECTED)


def test_a_report_of_a_process_that_is_gone_does_not_count():
    (sentence,) = said(COMPLETE, live=frozenset({1, 2, 3}))
    assert sentence.startswith("scheduler-pp0-tp1: reported and is gone (pid 4);")


def test_a_report_on_another_list_does_not_count():
    (sentence,) = said([*COMPLETE[:3], scheduler(4, 1, list_sha256="before")])
    assert sentence.startswith("scheduler-pp0-tp1: reports another patch list;")


def test_a_report_that_lacks_a_hook_of_its_role_is_named():
    (sentence,) = said([*COMPLETE[:3], scheduler(4, 1, applied=())])
    assert sentence.startswith("scheduler-pp0-tp1 (pid 4): does not run the hook on engine.work.step;")
    assert sentence.endswith("[patches.not-applied]")


def test_an_old_report_beside_the_new_one_does_no_harm():
    """Near miss: a restart in the same folder."""
    assert said([*COMPLETE, scheduler(99, 1)]) == []


def test_reports_are_read_and_what_is_none_is_passed_over(tmp_path):
    patch_list = tmp_path / "patches.json"
    folder = report_folder(patch_list)
    folder.mkdir()
    (folder / "launcher-1.json").write_bytes(encode_report(LAUNCHER))
    (folder / "detokenizer-2.json").write_bytes(b'{"role": "detok')
    (folder / "scheduler-3.part").write_bytes(encode_report(scheduler(3, 0)))
    assert read_reports(patch_list) == (LAUNCHER,)


def test_before_the_first_report_there_is_none(tmp_path):
    assert read_reports(tmp_path / "patches.json") == ()


def test_a_process_that_ended_is_not_alive_even_before_it_is_waited_for():
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.DEVNULL)
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert alive([child.pid, os.getpid(), 2**22 + 1]) == {os.getpid()}
    finally:
        child.wait()
