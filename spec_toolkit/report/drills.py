"""Drills as people read them. Pure."""

from collections.abc import Sequence

from spec_toolkit.prove.drills.outcome import AIM_MS, AIM_ROUNDS, Moment, Outcome

_MOST_FAILURES = 5


def moment_line(moment: Moment) -> str:
    return f"  {moment.seconds:8.2f} s  {moment.who:10}  {moment.text}"


def outcome_lines(outcome: Outcome, labels: Sequence[str]) -> str:
    """What became of the clients, in seconds from the strike."""
    marks = f"  [{', '.join(labels)}]" if labels else ""
    failed = len(outcome.failures)
    lines = [
        f"  {outcome.drill}: {'held' if outcome.passed else 'DID NOT HOLD'}{marks}",
        (
            f"    requests {outcome.requests}, failed or changed {failed}, refused with 429 {outcome.refused}; "
            f"open at the strike {outcome.open_at_strike}, told to wait {outcome.waited}"
        ),
        f"    fallback seen after {_seconds(outcome.fallback_seconds)}; armed again after {_seconds(outcome.rearmed_seconds)}",
    ]
    if outcome.open_at_strike:
        first, last = _seconds(outcome.first_safe_token_seconds), _seconds(outcome.last_safe_token_seconds)
        lines.append(f"    next token after the fallback: of the first open stream {first}, of the last one {last}")
    if outcome.slowest_fall_ms is not None:
        lines.append(f"    {_fall(outcome.slowest_fall_ms, outcome.slowest_fall_rounds)}")
    lines += [f"    {failure}" for failure in outcome.failures[:_MOST_FAILURES]]
    if failed > _MOST_FAILURES:
        lines.append(f"    and {failed - _MOST_FAILURES} more")
    if outcome.problem:
        lines.append(f"    {outcome.problem}")
    return "\n".join(lines)


def _fall(milliseconds: float, rounds: int | None) -> str:
    met = milliseconds <= AIM_MS and (rounds is None or rounds <= AIM_ROUNDS)
    counted = "rounds unknown" if rounds is None else f"{rounds} rounds"
    return (
        f"slowest fall by command: all ranks {milliseconds:.0f} ms after the window, {counted}; "
        f"the aim, {AIM_MS:.0f} ms and {AIM_ROUNDS} rounds, {'was met' if met else 'WAS MISSED'}"
    )


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f} s"
