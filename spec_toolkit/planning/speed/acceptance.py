"""How far drafts survive, and who says so: what was measured for this recipe before what others published. Pure."""

from enum import Enum

from msgspec import Struct

from spec_toolkit.facts.evidence import Evidence, Prompts
from spec_toolkit.facts.records import Level, Tables
from spec_toolkit.planning.speed.lengths import survival_of_lengths
from spec_toolkit.terms import Method


class Grounds(Enum):
    MEASURED = "measured"  # the recipe's own evidence
    PRIOR = "prior"  # published, of other prompts and another machine


class Survival(Struct, frozen=True, kw_only=True):
    positions: tuple[float, ...]  # share of rounds that accept all drafts up to it, per position
    grounds: Grounds
    level: Level | None  # of what was published
    says: str  # where it comes from, in words


def measured_survival(evidence: Evidence) -> Survival | None:
    """Of the deepest row that says it; without one, from emitted lengths with 1, 2, ... steps. Never of faked or random tokens.

    `evidence` is of the recipe in question: who asks has seen to it.
    """
    if evidence.simulated or evidence.identity.workload.prompts is Prompts.RANDOM_TOKENS:
        return None
    rows = [row for row in evidence.rows if row.num_steps and row.survival]
    name = evidence.identity.workload.name
    if rows:
        deepest = max(rows, key=lambda row: (row.num_steps or 0, row.rounds or 0))
        says = f"measured on {name}, batch {deepest.batch}, {_rounds(deepest.rounds)}"
        return Survival(positions=deepest.survival or (), grounds=Grounds.MEASURED, level=None, says=says)
    for batch in sorted({row.batch for row in evidence.rows}):
        lengths = {row.num_steps: row.emitted_length for row in evidence.rows if row.batch == batch and row.num_steps}
        known = [lengths[steps] for steps in range(1, len(lengths) + 1) if lengths.get(steps)]
        if known and len(known) == len(lengths):
            positions = survival_of_lengths([length for length in known if length is not None])
            says = f"from emitted lengths measured on {name}, batch {batch}"
            return Survival(positions=positions, grounds=Grounds.MEASURED, level=None, says=says)
    return None


def published_survival(tables: Tables, repository: str, method: Method) -> Survival | None:
    """Of just this target and kind of draft; of another checkpoint of the same model where there is none. Of several the most cautious."""
    known = next((name for name, facts in tables.models.items() if repository in facts.checkpoints), None)
    curves = [curve for curve in tables.acceptance.curves if curve.method == method.value]
    fitting = [curve for curve in curves if curve.repo == repository] or [
        c for c in curves if known and c.model == known
    ]
    if not fitting:
        return None
    curve = min(fitting, key=lambda one: sum(one.emitted.v))
    thinking = "with thinking on" if curve.thinking else "with thinking off"
    note = f"; {curve.emitted.note}" if curve.emitted.note else ""
    return Survival(
        positions=survival_of_lengths(curve.emitted.v),
        grounds=Grounds.PRIOR,
        level=curve.emitted.e,
        says=f"published for {curve.repo} {thinking} ({tables.acceptance.measured}{note}): a prior, not this machine",
    )


def _rounds(count: int | None) -> str:
    return "rounds not counted" if count is None else f"{count:,} rounds"
