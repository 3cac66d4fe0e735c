"""Makes a plan: everything that follows from a recipe, and everything there is to say about it. Pure; a bad recipe makes findings.

The rules are listed here in one place; what a rule says is in `rules/`. A plan's values already hold the corrections that its findings
announce.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Finding, Verdict
from spec_toolkit.facts.records import Checkpoint, Tables
from spec_toolkit.planning.asked import asked_of
from spec_toolkit.planning.limits import Limits
from spec_toolkit.planning.rules import features, graphs, machine, pins, policy, shape
from spec_toolkit.planning.rules.shape import Shape
from spec_toolkit.planning.runtime import derive_limits, derive_steps
from spec_toolkit.recipe.load import LoadedRecipe
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.terms import LOSSY


class Evidence(Enum):
    """What is known about whether a recipe pays."""

    UNPROVEN = "unproven"  # documents say so; nothing was measured
    REHEARSAL = "rehearsal"  # runs on a CPU; says nothing about speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A recipe with its consequences."""

    name: str  # the recipe's: its file name
    path: Path
    sha256: str  # of the recipe's bytes, "sha256:..."
    recipe: Recipe
    shape: Shape | None  # None where a finding refuses the draft
    decode_graph_batch_sizes: tuple[int, ...]  # ascending; empty on a CPU
    steps: tuple[int, ...]  # step counts the engine can be set to while it serves, ascending from 0; empty: it cannot
    asked: Arguments  # of the engine, but for what a machine adds
    limits: Limits | None  # what the policy reads; None where the draft has no shape
    evidence: Evidence
    findings: tuple[Finding, ...]  # worst first

    @property
    def may_launch(self) -> bool:
        return not any(finding.verdict is Verdict.REFUSE for finding in self.findings)

    @property
    def lossy(self) -> bool:
        return self.recipe.is_lossy

    @property
    def labels(self) -> tuple[str, ...]:
        """Words that go wherever this plan's numbers go."""
        lossy = (LOSSY,) if self.lossy else ()
        simulated = ("simulated",) if self.recipe.simulated else ()
        return (*lossy, *simulated, self.evidence.value)


def make_plan(
    loaded: LoadedRecipe, tables: Tables, *, checkpoint: Checkpoint | None = None, content: str | None = None
) -> Plan:
    """`checkpoint` and `content` (its content hash) are of the target's folder, where it lies on this machine."""
    recipe = loaded.recipe
    worst_first = list(Verdict)
    drawn = shape.derive_shape(recipe.draft)
    steps = derive_steps(recipe, drawn)
    batch_sizes = graphs.derive_graph_list(recipe, tables.engine)
    findings = sorted(
        _apply(recipe, tables, checkpoint, content),
        key=lambda f: (worst_first.index(f.verdict), loaded.line_of(f.where)),
    )
    return Plan(
        name=loaded.name,
        path=loaded.path,
        sha256=loaded.sha256,
        recipe=recipe,
        shape=drawn,
        decode_graph_batch_sizes=batch_sizes,
        steps=steps,
        asked=asked_of(recipe, shape=drawn, graph_batch_sizes=batch_sizes, steps=steps),
        limits=derive_limits(recipe, steps, sha256=loaded.sha256) if drawn else None,
        evidence=Evidence.REHEARSAL if recipe.is_rehearsal else Evidence.UNPROVEN,
        findings=tuple(findings),
    )


def _apply(recipe: Recipe, tables: Tables, checkpoint: Checkpoint | None, content: str | None) -> Iterator[Finding]:
    """Every rule, by subject."""
    draft, hardware, engine = recipe.draft, recipe.hardware, tables.engine
    model = tables.model(recipe.target.model)

    yield from shape.chain_width(draft)
    yield from shape.steps_missing(draft, model)
    yield from shape.tree_width(draft)
    yield from shape.block_only_dspark(draft)
    yield from shape.nothing_to_shape(draft)

    yield from features.method_planned(draft)
    yield from features.draft_model(draft)
    yield from features.mtp_layer(recipe, model, checkpoint)
    yield from features.rejection_needs_chain(draft)
    yield from features.thresholds(draft)
    yield from features.relaxed_is_lossy(draft)
    yield from features.simulated(recipe)
    yield from features.overlap(recipe)
    yield from features.extra_args(recipe, engine)
    yield from features.not_enforced(recipe)
    yield from policy.allowed_modes(recipe.policy, draft)
    yield from policy.between(recipe.policy, draft)
    yield from policy.windows(recipe.policy)
    yield from policy.one_depth(recipe)
    yield from policy.comes_back(recipe)
    yield from policy.room_and_time(recipe)

    yield from graphs.cover(recipe)
    yield from graphs.order(recipe)
    yield from graphs.graphs_on_cpu(recipe)
    yield from graphs.request_cap(recipe, engine)
    yield from graphs.context(recipe, model, checkpoint.max_position_embeddings if checkpoint else None)

    yield from machine.layout(hardware)
    yield from machine.known_gpu(hardware, tables)
    yield from machine.known_model(recipe, tables)
    yield from machine.rehearsal_model(recipe)

    yield from pins.engine_version(recipe, engine)
    yield from pins.target_revision(recipe)
    yield from pins.draft_revision(recipe)
    yield from pins.tokenizer(recipe)
    yield from pins.local_pins(recipe, checkpoint, content)
    yield from pins.evidence(recipe)
