"""What is known of the model a recipe or a command names: of a folder, of the hub where it may be asked, else of the tables.

`known_model` is pure. The others touch the disk, and `read_model` the network if asked to; what could not be reached is said in the
model's `says`, never guessed.
"""

from pathlib import Path

from msgspec.structs import replace

from spec_toolkit.errors import FactsError
from spec_toolkit.facts.checkpoint import is_there, model_folder
from spec_toolkit.facts.config_json import config_json, hf_quant_config, quantization_is_known
from spec_toolkit.facts.from_config import model_from_config
from spec_toolkit.facts.json_file import read_object
from spec_toolkit.facts.model import Model, Origin, Tensor
from spec_toolkit.facts.provenance import in_one_line
from spec_toolkit.facts.records import Tables
from spec_toolkit.facts.safetensors_files import read_headers, read_index, unindexed
from spec_toolkit.facts.tokenizer import tokenizer_hash


def read_model(
    name: str, tables: Tables, *, revision: str | None = None, ask_hub: bool = False, deadline_seconds: float = 30.0
) -> Model:
    """FactsError only where `name` is a folder that is not as it should be; a hub that does not answer is no error.

    `deadline_seconds`: of each of the two questions to the hub, which commit it is and what it holds.
    """
    folder = model_folder(name)
    if folder is not None:
        return model_of_folder(folder, name=name)
    if not ask_hub:
        return known_model(name, tables)
    try:
        return _model_of_hub(name, revision, deadline_seconds)
    except FactsError as error:
        return known_model(name, tables, instead_of=error.findings[0].found)


def known_model(name: str, tables: Tables, *, instead_of: str | None = None) -> Model:
    """Of the tables; of a repository that they do not know, nothing but its name. `instead_of`: why nobody else was heard. Pure."""
    reason = f"; {instead_of}" if instead_of else ""
    facts, config = tables.model(name), config_json(name, tables)
    if facts is None or config is None:
        return Model(name=name, origin=Origin.UNKNOWN, says=f"unknown: not in the tables{reason}")
    checkpoint, hf_quant = facts.checkpoints[name], hf_quant_config(name, tables)
    read = model_from_config(
        config,
        name=name,
        origin=Origin.TABLE,
        says=f"table: {in_one_line(name, tables)}{reason}",
        hf_quant=hf_quant["quantization"] if hf_quant else None,
    )
    return replace(
        read,
        weights=checkpoint.weights.v,
        weight_bytes=checkpoint.bytes.v,
        draft_weights=checkpoint.draft_weights.v if checkpoint.draft_weights else None,
        draft_weight_bytes=checkpoint.draft_bytes.v if checkpoint.draft_bytes else None,
        quantization=read.quantization if quantization_is_known(checkpoint) else None,
    )


def model_of_folder(
    folder: Path,
    *,
    name: str | None = None,
    origin: Origin = Origin.FOLDER,
    commit: str | None = None,
    files: tuple[str, ...] | None = None,
) -> Model:
    """`files`: names of all files of the repository that the folder is a part of; None: the folder is whole."""
    if not is_there(folder):
        raise FactsError.of("facts.checkpoint", str(folder), "no such folder", remedy="Check the model's name.")
    config, index = read_object(folder / "config.json"), read_index(folder)
    headers = read_headers(folder)
    if not headers and index is not None:
        headers = {tensor: Tensor(bytes=None) for tensor in index}
    present = files if files is not None else tuple(path.name for path in folder.glob("*.safetensors"))
    says = (
        "config.json and the weight files"
        if any(tensor.bytes is not None for tensor in headers.values())
        else "config.json"
    )
    if says == "config.json" and headers:
        says = "config.json and the weight index"
    hf_quant = folder / "hf_quant_config.json"
    return model_from_config(
        config,
        name=name or str(folder),
        origin=origin,
        says=f"{origin.value}: {says}" + (f" at {commit[:12]}" if commit else ""),
        commit=commit,
        hf_quant=read_object(hf_quant).get("quantization") if hf_quant.exists() else None,
        tensors=headers or None,
        unindexed_files=unindexed(present, index),
        tokenizer=tokenizer_hash(folder) if (folder / "tokenizer.json").exists() else None,
    )


def _model_of_hub(repo: str, revision: str | None, deadline_seconds: float) -> Model:
    """Of the hub's cache on this machine where the hub itself did not say which commit it is."""
    from spec_toolkit.facts import hub, hub_files  # noqa: PLC0415 - a plan, which asks no hub, does not wait for it

    resolved = hub.resolve_revision(repo, revision, deadline_seconds=deadline_seconds)
    cached = hub.cached_snapshot(repo, resolved.commit) if resolved.origin is hub.Origin.CACHE else None
    if cached is not None:
        return model_of_folder(cached, name=repo, origin=Origin.HUB, commit=resolved.commit)
    fetched = hub_files.fetch_description(repo, resolved.commit, deadline_seconds=deadline_seconds)
    return model_of_folder(fetched.folder, name=repo, origin=Origin.HUB, commit=resolved.commit, files=fetched.files)
