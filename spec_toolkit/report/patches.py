"""Patches as text and JSON. Pure."""

import textwrap
from collections.abc import Sequence

from spec_toolkit.engine.patches import Patch, TargetCheck, unproven
from spec_toolkit.report.said import as_json as to_json


def listing(patches: Sequence[Patch], *, as_json: bool) -> str:
    if as_json:
        return to_json([patch.file for patch in patches])
    return "\n\n".join(_paragraph(patch) for patch in patches)


def _paragraph(patch: Patch) -> str:
    file = patch.file
    label = "".join(f" [{feature}: unproven on GPU]" for feature in unproven(patch))
    lines = [
        f"{file.id}  ({file.applies_to.value}; {', '.join(family.value for family in file.families)}){label}",
        textwrap.indent(textwrap.fill(file.reason, 100), "  "),
        *(
            f"  {target.type.value:7} {target.target}  in {', '.join(role.value for role in target.roles)}"
            for target in file.targets
        ),
        *(f"  relies on {relied.target}: {relied.why}" for relied in file.relies_on),
        f"  overlap: {file.behaviour.overlap.standing.value}; graphs: {file.behaviour.graphs.standing.value}",
        f"  drop when {file.drop_when}",
    ]
    return "\n".join(lines)


def verification(checks: Sequence[TargetCheck], *, engine: str | None, as_json: bool) -> str:
    if as_json:
        return to_json(list(checks))
    lines = [_check_line(check) for check in checks]
    wrong = sum(not check.matches for check in checks)
    found = f"sglang {engine}" if engine else "no sglang in this environment"
    lines.append(f"{len(checks) - wrong} of {len(checks)} targets match {found}")
    return "\n".join(lines)


def _check_line(check: TargetCheck) -> str:
    what = f"{check.patch}: {check.target}{'' if check.hooked else ', relied on'}"
    if check.matches:
        return f"ok       {what}"
    if check.found is None:
        return f"missing  {what} ({check.problem})"
    return f"changed  {what} (expected {check.expected[:12]}, found {check.found[:12]})"
