"""A plan as text and as one record: what it asks, what it takes of memory, what bounds it, what its drafts may be worth. Pure.

Every figure says how it is known; what nobody knows stands there as unknown and is left out of the sums.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from spec_toolkit.engine.arguments import Arguments
from spec_toolkit.errors import Finding
from spec_toolkit.facts.provenance import Provenance, line_of, provenance, provenance_of
from spec_toolkit.facts.records import EngineFacts, GpuFacts, Tables
from spec_toolkit.planning.admission import Admission, Graphs, Inequality
from spec_toolkit.planning.memory.ledger import How, Ledger, Line
from spec_toolkit.planning.plan import Plan
from spec_toolkit.planning.speed.outlook import Outlook
from spec_toolkit.recipe.page import draft_words, hardware_words
from spec_toolkit.report import said

_GIB = 2**30


class Shown(Struct, frozen=True, kw_only=True):
    """A plan, whole, for other programs."""

    name: str
    recipe: str
    labels: tuple[str, ...]
    may_launch: bool
    findings: tuple[Finding, ...]
    asked: Arguments
    steps: tuple[int, ...]
    modes: tuple[str, ...]
    memory: Ledger
    admission: Admission | None
    outlook: Outlook | None
    facts: dict[
        str, tuple[Provenance, ...]
    ]  # by repository, GPU and engine: what the tables say, with level and source


def shown(plan: Plan, tables: Tables) -> Shown:
    models = [model.name for model in (plan.situation.target, plan.situation.draft) if model is not None]
    return Shown(
        name=plan.name,
        recipe=str(plan.path),
        labels=plan.labels,
        may_launch=plan.may_launch,
        findings=plan.findings,
        asked=plan.asked,
        steps=plan.steps,
        modes=tuple(mode.value for mode in plan.limits.modes) if plan.limits else (),
        memory=plan.forecast.ledger,
        admission=plan.forecast.admission,
        outlook=plan.forecast.outlook,
        facts={
            **{name: provenance(name, tables) for name in models if tables.model(name) is not None},
            **_of_the_machine(plan, tables),
        },
    )


def _of_the_machine(plan: Plan, tables: Tables) -> dict[str, tuple[Provenance, ...]]:
    site, engine = plan.situation.site, plan.situation.engine
    found = {f"sglang {engine.version}": provenance_of(engine, tables)}
    return {site.gpu: provenance_of(site.facts, tables), **found} if site.gpu and site.facts else found


def plan(made: Plan) -> str:
    recipe, situation = made.recipe, made.situation
    blocks = [[f"{made.name} [{', '.join(made.labels)}]", f"  {recipe.summary}"]]
    blocks.append([
        f"  target    {situation.target.name}: {situation.target.says}",
        f"  draft     {_draft(made)}",
        f"  hardware  {hardware_words(recipe.hardware)}{_table(situation.site.facts)}",
        f"  engine    SGLang {recipe.engine.sglang}{_table(situation.engine)}",
    ])  # fmt: skip
    blocks.append(["Memory of each rank", *_memory(made.forecast.ledger)])
    if made.forecast.admission is not None:
        blocks.append(["What bounds it, the tightest first", *_admission(made.forecast.admission)])
        blocks.append(["Graphs of each rank", *_graphs(made.forecast.admission)])
    if made.forecast.outlook is not None:
        blocks.append(["What drafts may be worth", *_outlook(made.forecast.outlook)])
    blocks.append([said.check(made)])
    return "\n\n".join("\n".join(block) for block in blocks)


def _table(facts: GpuFacts | EngineFacts | None) -> str:
    return f"; table: {line_of(facts)}" if facts is not None else ""


def _draft(made: Plan) -> str:
    apart = made.situation.draft
    says = f"; {apart.name}: {apart.says}" if apart is not None else ""
    steps = f"; steps while it serves: {', '.join(map(str, made.steps))}" if made.steps else ""
    return f"{draft_words(made.recipe.draft)}{steps}{says}"


def _memory(ledger: Ledger) -> Iterator[str]:
    width = max(len(line.name) for line in ledger.lines)
    for line in ledger.lines:
        yield f"  {line.name:<{width}}  {_size(line)}  {line.how.value}: {line.says}"
    if ledger.usable is not None:
        share = f", {ledger.fraction:.3f} of it" if ledger.fraction else ""
        yield f"  {'for weights and KV':<{width}}  {ledger.usable / _GIB:8.2f} GiB{share}: {ledger.usable_says}"
    if ledger.tokens is not None:
        kept = f" ({ledger.slots_per_request} of them for its rounds)" if ledger.slots_per_request else ""
        one = f"; a request at full context takes {ledger.request_tokens:,}{kept}" if ledger.request_tokens else ""
        yield f"  {ledger.tokens:,} tokens fit{one}"
    if ledger.unknown:
        yield f"  The sums leave out what is unknown: {', '.join(ledger.unknown)}. What fits is at most this."


def _size(line: Line) -> str:
    return "     unknown" if line.how is How.UNKNOWN or line.gib is None else f"{line.gib:8.2f} GiB"


def _admission(admission: Admission) -> Iterator[str]:
    names = ("binds", "then") + ("",) * len(admission.inequalities)
    for word, one in zip(names, admission.in_order, strict=False):
        yield f"  {word:<5}  {one.requests:>7,} requests a rank  {_inequality(one)}"
    for one in admission.inequalities:
        if one.requests is None:
            yield f"         {'':>7}                 {_inequality(one)}"


def _inequality(one: Inequality) -> str:
    sign = "<=" if one.holds else "> "
    return f"{one.name}: {one.left:,} {sign} {one.limit:,} {one.unit} ({one.says})"


def _graphs(admission: Admission) -> Iterator[str]:
    for graphs in admission.graphs:
        yield f"  verify, {graphs.width} wide: {_batches(graphs)}; {graphs.verify_tokens:,} tokens in the largest pass"
    if admission.prefill_graphs:
        yield f"  prefill: {len(admission.prefill_graphs)} lengths up to {admission.prefill_graphs[-1]:,} tokens"
    elif admission.prefill_graphs is None:
        yield "  prefill: not known"


def _batches(graphs: Graphs) -> str:
    if not graphs.sizes:
        return "none that are known"
    return f"{len(graphs.sizes)} batches up to {graphs.sizes[-1]:,}"


def _outlook(outlook: Outlook) -> Iterator[str]:
    if outlook.survival is None:
        yield "  acceptance   unknown: nobody published a curve for this target and method, and nothing was measured"
    else:
        yield f"  acceptance   {outlook.survival.grounds.value}: {outlook.survival.says}"
        yield f"  emitted length with 1, 2, ... steps: {_listed(outlook.lengths)}"
        yield f"  accepted where all before it are, by position: {_listed(outlook.conditional)}"
        yield f"  a round pays while it costs at most, in autoregressive steps beyond its own: {_listed(outlook.affordable_costs)}"
    for point in outlook.points:
        verb = "pays" if point.pays else "loses"
        yield f"  measured     batch {point.batch}, {point.steps} steps: {verb}, emitted length {point.emitted_length:.2f}, break-even {point.break_even:.2f}, {point.speedup:.2f} times the speed"
    for turn in outlook.turns:
        yield f"  turns        at batch {turn.batch:.3g}: {'pays' if turn.pays_above else 'loses'} above it"
    for best in outlook.best:
        yield f"  best depth   {best.num_steps} at batch {best.batch}"
    if not outlook.points:
        yield "  break-even   unknown: no evidence with an autoregressive row for this recipe"
    for prior in outlook.said:
        yield f"  prior        {prior.says} ({prior.level.value}, {prior.source})"
    for touched in outlook.touched:
        yield (
            f"  experts      {touched.requests:,} request{'s' if touched.requests > 1 else ''}: a step touches {touched.by_a_step:.0f}"
            f" of {touched.routed}, a verify pass {touched.by_a_verify:.0f} (uniform routing)"
        )
    if outlook.traffic is not None:
        yield f"  traffic      {_traffic(outlook)}"


def _traffic(outlook: Outlook) -> str:
    traffic = outlook.traffic
    if traffic is None or traffic.total == 0:
        return "none: one rank"
    parts = [
        f"{name} {value / 2**20:.1f} MiB"
        for name, value in (
            ("all-reduce", traffic.reduced),
            ("gather and scatter", traffic.gathered),
            ("all-to-all", traffic.all_to_all),
        )
        if value
    ]
    wasted = (
        "" if traffic.rejected_share is None else f", {traffic.rejected_share:.0%} of it for tokens that are rejected"
    )
    return f"one rank sends in its largest verify pass: {', '.join(parts)}{wasted} (counted, BF16)"


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
