"""What a drill found. Pure."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from spec_toolkit.prove.streams import Answer, Ask, judge

# What a fall inside an engine is to keep. Shown and not judged: on shared cores the engine's front waits for one.
AIM_MS, AIM_ROUNDS = 300.0, 2


class Moment(Struct, frozen=True, kw_only=True):
    """One line of a drill's timeline."""

    seconds: float  # since the strike; below zero before it
    who: str  # drill, supervisor, sidecar
    text: str


class Outcome(Struct, frozen=True, kw_only=True):
    """One drill. Seconds count from the strike; None: it did not come to that."""

    drill: str
    requests: int
    refused: int  # 429 before a token was made: not failed, asked to come again
    open_at_strike: int  # streams that had begun and not ended
    failures: tuple[str, ...]  # one sentence a request: failed, or tokens lost, doubled or changed
    waited: int  # streams that were sent keep-alive comments
    fallback_seconds: float | None = None  # until the mode that is safe was in force
    first_safe_token_seconds: float | None = None  # of the open streams, the first one's
    last_safe_token_seconds: float | None = None  # of the open streams, the last one's
    rearmed_seconds: float | None = None  # until drafting was again what the recipe says
    slowest_fall_ms: float | None = (
        None  # from a window's end until every rank had fewer steps; None: no fall by command
    )
    slowest_fall_rounds: int | None = None  # that began meanwhile, at most
    problem: str = ""  # why the drill did not get to its end
    moments: tuple[Moment, ...] = ()

    @property
    def passed(self) -> bool:
        """Somebody was answered, nobody wrongly, and it fell back and came back."""
        moved = self.fallback_seconds is not None and self.rearmed_seconds is not None
        return moved and not self.failures and not self.problem and self.requests > self.refused


def judge_all(answers: Sequence[Answer], whole: Mapping[Ask, Answer]) -> tuple[str, ...]:
    """What is wrong with them; those refused before they began are counted, not judged."""
    found = []
    for number, answer in enumerate(answers):
        if not answer.refused and (wrong := judge(answer, whole[answer.ask])):
            found.append(f"request {number} ({answer.ask.endpoint.value}): {wrong}")
    return tuple(found)


def open_at(answers: Sequence[Answer], moment: float) -> list[Answer]:
    """Streams that had brought text by then and were to bring more."""
    return [each for each in answers if each.arrivals and each.arrivals[0] < moment < each.ended]


def safe_tokens(answers: Sequence[Answer], struck: float, safe: float) -> tuple[float | None, float | None]:
    """Seconds from the strike to the first text after `safe`: of the stream where it came first, and of the one where it came last."""
    times = [
        after + safe - struck for each in open_at(answers, struck) if (after := each.first_after(safe)) is not None
    ]
    return (min(times), max(times)) if times else (None, None)
