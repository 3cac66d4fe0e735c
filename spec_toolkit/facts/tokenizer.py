"""What token ids mean, as one hash. Touches the disk.

A target and its draft agree when every id means the same to both. The files say it in many forms (merges as text or as pairs, special
tokens as text or as records, the chat template in any of three files), so the hash is over a canonical form, not over bytes.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from spec_toolkit.facts.json_file import not_as_it_should_be, read_object


def tokenizer_hash(folder: Path) -> str:
    """Over vocabulary, merges, added and special tokens and chat template of a model's folder."""
    path = folder / "tokenizer.json"
    tokenizer = read_object(path)
    settings_path = folder / "tokenizer_config.json"
    settings = read_object(settings_path) if settings_path.exists() else {}
    model = tokenizer.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise not_as_it_should_be(path, "has no vocabulary")
    meaning = {
        "vocabulary": _vocabulary(model["vocab"]),
        "merges": [_pair(merge) for merge in model.get("merges") or ()],
        "added": sorted((_added(token) for token in tokenizer.get("added_tokens") or ()), key=json.dumps),
        "special": {
            key: _content(value) for key, value in settings.items() if key.endswith("_token") and value is not None
        },
        "chat_template": _chat_template(folder, settings),
    }
    canonical = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def _vocabulary(vocab: dict[str, Any] | list[Any]) -> list[Any]:
    """Byte-pair models map a token to its id; unigram models list [token, score], and the place is the id."""
    return sorted(vocab.items(), key=lambda item: (item[1], item[0])) if isinstance(vocab, dict) else vocab


def _pair(merge: Any) -> list[str]:
    """Files before tokenizers 0.20 write "a b" where later ones write ["a", "b"]."""
    return merge.split(" ", 1) if isinstance(merge, str) else list(merge)


def _added(token: dict[str, Any]) -> list[Any]:
    return [token.get("id"), token.get("content"), bool(token.get("special"))]


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _chat_template(folder: Path, settings: dict[str, Any]) -> Any:
    """A file of its own wins over the settings, as in transformers."""
    jinja = folder / "chat_template.jinja"
    if jinja.exists():
        return jinja.read_text("utf-8", errors="replace")
    separate = folder / "chat_template.json"
    if separate.exists():
        return read_object(separate).get("chat_template")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        return sorted(([entry.get("name"), entry.get("template")] for entry in template), key=json.dumps)
    return template
