import json
from pathlib import Path
from typing import Any

import pytest

from spec_toolkit.facts.tokenizer import tokenizer_hash

TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [
        {"id": 3, "content": "<|end|>", "special": True, "lstrip": False},
        {"id": 4, "content": "<x>", "special": False},
    ],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
}
SETTINGS: dict[str, Any] = {"eos_token": "<|end|>", "model_max_length": 4096, "chat_template": "{{ messages }}"}


def hash_of(folder: Path, tokenizer: dict[str, Any], settings: dict[str, Any] | None, **files: str) -> str:
    for path in folder.iterdir():
        path.unlink()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return tokenizer_hash(folder)


def model(**changes: Any) -> dict[str, Any]:
    return TOKENIZER | {"model": TOKENIZER["model"] | changes}


@pytest.mark.parametrize(
    ("tokenizer", "settings", "files"),
    [
        pytest.param(model(merges=[["a", "b"]]), SETTINGS, {}, id="merges-as-pairs"),
        pytest.param(model(vocab={"ab": 2, "b": 1, "a": 0}), SETTINGS, {}, id="vocabulary-in-another-order"),
        pytest.param(
            TOKENIZER | {"added_tokens": TOKENIZER["added_tokens"][::-1]}, SETTINGS, {}, id="added-in-another-order"
        ),
        pytest.param(TOKENIZER | {"version": "1.1"}, SETTINGS, {}, id="another-file-version"),
        pytest.param(
            TOKENIZER,
            SETTINGS | {"eos_token": {"content": "<|end|>", "lstrip": False}},
            {},
            id="special-token-as-record",
        ),
        pytest.param(TOKENIZER, SETTINGS | {"model_max_length": 8192, "pad_token": None}, {}, id="another-length"),
        pytest.param(
            TOKENIZER,
            SETTINGS | {"chat_template": "old"},
            {"chat_template__jinja": "{{ messages }}"},
            id="template-in-its-own-file",
        ),
        pytest.param(
            TOKENIZER,
            SETTINGS,
            {"chat_template__json": '{"chat_template": "{{ messages }}"}'},
            id="template-in-a-json-file",
        ),
    ],
)
def test_another_way_of_writing_is_the_same_tokenizer(
    tmp_path: Path, tokenizer: Any, settings: Any, files: dict[str, str]
) -> None:
    assert hash_of(tmp_path, tokenizer, settings, **files) == hash_of(tmp_path, TOKENIZER, SETTINGS)


@pytest.mark.parametrize(
    ("tokenizer", "settings"),
    [
        pytest.param(model(vocab={"a": 1, "b": 0, "ab": 2}), SETTINGS, id="two-ids-traded"),
        pytest.param(model(vocab={"a": 0, "b": 1, "ab": 2, "c": 5}), SETTINGS, id="one-token-more"),
        pytest.param(model(merges=[]), SETTINGS, id="a-merge-less"),
        pytest.param(TOKENIZER | {"added_tokens": []}, SETTINGS, id="added-tokens-gone"),
        pytest.param(
            TOKENIZER
            | {"added_tokens": [TOKENIZER["added_tokens"][0] | {"special": False}, TOKENIZER["added_tokens"][1]]},
            SETTINGS,
            id="no-longer-special",
        ),
        pytest.param(TOKENIZER, SETTINGS | {"eos_token": "<x>"}, id="another-end"),
        pytest.param(TOKENIZER, SETTINGS | {"chat_template": "{{ messages }} "}, id="another-template"),
        pytest.param(TOKENIZER, None, id="no-settings"),
    ],
)
def test_another_meaning_is_another_tokenizer(tmp_path: Path, tokenizer: Any, settings: Any) -> None:
    assert hash_of(tmp_path, tokenizer, settings) != hash_of(tmp_path, TOKENIZER, SETTINGS)
