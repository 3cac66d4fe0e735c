"""The held-out prompts beside a tiny model, and how a prompt becomes token ids. Needs `tokenizers`, nothing else.

`held_out.jsonl` holds one object per line: `bucket`; `message`, what a chat client sends as the user's content; `prompt`, the
same message as the chat template renders it, without bos. The engine gets the same ids from all three of: `prompt` as the `text`
of /generate, `message` as a chat completion, and `token_ids(...)` as `input_ids`.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tokenizers import Tokenizer

FILE = "held_out.jsonl"


@dataclass(frozen=True, slots=True)
class Prompt:
    bucket: str
    message: str
    prompt: str


def write_prompts(folder: Path, prompts: list[Prompt]) -> None:
    lines = [json.dumps(asdict(prompt), ensure_ascii=False) + "\n" for prompt in prompts]
    (folder / FILE).write_text("".join(lines), encoding="utf-8")


def read_prompts(folder: Path, per_bucket: int | None = None) -> list[Prompt]:
    """The held-out prompts of a model folder in their order; only the first `per_bucket` of each bucket where given."""
    lines = (folder / FILE).read_text(encoding="utf-8").splitlines()
    chosen: dict[str, list[Prompt]] = {}
    for prompt in (Prompt(**json.loads(line)) for line in lines):
        chosen.setdefault(prompt.bucket, []).append(prompt)
    return [prompt for bucket in chosen.values() for prompt in bucket[:per_bucket]]


def read_tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def token_ids(tokenizer: Tokenizer, prompt: Prompt) -> list[int]:
    """Bos and the prompt's tokens; bos is added by the tokenizer's own post-processor."""
    return tokenizer.encode(prompt.prompt).ids
