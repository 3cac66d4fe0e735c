"""Draws the situation that rules about the engine read, of a recipe. Pure."""

from collections.abc import Iterable

from msgspec.structs import replace

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Finding, Verdict
from spec_toolkit.facts.model import Model
from spec_toolkit.facts.records import Tables
from spec_toolkit.planning.admission import environment_of
from spec_toolkit.planning.extra_arguments import arguments_of_extra
from spec_toolkit.planning.situation import Caps, Pins, Site, Situation, Workload
from spec_toolkit.recipe.schema import Recipe
from spec_toolkit.terms import Mode


def of_recipe(  # noqa: PLR0913 - what a situation is drawn of
    recipe: Recipe, asked: Arguments, tables: Tables, *, steps: tuple[int, ...], target: Model, draft: Model | None
) -> Situation:
    """`draft`: None where the head ships in the target's checkpoint, or there is none."""
    hardware, limits = recipe.hardware, recipe.limits
    drawn = Situation(
        arguments=with_extra_arguments(asked, recipe),
        target=target,
        draft=draft,
        site=site_of(tables, hardware.gpu, hardware.count, hardware.nodes),
        pins=Pins(sglang=recipe.engine.sglang, image=recipe.engine.image),
        engine=tables.engine,
        workload=Workload(context_tokens=limits.context_tokens),
        sets_environment=True,
        loads_knob=True,
        steps=steps,
        caps=Caps(
            draft_weights_gib=limits.draft_weights_gib,
            draft_kv_gib=limits.draft_kv_gib,
            temporary_kv_gib=limits.temporary_kv_gib,
            may_run_autoregressive=Mode.AUTOREGRESSIVE in recipe.policy.allow,
        ),
    )
    return replace(drawn, environment=environment_of(drawn))


def site_of(tables: Tables, gpu: str | None, gpus_per_node: int, nodes: int) -> Site:
    facts = tables.gpus.get(gpu) if gpu else None
    return Site(gpu=gpu, facts=facts, gpus_per_node=gpus_per_node, nodes=nodes)


def with_extra_arguments(asked: Arguments, recipe: Recipe) -> Arguments:
    """So that rules see through the recipe's one escape hatch."""
    added = arguments_of_extra(recipe.engine.extra_args)
    given = {name: value for name, value in _values(added) if value is not None and name != "others"}
    return replace(asked, **given, others=tuple(sorted({*asked.others, *added.others})))


def corrected(asked: Arguments, findings: Iterable[Finding]) -> Arguments:
    """With what the findings say is planned instead; of two that say something of one argument the first is heard."""
    changes: dict[str, object] = {}
    for finding in findings:
        if finding.verdict is Verdict.CORRECT:
            for name, value in finding.changes:
                changes.setdefault(name, value)
    return replace(asked, **changes) if changes else asked


def _values(asked: Arguments) -> Iterable[tuple[str, object]]:
    return ((name, getattr(asked, name)) for name in asked.__struct_fields__)
