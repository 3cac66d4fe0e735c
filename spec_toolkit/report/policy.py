"""What the policy does to a deployment, as text. Pure: records in, strings out."""

from spec_toolkit.launch.ending import ENDED_PHASES
from spec_toolkit.report.standing import Standing
from spec_toolkit.sidecar.records import Snapshot

_SILENT_SECONDS = 5.0  # sidecar and gateway write once a second


def policy_lines(standing: Standing) -> list[str]:
    """For a person who looks once: what holds, and why."""
    policy = standing.policy
    if standing.status.phase in ENDED_PHASES:
        return []
    if policy is None:
        return ["  policy    unknown: its sidecar has said nothing yet"]
    lines = [
        f"  policy    {_rung(policy)}{_aged(standing.policy_age_seconds, 'its sidecar')}",
        f"  why       {policy.why}",
    ]
    return [*lines, *_problems(policy)]


def block(standing: Standing) -> str:
    """For a person who watches: everything that is known."""
    status, policy = standing.status, standing.policy
    labels = f" [{', '.join(status.labels)}]" if status.labels else ""
    lines = [f"{status.name}: {status.phase}" + (f" at {status.address}" if status.address else "") + labels]
    lines += policy_lines(standing)
    if policy is not None:
        lines += [
            f"  emitted   {_emitted(policy)}",
            f"  load      running {_known(policy.running)}, queue depth {_known(policy.queue_depth)}",
            f"  draft     faults {_known(policy.draft_faults)}, prefills without draft KV {_known(policy.draft_kv_missing)}"
            + (f"; last fault {policy.last_fault}" if policy.last_fault else ""),
            f"  engine    {_engine(policy)}",
        ]
    if status.phase not in ENDED_PHASES:
        lines.append(f"  gateway   {_gateway(standing)}")
    if policy is not None and policy.decisions:
        lines += ["  decisions", *(f"    {decision}" for decision in policy.decisions)]
    return "\n".join(lines)


def what_matters(standing: Standing) -> tuple[object, ...]:
    """Differs where a new block is worth a look; ages and rates alone are not."""
    status, policy, gateway = standing.status, standing.policy, standing.gateway
    of_policy = policy and (
        policy.mode,
        policy.held,
        policy.address,
        policy.decisions,
        _problems(policy),
        policy.draft_faults,
    )
    of_gateway = gateway and (gateway.resumed, gateway.resume_failed, gateway.refused, gateway.engine)
    silent = [_is_silent(age) for age in (standing.policy_age_seconds, standing.gateway_age_seconds)]
    return status.phase, status.address, of_policy, of_gateway, standing.held, silent


def _rung(policy: Snapshot) -> str:
    reason = f", since {policy.signal}" if policy.signal else ""
    held = ", held by a person" if policy.held else ""
    gone = "" if policy.address else "; no engine takes requests now"
    if not policy.mode:
        return f"unknown{held}{gone}"
    return f"{policy.mode} for {policy.at_s - policy.since_s:.0f} s{reason}{held}{gone}"


def _is_silent(age: float | None) -> bool:
    return age is None or age > _SILENT_SECONDS


def _aged(age: float | None, who: str) -> str:
    if age is None:
        return " (of unknown age: this machine's clock was set back)"
    return f" (as of {age:.0f} s ago: {who} does not speak)" if _is_silent(age) else ""


def _problems(policy: Snapshot) -> list[str]:
    found = {
        "limits": policy.limits_problem,
        "hold": policy.hold_problem,
        "act": f"{policy.act_problem} ({policy.act_failures} in a row)" if policy.act_problem else "",
        "scrape": policy.finding,
    }
    return [f"  {word:9} {problem}" for word, problem in found.items() if problem]


def _emitted(policy: Snapshot) -> str:
    """Tokens per round against those that a round costs."""
    known = policy.break_even is not None and policy.batch is not None
    even = (
        f"break-even {policy.break_even:.2f} at batch {max(1.0, policy.batch or 0):.3g}"
        if known
        else "break-even unknown at this batch"
    )
    if policy.emitted_length is None or policy.emitted_low is None or policy.emitted_high is None:
        return f"length unknown: too few rounds, or nothing drafted; {even}"
    bounds = f"95 % each way {policy.emitted_low:.2f} to {policy.emitted_high:.2f}"
    return f"length {policy.emitted_length:.2f} over {policy.rounds} rounds ({bounds}), {even}"


def _engine(policy: Snapshot) -> str:
    if not policy.address:
        return "none takes requests"
    age = "never" if policy.scrape_age_seconds is None else f"{policy.scrape_age_seconds:.1f} s ago"
    epochs = f", epoch {', '.join(map(str, sorted(set(policy.epochs))))}" if policy.epochs else ""
    return f"{policy.address}, last good look {age}{epochs}"


def _gateway(standing: Standing) -> str:
    counted, age = standing.gateway, standing.gateway_age_seconds
    if counted is None:
        return "unknown"
    as_of = _aged(age, "it") if age is None or _is_silent(age) else f", as of {age:.1f} s ago"
    return (
        f"in flight {counted.in_flight} of {counted.cap}, waiting for an engine {counted.waiting}, completed {counted.completed}, "
        f"resumed {counted.resumed}, resume failed {counted.resume_failed}, refused {counted.refused}{as_of}"
    )


def _known(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"
