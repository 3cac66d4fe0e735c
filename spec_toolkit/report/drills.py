"""Drills as people read them. Pure."""

from collections.abc import Sequence

from spec_toolkit.prove.drills.outcome import Moment, Outcome

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
        (
            f"    fallback after {_seconds(outcome.fallback_seconds)}; next token of the open streams' first after "
            f"{_seconds(outcome.first_safe_token_seconds)}, of their last after {_seconds(outcome.last_safe_token_seconds)}; "
            f"armed again after {_seconds(outcome.rearmed_seconds)}"
        ),
    ]
    lines += [f"    {failure}" for failure in outcome.failures[:_MOST_FAILURES]]
    if failed > _MOST_FAILURES:
        lines.append(f"    and {failed - _MOST_FAILURES} more")
    if outcome.problem:
        lines.append(f"    {outcome.problem}")
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f} s"
