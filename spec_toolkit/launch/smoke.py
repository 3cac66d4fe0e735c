"""The checks between "the engine says it is ready" and "this deployment serves". Touches the engine.

Each raises an EngineError that names what was found, or returns what it saw.
"""

from pathlib import Path

from msgspec import Struct

from spec_toolkit.engine.client import EngineClient
from spec_toolkit.engine.names import SELF_DESCRIPTIONS, read_rounds, read_tokenizer_place
from spec_toolkit.errors import EngineError
from spec_toolkit.facts.hub import cached_snapshot
from spec_toolkit.facts.tokenizer import tokenizer_hash

MESSAGE = "Tell me about the river."
TOKENS = 32
_NO_SPECULATION = "runbooks/speculation-is-off.md"


class Smoke(Struct, frozen=True, kw_only=True):
    emitted_tokens: int
    rounds: int | None
    emitted_length: float | None  # bonus included; None: no speculation


async def answer_once(engine: EngineClient, *, speculates: bool, seconds: float) -> Smoke:
    """One greedy chat request, through the model's own template, and whether it was made as it should have been."""
    answer = await engine.chat(MESSAGE, max_tokens=TOKENS, seconds=seconds)
    seen = read_rounds(answer["meta_info"])
    if seen.emitted_tokens < 1:
        raise EngineError.of(
            "smoke.empty", "smoke test", "the engine answered without a token", remedy=f"See {_NO_SPECULATION}."
        )
    if speculates and not (seen.rounds and seen.proposed_drafts):
        raise EngineError.of(
            "smoke.no-speculation",
            "smoke test",
            f"{seen.emitted_tokens} tokens came in {seen.rounds} verify rounds with {seen.proposed_drafts} drafts proposed",
            why="the engine was started to speculate and does not",
            remedy=f"See {_NO_SPECULATION}.",
        )
    if not speculates and seen.rounds:
        raise EngineError.of(
            "smoke.speculates",
            "smoke test",
            f"{seen.rounds} verify rounds",
            why="this engine was started without speculation",
            remedy="Look into the launch arguments with `spec-toolkit deploy --dry-run`.",
        )
    return Smoke(
        emitted_tokens=seen.emitted_tokens,
        rounds=seen.rounds,
        emitted_length=seen.emitted_length,
    )


async def check_tokenizer(engine: EngineClient, pinned: str) -> None:
    """The tokenizer the engine loaded is the one the recipe pins; raises EngineError where it differs or cannot be read."""
    path, revision = read_tokenizer_place(await engine.server_info())
    found = _tokenizer_of(path, revision)
    if found != pinned:
        raise EngineError.of(
            "smoke.tokenizer",
            "target.tokenizer",
            f"the engine serves with {path}, whose tokenizer is {found}; the recipe pins {pinned}",
            why="with another vocabulary or template the same text is another prompt",
            remedy="Check target.revision; if the change is wanted, write the new hash into the recipe.",
        )


def _tokenizer_of(path: str, revision: str) -> str:
    folder = Path(path) if Path(path).is_dir() else cached_snapshot(path, revision)
    return tokenizer_hash(folder) if folder else "not to be found on this machine"


async def find_key(engine: EngineClient, key: str) -> None:
    """Nothing the engine says of itself to a caller without the key may hold it (0.5.23 does so, unpatched)."""
    for path in SELF_DESCRIPTIONS:
        if key in await engine.text(path):
            raise EngineError.of(
                "smoke.key-told",
                f"engine {path}",
                "answers with the admin key to a caller that has none",
                why="whoever reads it can change the engine's state",
                remedy="The patch 'redact-keys' should strike it; check it with `spec-toolkit patches verify`.",
            )
