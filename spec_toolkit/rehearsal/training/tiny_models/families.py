"""Which network a model folder holds, told by its config.json."""

import json
from pathlib import Path

from tiny_models.deepseek_v3.checkpoint import read_checkpoint as read_deepseek_v3
from tiny_models.gemma4.checkpoint import read_checkpoint as read_gemma4
from tiny_models.gemma4.config import FAMILIES as GEMMA4_FAMILIES
from tiny_models.gemma4.config import target_json
from tiny_models.replay import Drafting


def assistant_beside(target: Path) -> Path:
    """Where the assistant of a Gemma 4 target is kept."""
    return target.with_name(f"{target.name}_assistant")


def read_network(folder: Path) -> Drafting:
    """Target and draft. ValueError where the configuration is of no tiny model."""
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if settings["model_type"] == "deepseek_v3":
        return read_deepseek_v3(folder)
    for make in GEMMA4_FAMILIES.values():
        if target_json(make()) == settings:
            return read_gemma4(folder, assistant_beside(folder), make())
    raise ValueError(f"{folder}: its config.json ({settings['model_type']}) is of no tiny model")
