"""Names, types and sizes of the tensors of a model's folder, from the headers of its weight files and from their index. Loads no weight."""

import json
from collections.abc import Iterable
from pathlib import Path

from spec_toolkit.facts.json_file import not_as_it_should_be, read_object
from spec_toolkit.facts.model import Tensor

INDEX = "model.safetensors.index.json"
_LARGEST_HEADER = 100_000_000  # bytes; the format's own bound


def read_headers(folder: Path) -> dict[str, Tensor]:
    """Of all weight files in the folder, by the tensor's name; empty where there is none."""
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(read_header(path))
    return tensors


def read_index(folder: Path) -> dict[str, str] | None:
    """File by tensor name, as the index has it; None where there is no index."""
    path = folder / INDEX
    if not path.exists():
        return None
    promised = read_object(path).get("weight_map")
    if not isinstance(promised, dict):
        raise not_as_it_should_be(path, "has no weight_map")
    return {name: str(file) for name, file in promised.items()}


def unindexed(files: Iterable[str], index: dict[str, str] | None) -> tuple[str, ...]:
    """Weight files that the index does not name: the engine loads by the index, and would not see them."""
    if index is None:
        return ()
    named = set(index.values())
    return tuple(sorted(file for file in files if file.endswith(".safetensors") and file not in named))


def read_header(path: Path) -> dict[str, Tensor]:
    """A safetensors file opens with eight bytes of header length, little-endian, and the header as JSON."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(_LARGEST_HEADER, size - 8):
            raise not_as_it_should_be(path, f"is cut short or no safetensors file ({size:,} bytes)")
        text = file.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        ends = {name: entry["data_offsets"] for name, entry in header.items()}
        tensors = {
            str(name): Tensor(
                bytes=int(end) - int(start),
                dtype=str(header[name]["dtype"]),
                shape=tuple(int(width) for width in header[name]["shape"]),
            )
            for name, (start, end) in ends.items()
        }
        last = max((int(end) for _, end in ends.values()), default=0)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        raise not_as_it_should_be(path, "has a header that is no safetensors header") from None
    if last != size - 8 - length:
        raise not_as_it_should_be(path, f"is cut short: {size - 8 - length:,} bytes of weights, {last:,} announced")
    return tensors
