"""The folder a tiny DeepSeek-V3 is kept in: tensor names, shapes and precision as in the real checkpoint."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tiny_models.deepseek_v3.config import Config, config_json
from tiny_models.deepseek_v3.network import Network
from tiny_models.tokenizer import BOS_ID, EOS_ID

WEIGHTS = "model.safetensors"
Shapes = dict[str, tuple[int, ...]]


def tensor_shapes(config: Config) -> Shapes:
    """Every tensor of the checkpoint, written from the real one's index and independently of the network."""
    hidden, vocabulary, last = config.hidden_size, config.vocab_size, config.num_hidden_layers
    shapes: Shapes = {
        "model.embed_tokens.weight": (vocabulary, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (vocabulary, hidden),
    }
    for index in range(last):
        dense = index < config.first_k_dense_replace
        shapes |= _under(f"model.layers.{index}", _layer_shapes(config, dense=dense))
    mtp = _layer_shapes(config, dense=False) | {
        "enorm.weight": (hidden,),
        "hnorm.weight": (hidden,),
        "eh_proj.weight": (hidden, 2 * hidden),
        "shared_head.norm.weight": (hidden,),
        # Copies of the target's. The engine reads neither and shares the target's own.
        "embed_tokens.weight": (vocabulary, hidden),
        "shared_head.head.weight": (vocabulary, hidden),
    }
    return shapes | _under(f"model.layers.{last}", mtp)


def _under(prefix: str, shapes: Shapes) -> Shapes:
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def _layer_shapes(config: Config, *, dense: bool) -> Shapes:
    hidden, heads = config.hidden_size, config.num_attention_heads
    nope, rope, value = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
    shapes: Shapes = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_a_proj.weight": (config.q_lora_rank, hidden),
        "self_attn.q_a_layernorm.weight": (config.q_lora_rank,),
        "self_attn.q_b_proj.weight": (heads * (nope + rope), config.q_lora_rank),
        "self_attn.kv_a_proj_with_mqa.weight": (config.kv_lora_rank + rope, hidden),
        "self_attn.kv_a_layernorm.weight": (config.kv_lora_rank,),
        "self_attn.kv_b_proj.weight": (heads * (nope + value), config.kv_lora_rank),
        "self_attn.o_proj.weight": (hidden, heads * value),
    }
    if dense:
        return shapes | _under("mlp", _feed_forward_shapes(hidden, config.intermediate_size))
    width = config.moe_intermediate_size
    shapes |= {
        "mlp.gate.weight": (config.n_routed_experts, hidden),
        "mlp.gate.e_score_correction_bias": (config.n_routed_experts,),
    }
    for expert in range(config.n_routed_experts):
        shapes |= _under(f"mlp.experts.{expert}", _feed_forward_shapes(hidden, width))
    return shapes | _under("mlp.shared_experts", _feed_forward_shapes(hidden, width * config.n_shared_experts))


def _feed_forward_shapes(hidden: int, width: int) -> Shapes:
    return {
        "gate_proj.weight": (width, hidden),
        "up_proj.weight": (width, hidden),
        "down_proj.weight": (hidden, width),
    }


def checkpoint_tensors(network: Network) -> dict[str, Tensor]:
    """What the weights file holds: bf16, but the correction bias fp32, as the real checkpoint has it."""
    mtp = f"model.layers.{network.config.num_hidden_layers}"
    tensors = network.state_dict()
    tensors[f"{mtp}.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors[f"{mtp}.shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    return {name: tensor.to(_precision(name)).contiguous() for name, tensor in tensors.items()}


def _precision(name: str) -> torch.dtype:
    return torch.float32 if name.endswith("e_score_correction_bias") else torch.bfloat16


def write_checkpoint(network: Network, folder: Path) -> None:
    save_file(checkpoint_tensors(network), folder / WEIGHTS, metadata={"format": "pt"})
    write_json(folder / "config.json", config_json(network.config))
    write_json(folder / "generation_config.json", {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID})


def write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_checkpoint(folder: Path, config: Config | None = None) -> Network:
    """The network in fp32 on the stored values, which is what the engine computes with under `--dtype float32`."""
    network = Network(config or Config())
    tensors = load_file(folder / WEIGHTS)
    unread = tensor_shapes(network.config).keys() - network.state_dict().keys()
    network.load_state_dict({name: tensor.float() for name, tensor in tensors.items() if name not in unread})
    return network.eval()
