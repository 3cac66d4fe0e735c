"""Which network a model folder holds, told by its config.json."""

import json
from pathlib import Path

from tiny_models.deepseek_v3.checkpoint import read_checkpoint as read_deepseek_v3
from tiny_models.gemma4.checkpoint import read_checkpoint as read_gemma4
from tiny_models.gemma4.config import FAMILIES as GEMMA4_FAMILIES
from tiny_models.gemma4.config import target_json
from tiny_models.replay import Drafting
from tiny_models.sparse_mla.checkpoint import read_checkpoint as read_sparse

READERS = {"deepseek_v3": read_deepseek_v3, "deepseek_v32": read_sparse, "glm_moe_dsa": read_sparse}


def assistant_beside(target: Path) -> Path:
    """Where the assistant of a Gemma 4 target is kept."""
    return target.with_name(f"{target.name}_assistant")


def read_network(folder: Path) -> Drafting:
    """Target and draft in fp32 on the stored values. ValueError where the configuration is of no tiny model."""
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if read := READERS.get(settings["model_type"]):
        return read(folder)
    for make in GEMMA4_FAMILIES.values():
        if target_json(make()) == settings:
            return read_gemma4(folder, assistant_beside(folder), make())
    raise ValueError(f"{folder}: its config.json ({settings['model_type']}) is of no tiny model")
