"""Which family a model folder belongs to, by the model_type of its config.json."""

import json
from pathlib import Path

from tiny_models.deepseek_v3.checkpoint import read_checkpoint as read_deepseek_v3
from tiny_models.replay import Drafting
from tiny_models.sparse_mla.checkpoint import read_checkpoint as read_sparse

READERS = {"deepseek_v3": read_deepseek_v3, "deepseek_v32": read_sparse, "glm_moe_dsa": read_sparse}


def read_network(folder: Path) -> Drafting:
    """Target and draft in fp32 on the stored values; KeyError with the model type for a family that has no network here."""
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return READERS[content["model_type"]](folder)
