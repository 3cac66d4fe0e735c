"""The folder a tiny sparse model is kept in: DeepSeek-V3's layout, and an indexer in the layers that own one."""

import json
from pathlib import Path

from safetensors.torch import load_file, save_file

from tiny_models.deepseek_v3 import checkpoint as deepseek_v3
from tiny_models.deepseek_v3.checkpoint import WEIGHTS, Shapes, checkpoint_tensors, write_json
from tiny_models.sparse_mla.config import DEEPSEEK_V32, GLM_51, GLM_52, Config, config_json
from tiny_models.sparse_mla.network import Network
from tiny_models.tokenizer import BOS_ID, EOS_ID


def tensor_shapes(config: Config) -> Shapes:
    """Every tensor of the checkpoint, written from the real one's index and independently of the network."""
    shapes = deepseek_v3.tensor_shapes(config)
    owners = [layer for layer in range(config.num_hidden_layers) if config.owns_indexer(layer)]
    for layer in (*owners, config.num_hidden_layers):  # the MTP layer always does
        prefix = f"model.layers.{layer}.self_attn.indexer"
        shapes |= {
            f"{prefix}.wq_b.weight": (config.index_n_heads * config.index_head_dim, config.q_lora_rank),
            f"{prefix}.wk.weight": (config.index_head_dim, config.hidden_size),
            f"{prefix}.k_norm.weight": (config.index_head_dim,),
            f"{prefix}.k_norm.bias": (config.index_head_dim,),
            f"{prefix}.weights_proj.weight": (config.index_n_heads, config.hidden_size),
        }
    return shapes


def write_checkpoint(network: Network, folder: Path) -> None:
    save_file(checkpoint_tensors(network), folder / WEIGHTS, metadata={"format": "pt"})
    write_json(folder / "config.json", config_json(network.config))
    write_json(folder / "generation_config.json", {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID})


def read_config(folder: Path) -> Config:
    """The shape whose config.json the folder holds; ValueError where it is none of ours."""
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for config in (DEEPSEEK_V32, GLM_51, GLM_52):
        if config_json(config) == content:
            return config
    raise ValueError(f"{folder / 'config.json'}: is the configuration of none of the tiny sparse models")


def read_checkpoint(folder: Path) -> Network:
    """The network in fp32 on the stored values, which is what the engine computes with under `--dtype float32`."""
    network = Network(read_config(folder))
    tensors = load_file(folder / WEIGHTS)
    unread = tensor_shapes(network.config).keys() - network.state_dict().keys()
    network.load_state_dict({name: tensor.float() for name, tensor in tensors.items() if name not in unread})
    return network.eval()
