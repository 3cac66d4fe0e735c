"""The shapes of the tiny Gemma 4 targets and assistants, spelled as their config.json spells them. Pure."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from tiny_models.tokenizer import BOS_ID, EOS_ID, PAD_ID, VOCABULARY

SLIDING, FULL = "sliding_attention", "full_attention"
ROPE_THETA = {SLIDING: 10_000.0, FULL: 1_000_000.0}
FULL_ROTARY_SHARE = 0.25  # of a full layer's head dim; a sliding layer's is turned whole

# Marks of images, sound and video. They stand for bytes no UTF-8 text holds (0xF5 to 0xFC), so that text never meets them.
MEDIA_TOKENS = {
    "image_token_id": 180,
    "audio_token_id": 181,
    "video_token_id": 182,
    "boi_token_id": 183,
    "eoi_token_id": 184,
    "boa_token_id": 185,
    "eoa_token_index": 186,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextConfig:
    """A decoder. Every field is a key of `text_config` with the meaning it has in the real checkpoint."""

    vocab_size: int = VOCABULARY
    hidden_size: int = 128
    intermediate_size: int = 256
    num_hidden_layers: int = 4
    layer_types: tuple[str, ...] = (SLIDING, SLIDING, SLIDING, FULL)
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    num_global_key_value_heads: int | None = 1  # of full layers, where keys are values
    head_dim: int = 32
    global_head_dim: int = 64  # of full layers
    attention_k_eq_v: bool = True  # full layers have no v_proj
    num_kv_shared_layers: int = 0  # last layers that read an earlier layer's keys and values
    sliding_window: int = 64  # positions seen, the query's own included
    hidden_size_per_layer_input: int = 0
    vocab_size_per_layer_input: int = 0
    use_double_wide_mlp: bool = False  # in the layers that share keys and values
    enable_moe_block: bool = False
    num_experts: int | None = None
    top_k_experts: int | None = None
    moe_intermediate_size: int | None = None
    final_logit_softcapping: float = 30.0
    max_position_embeddings: int = 4096
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = True

    def head_dim_of(self, layer_type: str) -> int:
        return self.global_head_dim if layer_type == FULL else self.head_dim

    def kv_heads_of(self, layer_type: str) -> int:
        shared = layer_type == FULL and self.attention_k_eq_v and self.num_global_key_value_heads
        return shared or self.num_key_value_heads

    def keys_are_values(self, layer_type: str) -> bool:
        return layer_type == FULL and self.attention_k_eq_v

    def shares_kv(self, layer: int) -> bool:
        return layer >= self.num_hidden_layers - self.num_kv_shared_layers

    def kv_owner(self, layer: int) -> int:
        """The layer whose keys and values this one reads: itself, or the last of its type before the sharing tail."""
        if not self.shares_kv(layer):
            return layer
        first_sharing = self.num_hidden_layers - self.num_kv_shared_layers
        return max(i for i in range(first_sharing) if self.layer_types[i] == self.layer_types[layer])

    def mlp_width(self, layer: int) -> int:
        return self.intermediate_size * (2 if self.use_double_wide_mlp and self.shares_kv(layer) else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantConfig:
    """The draft: a small decoder without keys and values of its own. Fields are keys of the assistant's config.json."""

    text: TextConfig
    backbone_hidden_size: int
    use_ordered_embeddings: bool = False
    num_centroids: int = 64
    centroid_intermediate_top_k: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionConfig:
    """The engine always builds the vision tower; nothing here looks at an image."""

    hidden_size: int = 32
    intermediate_size: int = 32
    num_hidden_layers: int = 1
    num_attention_heads: int = 2
    num_key_value_heads: int = 2
    head_dim: int = 16
    patch_size: int = 16
    position_embedding_size: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class UnifiedVisionConfig:
    """The 12B has no tower: it projects patches into the text's stream. Nothing here looks at an image either."""

    patch_size: int = 4
    pooling_kernel_size: int = 3
    model_patch_size: int = (
        12  # their product; the engine reads the configuration as a Gemma4Config, which does not multiply
    )
    mm_embed_dim: int = 128
    mm_posemb_size: int = 64
    output_proj_dims: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A target with its assistant."""

    text: TextConfig
    assistant: AssistantConfig
    vision: VisionConfig | UnifiedVisionConfig = VisionConfig()

    @property
    def unified(self) -> bool:
        return isinstance(self.vision, UnifiedVisionConfig)


def dense() -> Config:
    """As Gemma 4 31B: full layers with wider heads, fewer of them for keys, and keys for values."""
    return _with_assistant(TextConfig())


def unified() -> Config:
    """As Gemma 4 12B: the text network of the dense kind under another wrapper."""
    return replace(dense(), vision=UnifiedVisionConfig())


def moe() -> Config:
    """As Gemma 4 26B-A4B: experts beside the dense feed-forward of every layer."""
    return _with_assistant(TextConfig(enable_moe_block=True, num_experts=8, top_k_experts=2, moe_intermediate_size=32))


def e2b() -> Config:
    """As Gemma 4 E2B: per-layer embeddings, a tail that shares keys and values, a centroid head in the assistant."""
    text = TextConfig(
        layer_types=(SLIDING, FULL, SLIDING, FULL),
        num_key_value_heads=1,
        num_global_key_value_heads=None,
        attention_k_eq_v=False,
        num_kv_shared_layers=2,
        hidden_size_per_layer_input=16,
        vocab_size_per_layer_input=VOCABULARY,
        use_double_wide_mlp=True,
    )
    return _with_assistant(text, ordered=True)


FAMILIES: dict[str, Callable[[], Config]] = {
    "gemma4_dense": dense,
    "gemma4_moe": moe,
    "gemma4_e2b": e2b,
    "gemma4_unified": unified,
}


def _with_assistant(text: TextConfig, *, ordered: bool = False) -> Config:
    """Four layers as in the real assistants, their heads those of the target's keys, no kind of extra of the target's."""
    layers = (SLIDING, SLIDING, SLIDING, FULL)
    draft = replace(
        text,
        hidden_size=96,
        num_hidden_layers=len(layers),
        layer_types=layers,
        num_kv_shared_layers=len(layers),
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=0,
        use_double_wide_mlp=False,
        enable_moe_block=False,
        num_experts=None,
        top_k_experts=None,
        moe_intermediate_size=None,
    )
    return Config(
        text=text,
        assistant=AssistantConfig(text=draft, backbone_hidden_size=text.hidden_size, use_ordered_embeddings=ordered),
    )


def target_json(config: Config) -> dict[str, object]:
    """What the target's config.json holds."""
    return {
        "architectures": [f"{_class(config)}ForConditionalGeneration"],
        "model_type": _model_type(config),
        "dtype": "bfloat16",
        **_token_ids(),
        **MEDIA_TOKENS,
        "tie_word_embeddings": True,
        "text_config": _text_json(config.text, _model_type(config)),
        "language_model_only": True,  # the engine asks for no processor of images
        "vision_config": {"model_type": f"{_model_type(config)}_vision", **asdict(config.vision)},
        "audio_config": None,
    }


def assistant_json(config: Config) -> dict[str, object]:
    """What the assistant's config.json holds."""
    fields = asdict(config.assistant)
    del fields["text"]
    return {
        "architectures": [f"{_class(config)}AssistantForCausalLM"],
        "model_type": f"{_model_type(config)}_assistant",
        "dtype": "bfloat16",
        **_token_ids(),
        "tie_word_embeddings": True,
        **fields,
        "text_config": _text_json(config.assistant.text, _model_type(config)),
    }


def _class(config: Config) -> str:
    return "Gemma4Unified" if config.unified else "Gemma4"


def _model_type(config: Config) -> str:
    return "gemma4_unified" if config.unified else "gemma4"


def _text_json(text: TextConfig, model_type: str) -> dict[str, object]:
    return {
        "model_type": f"{model_type}_text",
        "dtype": "bfloat16",
        **_token_ids(),
        "hidden_activation": "gelu_pytorch_tanh",
        **asdict(text),
        "layer_types": list(text.layer_types),
        "rope_parameters": {
            SLIDING: {"rope_type": "default", "rope_theta": ROPE_THETA[SLIDING]},
            FULL: {
                "rope_type": "proportional",
                "rope_theta": ROPE_THETA[FULL],
                "partial_rotary_factor": FULL_ROTARY_SHARE,
            },
        },
    }


def _token_ids() -> dict[str, object]:
    return {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID}
