"""How things stand, for people: what the controller knows, as one record. Pure."""

from spec_toolkit.planning.limits import Limits
from spec_toolkit.policy.state import State
from spec_toolkit.policy.telemetry import Window
from spec_toolkit.sidecar.controller import Controller
from spec_toolkit.sidecar.records import Snapshot
from spec_toolkit.sidecar.scrape import faults_by_site, last_fault, missing_draft_kv
from spec_toolkit.sidecar.story import as_text
from spec_toolkit.terms import Mode


def take_snapshot(  # noqa: PLR0913 - what a snapshot is made of
    controller: Controller,
    now_s: float,
    wall_s: float,
    *,
    limits_file: str,
    limits_problem: str,
    hold_file_problem: str,
) -> Snapshot:
    """`now_s` on the policy's clock, `wall_s` on the machine's."""
    sight, story, state, seen = controller.sight, controller.story, controller.state, controller.seen
    look = sight.look
    emitted = seen.emitted if seen and state and seen.from_s >= state.since_s else None
    faults, mode = faults_by_site(look.ranks), _mode(controller)
    return Snapshot(
        run=controller.run,
        at=as_text(now_s),
        at_s=now_s,
        wall_s=wall_s,
        mode=mode,
        steps=state.steps if state and mode == str(state.rung) else None,
        since_s=state.since_s if state else now_s,
        signal=state.signal.value if state and state.signal else "",
        held=state.held if state else False,
        why=story.why,
        address=sight.route.address if sight.route else "",
        scrape_age_seconds=None if sight.scraped_s is None else max(0.0, now_s - sight.scraped_s),
        finding=look.finding,
        emitted_length=emitted.length if emitted else None,
        emitted_low=emitted.low if emitted else None,
        emitted_high=emitted.high if emitted else None,
        rounds=emitted.rounds if emitted else None,
        break_even=_break_even(state, seen, controller.limits),
        queue_depth=look.loads.queue_depth,
        running=look.loads.running,
        batch=seen.running if seen else None,
        draft_faults=look.telemetry.draft_faults if look.telemetry else None,
        draft_faults_by_site=faults,
        draft_kv_missing=missing_draft_kv(look.ranks),
        last_fault=last_fault(look.ranks),
        epochs=tuple(rank.epoch for rank in look.ranks),
        limits_file=limits_file,
        limits_problem=limits_problem,
        hold_problem=hold_file_problem or controller.hold_problem,
        act_problem=controller.patience.problem,
        act_failures=controller.patience.failures,
        decisions=tuple(story.latest),
    )


def _mode(controller: Controller) -> str:
    """Empty where it is not known: of an engine that has not said yet. Of one that cannot be changed, what it does all the same."""
    sight, state = controller.sight, controller.state
    route = sight.route
    if route is None:
        return ""
    if not route.address or not sight.is_unknown:
        return str(state.rung) if state else ""
    if not route.speculates:
        return Mode.AUTOREGRESSIVE.value
    return Mode.FULL.value if sight.look.telemetry and not sight.look.ranks else ""


def _break_even(state: State | None, seen: Window | None, limits: Limits | None) -> float | None:
    """At the batch of the last window; None where it was not measured for it."""
    if state is None or not state.steps or seen is None or seen.running is None or limits is None:
        return None
    return limits.break_even_at(state.steps, max(1.0, seen.running))
