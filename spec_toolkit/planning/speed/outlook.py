"""What a plan can say of speed before anything runs: how far drafts survive, what that is worth, and what a verify pass costs. Pure.

Where nothing was measured there is no speed-up and no best depth: a pass's cost follows from weights and arithmetic only where nothing
else takes time, and at small batches most of it is something else. Then the plan says what a position may cost at most.
"""

from msgspec import Struct

from spec_toolkit.facts.evidence import Evidence
from spec_toolkit.facts.records import Tables
from spec_toolkit.planning.admission import Admission
from spec_toolkit.planning.rules.resolved import algorithm_of, branches_of, has_draft_of_its_own
from spec_toolkit.planning.situation import Situation
from spec_toolkit.planning.speed.acceptance import Survival, measured_survival, published_survival
from spec_toolkit.planning.speed.depth import affordable_costs, best_depth, marginal_costs, supported_steps
from spec_toolkit.planning.speed.experts import touched_experts
from spec_toolkit.planning.speed.lengths import conditional_of, emitted_length, emitted_lengths
from spec_toolkit.planning.speed.published import Said, said_of
from spec_toolkit.planning.speed.speedup import Point, Turn, points, turns
from spec_toolkit.planning.speed.traffic import Layout, Traffic, verify_traffic
from spec_toolkit.terms import Method

_METHOD_OF = {"DSPARK": Method.DSPARK, "FROZEN_KV_MTP": Method.FROZEN_KV_MTP, "EAGLE3": Method.EAGLE3}


class Touched(Struct, frozen=True, kw_only=True):
    """Distinct routed experts of one layer, as uniform routing has it."""

    requests: int  # of the whole server
    by_a_step: float  # without speculation
    by_a_verify: float
    routed: int  # there are


class Best(Struct, frozen=True, kw_only=True):
    batch: int
    num_steps: int  # 0: no draft pays


class Outlook(Struct, frozen=True, kw_only=True):
    survival: Survival | None  # None: nobody said
    conditional: tuple[float, ...]  # chance that a draft is right where all before it are, by position
    lengths: tuple[float, ...]  # emitted with 1, 2, ... drafts, bonus included
    said: tuple[Said, ...]  # by others: priors
    affordable_costs: tuple[
        float, ...
    ]  # of a position, in autoregressive steps, for a round of 1, 2, ... drafts to pay
    most_steps: int | None  # the checkpoint drafts; None: no bound known
    points: tuple[Point, ...]  # measured; empty: no break-even is known
    turns: tuple[Turn, ...]  # break-even concurrency of the launch's own depth
    best: tuple[Best, ...]  # by batch, where costs were measured
    touched: tuple[Touched, ...]  # by one request, and by as many as are admitted; empty: no experts, or unknown ones
    traffic: Traffic | None  # of a verify pass over a rank's largest batch; None: the model's shape is not known


def derive_outlook(
    situation: Situation, admission: Admission, tables: Tables, evidence: Evidence | None = None
) -> Outlook | None:
    """None for a launch that drafts nothing. `evidence`: of just this recipe (`rules.evidence.is_usable`)."""
    method = method_of(situation)
    if method is None or not admission.graphs:
        return None
    width, is_chain = admission.graphs[-1].width, branches_of(situation) == 1
    depth = width - 1 if is_chain else situation.arguments.speculative_num_steps or 0
    survival = measured_survival(evidence) if evidence else None
    survival = survival or published_survival(tables, situation.target.name, method)
    every_layer = bool(situation.arguments.enable_multi_layer_eagle)
    most = supported_steps(situation.target, method, every_layer_a_step=every_layer)
    positions = survival.positions[:most] if survival else ()
    return Outlook(
        survival=survival,
        conditional=conditional_of(positions),
        lengths=emitted_lengths(positions),
        said=said_of(tables, situation.target, method, attention_dp=situation.arguments.attention_dp > 1),
        affordable_costs=affordable_costs(positions),
        most_steps=most,
        points=points(evidence) if evidence else (),
        turns=turns(evidence, depth) if evidence else (),
        best=_best(evidence, survival, most) if evidence and survival else (),
        touched=_touched(situation, admission, width),
        # What a tree accepts is more than a chain's survival says.
        traffic=_traffic(situation, admission, width, positions[:depth] if is_chain else ()),
    )


def method_of(situation: Situation) -> Method | None:
    """None: nothing is drafted, or by what no curve and no checkpoint speaks of."""
    algorithm = algorithm_of(situation)
    if algorithm == "EAGLE":
        return None if has_draft_of_its_own(situation) else Method.MTP
    return _METHOD_OF.get(algorithm or "")


def _best(evidence: Evidence, survival: Survival, most: int | None) -> tuple[Best, ...]:
    batches = sorted({row.batch for row in evidence.rows})
    known = ((batch, marginal_costs(evidence, batch)) for batch in batches)
    return tuple(
        Best(batch=batch, num_steps=best_depth(survival.positions, costs, most=most)) for batch, costs in known if costs
    )


def _touched(situation: Situation, admission: Admission, width: int) -> tuple[Touched, ...]:
    experts = situation.target.shape.experts if situation.target.shape else None
    if experts is None:
        return ()
    return tuple(
        Touched(
            requests=requests,
            by_a_step=touched_experts(requests, experts),
            by_a_verify=touched_experts(requests * width, experts),
            routed=experts.routed,
        )
        for requests in sorted({1, admission.admitted})
    )


def _traffic(situation: Situation, admission: Admission, width: int, positions: tuple[float, ...]) -> Traffic | None:
    asked, shape = situation.arguments, situation.target.shape
    if shape is None:
        return None
    layout = Layout(
        tp=asked.tp_size or 1,
        attention_dp=admission.ranks,
        all_to_all=asked.moe_a2a_backend not in {None, "none"},
    )
    length = emitted_length(positions) if len(positions) == width - 1 else None
    return verify_traffic(shape, layout, batch=admission.per_rank, width=width, emitted_length=length)
