"""The installed engine's own launcher on the same lines: what it takes we read, what it refuses we refuse."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from spec_toolkit.engine.command_line.parse import parse_words
from spec_toolkit.engine.command_line.retired import RETIRED
from spec_toolkit.engine.command_line.table import flag_table
from spec_toolkit.engine.command_line.words import Word
from spec_toolkit.engine.secrets import is_secret_destination
from spec_toolkit.errors import Verdict
from spec_toolkit.recipe.config_file import merge_config

LINES = 1500
VALUES = ["8", "0.9", "-1", "-.5", "1e3", "16k", "2Ki", "1.5Ki", "auto", "fa3", "EAGLE", "deepep", "full", "breakable", "a b", "-a b", "", "x=y", "none", "True", "amd"]  # fmt: skip
CONFIGS = {
    "values.yaml": "tp-size: 8\ncontext-length: 4096\n",
    "switches.yaml": "trust-remote-code: true\nskip-server-warmup: false\n",
    "list.yaml": "cuda-graph-bs-decode: [1, 2, 4]\n",
    "alias.yaml": "tensor-parallel-size: 4\n",
    "underscore.yaml": "tp_size: 8\n",
    "lora.yaml": "lora-paths: [a]\n",
    "deprecated.yaml": "enable-dp-attention: true\n",
    "unknown.yaml": "no-such-thing: 1\n",
    "empty.yaml": "",
    "json.yaml": 'limit-mm-data-per-request: {"image": 1}\n',
    "none.yaml": "dtype: null\n",
    "keys.txt": "tp-size: 8\n",
}


def lines() -> list[list[str]]:
    dice = random.Random(1)  # noqa: S311 - it makes lines, not secrets
    names = [
        name
        for name in flag_table().by_name
        if name not in {"-h", "--help", "--config", "--cuda-graph-config", "--lora-paths"}
    ]
    made = []
    while len(made) < LINES:
        words: list[str] = []
        for _ in range(dice.randint(1, 3)):
            name = dice.choice(names)
            row = flag_table().by_name[name]
            value = dice.choice(row.choices or VALUES) if dice.random() < 0.8 else dice.choice(VALUES)
            name = name if dice.random() < 0.8 else name[: dice.randint(4, len(name))]
            take = row.takes != "none" or dice.random() < 0.1
            words += [f"{name}={value}"] if take and dice.random() < 0.3 else [name, value] if take else [name]
        if not any(word.partition("=")[0] in RETIRED for word in words) and "json" not in {
            row_type(word) for word in words
        }:
            made.append(words)
    return made


def row_type(word: str) -> str:
    row = flag_table().by_name.get(word.partition("=")[0])
    return row.type if row else ""


def engine_says(asked: list[list[str]]) -> list[dict[str, object]]:
    script = Path(__file__).with_name("engine_parses.py")
    text = "".join(json.dumps(["--model-path", "a/b", *words]) + "\n" for words in asked)
    answered = subprocess.run([sys.executable, script], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in answered.stdout.splitlines() if line.startswith("{")]


@pytest.mark.engine
def test_lines_and_config_files_are_read_and_refused_as_the_engine_does(tmp_path):
    for name, held in CONFIGS.items():
        (tmp_path / name).write_text(held)
    files = [["--config", str(tmp_path / name)] for name in CONFIGS]
    asked = [
        *lines(),
        *files,
        [*files[0], "--tp", "2"],
        [*files[0], *files[1]],
        ["--config", str(tmp_path / "missing.yaml")],
        ["--config"],
    ]
    answers = engine_says(asked)
    assert len(answers) == len(asked)
    assert sum("values" in answer for answer in answers) > LINES / 4, "most of it was refused: it says little"
    for words, answer in zip(asked, answers, strict=True):
        held, kept, findings = merge_config(
            [Word(word) for word in ["--model-path", "a/b", *words]], lambda name: Path(name).read_bytes()
        )
        parsed = parse_words([*held, *kept])
        refused = [f for f in [*findings, *parsed.findings] if f.verdict is Verdict.REFUSE]
        if "refused" in answer:
            assert refused, (words, answer)
        else:
            values = {name: "***" if is_secret_destination(name) else value for name, value in answer["values"].items()}
            assert not refused, (words, refused)
            assert parsed.values == {name: value for name, value in values.items() if name != "config"}, words
