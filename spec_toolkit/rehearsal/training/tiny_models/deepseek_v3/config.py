"""The shape of the tiny DeepSeek-V3, spelled as its config.json spells it. Pure."""

from dataclasses import asdict, dataclass

from tiny_models.tokenizer import BOS_ID, EOS_ID, VOCABULARY
from tiny_models.yarn import Yarn

YARN = Yarn(factor=4, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every field is a key of config.json with the meaning it has in the real checkpoint."""

    vocab_size: int = VOCABULARY
    hidden_size: int = 128
    intermediate_size: int = 256  # of a dense layer
    moe_intermediate_size: int = 32  # of one expert
    num_hidden_layers: int = 4  # the MTP layer is not counted
    first_k_dense_replace: int = 1  # dense layers before the first with experts
    moe_layer_freq: int = 1
    num_nextn_predict_layers: int = 1
    num_attention_heads: int = 4
    num_key_value_heads: int = 4
    q_lora_rank: int = 64
    kv_lora_rank: int = 64
    qk_nope_head_dim: int = 32
    qk_rope_head_dim: int = 16
    v_head_dim: int = 32
    attention_bias: bool = False
    n_shared_experts: int = 1
    n_routed_experts: int = 8
    num_experts_per_tok: int = 2
    n_group: int = 4
    topk_group: int = 2
    routed_scaling_factor: float = 2.5
    scoring_func: str = "sigmoid"
    topk_method: str = "noaux_tc"
    norm_topk_prob: bool = True
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    max_position_embeddings: int = 4096
    rope_theta: float = 10000.0
    rope_scaling: Yarn | None = YARN  # None: rotary positions as they are


def config_json(config: Config) -> dict[str, object]:
    """What config.json holds."""
    fields = asdict(config)
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "torch_dtype": "bfloat16",
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        **fields,
        "rope_scaling": {"type": "yarn", **fields["rope_scaling"]},
    }
