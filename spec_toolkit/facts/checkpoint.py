"""Reads a model's folder: configuration, names and sizes of its tensors, hashes that pin it. Touches the disk, loads no weight."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.json_file import not_as_it_should_be, read_object
from spec_toolkit.facts.records import Checkpoint
from spec_toolkit.facts.safetensors_files import INDEX, read_headers, read_index
from spec_toolkit.facts.tokenizer import tokenizer_hash
from spec_toolkit.shipped import rehearsal

_REHEARSAL = "rehearsal:"
# What the engine reads of a folder. A model card or a licence may change without changing an answer.
_DECIDING = (
    *("*config.json", "*.safetensors", "*.safetensors.index.json", "*.py"),
    *(
        "tokenizer.json",
        "*.model",
        "vocab.*",
        "merges.txt",
        "added_tokens.json",
        "special_tokens_map.json",
        "chat_template.*",
    ),
)


def is_folder(model: str) -> bool:
    """Whether a recipe's `model` names a folder of this machine, or a repository of the hub. Pure."""
    return model.startswith((_REHEARSAL, "/", "./", "../", "~/"))


def model_folder(model: str) -> Path | None:
    """The folder that a recipe's `model` names; None for a hub repository."""
    if model.startswith(_REHEARSAL):
        return rehearsal() / "models" / model.removeprefix(_REHEARSAL)
    return Path(model).expanduser() if is_folder(model) else None


def is_there(folder: Path) -> bool:
    """Whether it is a folder of this machine; a name that no folder can have is none."""
    try:
        return folder.is_dir()
    except OSError:
        return False


def read_checkpoint(folder: Path) -> Checkpoint:
    """FactsError names the file that is missing or is not what it should be."""
    if not is_there(folder):
        raise FactsError.of("facts.checkpoint", str(folder), "no such folder", remedy="Check the recipe's model.")
    path = folder / "config.json"
    config = read_object(path)
    text = config.get("text_config") or config  # multimodal wrappers keep the language model's numbers apart
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures:
        raise not_as_it_should_be(path, "names no architecture")
    layers = _count(text, "num_hidden_layers", path)
    if layers is None:
        raise not_as_it_should_be(path, "has no num_hidden_layers")
    return Checkpoint(
        folder=folder,
        architecture=str(architectures[0]),
        num_hidden_layers=layers,
        num_nextn_predict_layers=_count(text, "num_nextn_predict_layers", path),
        max_position_embeddings=_count(text, "max_position_embeddings", path),
        tensors=_read_tensors(folder),
        tokenizer=tokenizer_hash(folder),
    )


def content_hash(folder: Path) -> str:
    """Over name, size and hash of every file that decides what the engine computes; reads all of them."""
    paths = {path.name: path for pattern in _DECIDING for path in folder.glob(pattern) if path.is_file()}
    if not any(name.endswith(".safetensors") for name in paths):
        raise not_as_it_should_be(folder, "holds no safetensors file")
    total = hashlib.sha256()
    for name in sorted(paths):
        with paths[name].open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
        total.update(f"{name}\0{size}\0{digest}\n".encode())
    return f"sha256:{total.hexdigest()}"


def _count(config: Mapping[str, Any], key: str, path: Path) -> int | None:
    value = config.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise not_as_it_should_be(path, f"{key} is {value!r}, not a count")
    return value


def _read_tensors(folder: Path) -> dict[str, int]:
    """Bytes by tensor name, from the headers of all weight files; the index, where there is one, must agree on the names."""
    tensors = {name: tensor.bytes or 0 for name, tensor in read_headers(folder).items()}
    if not tensors:
        raise not_as_it_should_be(folder, "holds no safetensors file")
    missing = (read_index(folder) or {}).keys() - tensors.keys()
    if missing:
        found = f"promises {len(missing):,} tensors that no weight file holds, such as {min(missing)!r}"
        raise not_as_it_should_be(folder / INDEX, found)
    return tensors
