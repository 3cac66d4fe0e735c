"""What a running engine answers to greedy requests, and where that departs from the replay."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.request import Request, urlopen

from tiny_models.replay import Replay


@dataclass(frozen=True, slots=True)
class Answer:
    """One request as the engine accounts for it."""

    output_ids: tuple[int, ...]
    rounds: int  # verify passes; 0 from an engine without speculation
    histogram: tuple[int, ...]  # rounds that accepted 0, 1, ... drafts; trailing zeros left out, as the engine does

    @property
    def emitted_length(self) -> float:
        """From the histogram: completion tokens over rounds would count the prompt pass's token and miss the last round's overshoot."""
        accepted = sum(drafts * rounds for drafts, rounds in enumerate(self.histogram))
        return 1 + accepted / self.rounds


def ask(url: str, prompt_ids: Sequence[int], max_new_tokens: int, *, timeout_seconds: float = 120) -> Answer:
    """One greedy request to /generate."""
    body = {"input_ids": list(prompt_ids), "sampling_params": {"temperature": 0, "max_new_tokens": max_new_tokens}}
    request = Request(f"{url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 - the caller's own engine
    with urlopen(request, timeout=timeout_seconds) as response:  # noqa: S310 - the caller's own engine
        return read_answer(json.load(response))


def read_answer(response: dict) -> Answer:
    told = response["meta_info"]
    return Answer(
        output_ids=tuple(response["output_ids"]),
        rounds=told.get("spec_verify_ct", 0),
        histogram=tuple(told.get("spec_correct_drafts_histogram", ())),
    )


def histogram(replay: Replay) -> tuple[int, ...]:
    """The replay's rounds as the engine tells them."""
    most = max(replay.accepted_drafts, default=-1)
    return tuple(replay.accepted_drafts.count(drafts) for drafts in range(most + 1))


@dataclass(frozen=True, slots=True)
class Departure:
    """A request the engine ran otherwise than the replay says."""

    request: int
    tokens_differ: bool
    engine_rounds: int
    replay_rounds: int


def departures(replays: Sequence[Replay], answers: Sequence[Answer]) -> list[Departure]:
    """Requests whose tokens, rounds or accepted drafts per round differ, in the order asked."""
    return [
        Departure(index, answer.output_ids != replay.output_ids, answer.rounds, replay.rounds)
        for index, (replay, answer) in enumerate(zip(replays, answers, strict=True))
        if (answer.output_ids, answer.rounds, answer.histogram) != (replay.output_ids, replay.rounds, histogram(replay))
    ]
