"""Leaves this process' report where the launcher looks for it. Writes one file."""

from pathlib import Path

from spec_toolkit.handover import Report, encode_report, report_folder


def write(report: Report, patch_list: Path) -> Path:
    """Appears whole or not at all: the launcher may be reading the folder."""
    folder = report_folder(patch_list)
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{report.name()}-{report.pid}.json"
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(encode_report(report))
    unfinished.replace(path)
    return path
