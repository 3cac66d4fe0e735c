"""Lock two: no traffic before every engine process has said that it runs its patches. Reads the reports; what is missing is pure.

A plugin that could not be imported, or that a whitelist left out, makes no sound inside the engine. Its missing report is the only sign.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spec_toolkit.errors import EngineError, Finding, Verdict
from spec_toolkit.handover import (
    LIST_VARIABLE,
    PLUGIN_NAME,
    HandedHook,
    Report,
    Role,
    decode_list,
    decode_report,
    list_sha256,
    process_name,
    report_folder,
)


def expected_processes(*, tp: int, pp: int = 1, dp: int = 1, dp_attention: bool = False) -> frozenset[str]:
    """Names of the processes that must report on one machine; `tp`, `pp` and `dp` are the engine's sizes."""
    names = {process_name(role, {}) for role in (Role.LAUNCHER, Role.DETOKENIZER)}
    if dp > 1:
        names.add(process_name(Role.DP_CONTROLLER, {}))
    for pp_rank in range(pp):
        for tp_rank in range(tp):
            if dp == 1:
                ranks: list[dict[str, int]] = [{}]
            elif dp_attention:  # the tensor-parallel ranks are divided among the data-parallel ones
                ranks = [{"dp": tp_rank * dp // tp}]
            else:
                ranks = [{"dp": dp_rank} for dp_rank in range(dp)]
            names |= {process_name(Role.SCHEDULER, {**rank, "pp": pp_rank, "tp": tp_rank}) for rank in ranks}
    return frozenset(names)


def read_reports(patch_list: Path) -> tuple[Report, ...]:
    """Every whole report beside the list; a file that is no report counts as none."""
    reports = []
    for path in sorted(report_folder(patch_list).glob("*.json")):
        try:
            reports.append(decode_report(path.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return tuple(reports)


def alive(pids: Iterable[int]) -> frozenset[int]:
    """Those of the process ids that are running now."""
    return frozenset(pid for pid in pids if _runs(pid))


@dataclass(frozen=True, slots=True)
class Patched:
    """What every process of an engine has reported."""

    patches: tuple[str, ...]  # ids, in order
    processes: dict[int, str]  # names by process id


def patched(patch_list: Path, expected: Iterable[str]) -> Patched:
    """EngineError, with a finding for each, where a process has not said that it runs every patch of its role."""
    handed = patch_list.read_bytes()
    hooks, reports = decode_list(handed), read_reports(patch_list)
    live = alive(report.pid for report in reports)
    names = frozenset(expected)
    if findings := missing_reports(hooks, list_sha256(handed), reports, expected=names, live=live):
        raise EngineError(*findings)
    return Patched(
        patches=tuple(sorted({hook.patch for hook in hooks})),
        processes={report.pid: report.name() for report in reports if report.pid in live},
    )


def missing_reports(
    hooks: Sequence[HandedHook],
    sha256: str,
    reports: Sequence[Report],
    *,
    expected: frozenset[str],
    live: frozenset[int],
) -> tuple[Finding, ...]:
    """Why traffic may not start yet; empty once every expected process runs every hook of its role.

    Reports of processes that are gone, or of another list, say nothing about the engine that runs now.
    """
    now = [report for report in reports if report.pid in live and report.list_sha256 == sha256]
    silent = sorted(expected - {report.name() for report in now})
    findings = [_silent(name, reports, live, sha256) for name in silent]
    for report in now:
        due = {hook.target for hook in hooks if report.role in hook.roles}
        findings += [_not_applied(report, target) for target in sorted(due - set(report.applied))]
    return tuple(findings)


def _silent(name: str, reports: Sequence[Report], live: frozenset[int], sha256: str) -> Finding:
    same = [report for report in reports if report.name() == name]
    if any(report.pid in live and report.list_sha256 != sha256 for report in same):
        found, remedy = (
            "reports another patch list",
            f"Start the engine in a fresh folder, {LIST_VARIABLE} unset before.",
        )
    elif same:
        found, remedy = f"reported and is gone (pid {same[-1].pid})", "The engine's log says why it ended."
    else:
        found = f"has not reported its patches (it got no {LIST_VARIABLE}, or could not load plugin '{PLUGIN_NAME}')"
        remedy = f"Look for 'Failed to load plugin {PLUGIN_NAME}' in the engine's log."
    return _refused("patches.not-reported", name, found, why="the engine would serve without them", remedy=remedy)


def _not_applied(report: Report, target: str) -> Finding:
    return _refused(
        "patches.not-applied",
        f"{report.name()} (pid {report.pid})",
        f"does not run the hook on {target}",
        why="it is a hook of its role",
        remedy="Stop the engine; the plugin and the launcher are of different versions.",
    )


def _refused(rule: str, where: str, found: str, *, why: str, remedy: str) -> Finding:
    return Finding(rule=rule, verdict=Verdict.REFUSE, where=where, found=found, why=why, remedy=remedy)


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"  # a zombie holds its pid, and serves nothing
