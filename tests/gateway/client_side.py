"""What a client holds at the end of a stream, folded out of the bytes it was sent."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Held:
    text: str = ""
    roles: int = 0
    ids: list[int] = field(default_factory=list)  # of the last /generate event
    finish: list[str] = field(default_factory=list)
    usage: list[dict[str, int]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)  # chunk ids
    created: set[int] = field(default_factory=set)
    logprobs: list[Any] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    done: int = 0
    events: int = 0


def fold(said: bytes) -> Held:
    held = Held()
    assert said.endswith(b"\n\n") or not said, said[-80:]
    for event in said.decode().split("\n\n")[:-1]:
        if event.startswith(":"):
            held.comments.append(event)
        elif event == "data: [DONE]":
            held.done += 1
        else:
            assert held.done == 0, "an event behind the end"
            assert event.startswith("data: "), event
            held.events += 1
            _take(held, json.loads(event[6:]))
    return held


def _take(held: Held, event: dict[str, Any]) -> None:
    if "error" in event:
        held.errors.append(event["error"])
    elif "choices" in event:
        held.names.add(event["id"])
        held.created.add(event["created"])
        held.usage += [event["usage"]] if event.get("usage") else []
        for choice in event["choices"]:
            held.roles += "role" in choice["delta"]
            held.text += choice["delta"].get("content") or ""
            held.finish += [choice["finish_reason"]] if choice["finish_reason"] else []
    else:
        meta = event["meta_info"]
        assert event["text"].startswith(held.text), (event["text"], held.text)
        assert event["output_ids"][: len(held.ids)] == held.ids
        held.names.add(meta["id"])
        held.text, held.ids = event["text"], event["output_ids"]
        held.logprobs = meta.get("output_token_logprobs", [])
        held.finish += [meta["finish_reason"]["type"]] if meta["finish_reason"] else []
