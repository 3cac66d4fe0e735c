"""The two folders a tiny Gemma 4 is kept in, target and assistant: tensor names, shapes and precision as in the real checkpoints."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tiny_models.gemma4.config import (
    AssistantConfig,
    Config,
    TextConfig,
    UnifiedVisionConfig,
    VisionConfig,
    assistant_json,
    target_json,
)
from tiny_models.gemma4.network import Network
from tiny_models.tokenizer import BOS_ID, EOS_ID

WEIGHTS = "model.safetensors"
DECODER = "model.language_model."
Shapes = dict[str, tuple[int, ...]]


def target_shapes(config: Config) -> Shapes:
    """Every tensor of the target's checkpoint, written from the published names and independently of the network."""
    decoder, vision = _under("model.language_model", _decoder_shapes(config.text)), config.vision
    if isinstance(vision, UnifiedVisionConfig):
        inner, embedder = vision.output_proj_dims, _under("model.vision_embedder", embedder_shapes(vision))
    else:
        inner, embedder = vision.hidden_size, _under("model.vision_tower", vision_shapes(vision))
    projection: Shapes = {"model.embed_vision.embedding_projection.weight": (config.text.hidden_size, inner)}
    return decoder | embedder | projection


def assistant_shapes(config: AssistantConfig) -> Shapes:
    hidden, backbone = config.text.hidden_size, config.backbone_hidden_size
    shapes: Shapes = {
        **_under("model", _decoder_shapes(config.text)),
        "pre_projection.weight": (hidden, 2 * backbone),
        "post_projection.weight": (backbone, hidden),
    }
    if config.use_ordered_embeddings:
        shapes["masked_embedding.centroids.weight"] = (config.num_centroids, hidden)
        shapes["masked_embedding.token_ordering"] = (config.text.vocab_size,)
    return shapes


def _under(prefix: str, shapes: Shapes) -> Shapes:
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def _decoder_shapes(text: TextConfig) -> Shapes:
    hidden, own = text.hidden_size, text.hidden_size_per_layer_input
    shapes: Shapes = {"embed_tokens.weight": (text.vocab_size, hidden), "norm.weight": (hidden,)}
    if own:
        shapes["embed_tokens_per_layer.weight"] = (text.vocab_size_per_layer_input, text.num_hidden_layers * own)
        shapes["per_layer_model_projection.weight"] = (text.num_hidden_layers * own, hidden)
        shapes["per_layer_projection_norm.weight"] = (own,)
    first_sharing = text.num_hidden_layers - text.num_kv_shared_layers
    for index in range(text.num_hidden_layers):
        shapes |= _under(f"layers.{index}", _layer_shapes(text, index, owns_kv=index < first_sharing))
    return shapes


def _layer_shapes(text: TextConfig, index: int, *, owns_kv: bool) -> Shapes:
    hidden, own = text.hidden_size, text.hidden_size_per_layer_input
    full = text.layer_types[index] == "full_attention"
    dim = text.global_head_dim if full else text.head_dim
    kv_heads = text.num_key_value_heads
    if full and text.attention_k_eq_v and text.num_global_key_value_heads:
        kv_heads = text.num_global_key_value_heads
    shapes: Shapes = {
        "layer_scalar": (1,),
        "self_attn.q_proj.weight": (text.num_attention_heads * dim, hidden),
        "self_attn.q_norm.weight": (dim,),
        "self_attn.o_proj.weight": (hidden, text.num_attention_heads * dim),
    }
    if owns_kv:
        shapes["self_attn.k_proj.weight"] = (kv_heads * dim, hidden)
        shapes["self_attn.k_norm.weight"] = (dim,)
        if not (full and text.attention_k_eq_v):
            shapes["self_attn.v_proj.weight"] = (kv_heads * dim, hidden)
    width = text.intermediate_size * (1 if owns_kv or not text.use_double_wide_mlp else 2)
    shapes |= _under("mlp", _feed_forward_shapes(hidden, width))
    norms = ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"]
    if text.enable_moe_block:
        experts, inner = text.num_experts, text.moe_intermediate_size
        norms += ["post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"]
        shapes["router.scale"] = (hidden,)
        shapes["router.per_expert_scale"] = (experts,)
        shapes["router.proj.weight"] = (experts, hidden)
        shapes["experts.gate_up_proj"] = (experts, 2 * inner, hidden)
        shapes["experts.down_proj"] = (experts, hidden, inner)
    if own:
        norms.append("post_per_layer_input_norm")
        shapes["per_layer_input_gate.weight"] = (own, hidden)
        shapes["per_layer_projection.weight"] = (hidden, own)
    return shapes | {f"{norm}.weight": (hidden,) for norm in norms}


def _feed_forward_shapes(hidden: int, width: int) -> Shapes:
    return {"gate_proj.weight": (width, hidden), "up_proj.weight": (width, hidden), "down_proj.weight": (hidden, width)}


def vision_shapes(vision: VisionConfig) -> Shapes:
    hidden, dim = vision.hidden_size, vision.head_dim
    shapes: Shapes = {
        "patch_embedder.position_embedding_table": (2, vision.position_embedding_size, hidden),
        "patch_embedder.input_proj.weight": (hidden, 3 * vision.patch_size**2),
    }
    heads = {"q": vision.num_attention_heads, "k": vision.num_key_value_heads, "v": vision.num_key_value_heads}
    for index in range(vision.num_hidden_layers):
        layer: Shapes = {f"self_attn.{name}_proj.linear.weight": (n * dim, hidden) for name, n in heads.items()}
        layer["self_attn.o_proj.linear.weight"] = (hidden, vision.num_attention_heads * dim)
        layer |= {"self_attn.q_norm.weight": (dim,), "self_attn.k_norm.weight": (dim,)}
        for name, shape in _feed_forward_shapes(hidden, vision.intermediate_size).items():
            layer[f"mlp.{name.removesuffix('weight')}linear.weight"] = shape
        for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            layer[f"{norm}_layernorm.weight"] = (hidden,)
        shapes |= _under(f"encoder.layers.{index}", layer)
    return shapes


def embedder_shapes(vision: UnifiedVisionConfig) -> Shapes:
    """What projects patches where there is no tower."""
    patch, inner = 3 * vision.model_patch_size**2, vision.mm_embed_dim
    shapes: Shapes = {"patch_dense.weight": (inner, patch), "pos_embedding": (vision.mm_posemb_size, 2, inner)}
    shapes["patch_dense.bias"] = (inner,)
    for norm, width in (("patch_ln1", patch), ("patch_ln2", inner), ("pos_norm", inner)):
        shapes |= {f"{norm}.weight": (width,), f"{norm}.bias": (width,)}
    return shapes


def target_tensors(network: Network) -> dict[str, Tensor]:
    """What the target's weights file holds, all bf16. The parts that look at images are seeded and not trained."""
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.randn(shape, generator=generator) * shape[-1] ** -0.5
        for name, shape in target_shapes(network.config).items()
        if not name.startswith(DECODER)
    }
    tensors |= {DECODER + name: tensor for name, tensor in network.target.state_dict().items()}
    return _stored(tensors)


def assistant_tensors(network: Network) -> dict[str, Tensor]:
    return _stored(network.assistant.state_dict())


def _stored(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: (tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor).contiguous()
        for name, tensor in tensors.items()
    }


def write_checkpoint(network: Network, target: Path, assistant: Path) -> None:
    for folder, tensors, settings in (
        (target, target_tensors(network), target_json(network.config)),
        (assistant, assistant_tensors(network), assistant_json(network.config)),
    ):
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        _write_json(folder / "config.json", settings)
        _write_json(folder / "generation_config.json", {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID})


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_checkpoint(target: Path, assistant: Path, config: Config) -> Network:
    """The network in fp32 on the stored values, which is what the engine computes with under `--dtype float32`."""
    network = Network(config)
    stored = load_file(target / WEIGHTS)
    unread = {name for name in target_shapes(config) if not name.startswith(DECODER)}
    decoder = {name.removeprefix(DECODER): tensor for name, tensor in stored.items() if name not in unread}
    network.target.load_state_dict(_computed(decoder))
    network.assistant.load_state_dict(_computed(load_file(assistant / WEIGHTS)))
    return network.eval()


def _computed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
