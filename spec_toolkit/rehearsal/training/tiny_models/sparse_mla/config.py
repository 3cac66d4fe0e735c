"""The shapes of the tiny sparse models, spelled as their config.json spell them. Pure."""

from dataclasses import asdict, dataclass

from tiny_models.deepseek_v3 import config as deepseek_v3
from tiny_models.tokenizer import BOS_ID, EOS_ID

GLM_KEYS = ("rope_interleave", "indexer_rope_interleave")
INDEX_SHARE_KEYS = ("index_topk_freq", "index_skip_topk_offset", "index_share_for_mtp_iteration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(deepseek_v3.Config):
    """As DeepSeek-V3's; but for the first two, every field is a key of config.json where the family has it."""

    architecture: str
    model_type: str
    index_topk: int = 32  # positions a layer attends to: fewer than most prompts have, so that the selection is real
    index_head_dim: int = 128  # the engine's pool takes no other
    index_n_heads: int = 2
    rope_interleave: bool = True
    indexer_rope_interleave: bool = True
    index_topk_freq: int = 1  # of layers past the offset, one in so many owns an indexer; the others take its selection
    index_skip_topk_offset: int = 2
    index_share_for_mtp_iteration: bool = False  # draft steps after the first take the first one's selection

    def owns_indexer(self, layer: int) -> bool:
        return max(layer - self.index_skip_topk_offset + 1, 0) % self.index_topk_freq == 0


DEEPSEEK_V32 = Config(
    architecture="DeepseekV32ForCausalLM", model_type="deepseek_v32", indexer_rope_interleave=False
)  # fmt: skip
GLM_51 = Config(
    architecture="GlmMoeDsaForCausalLM",
    model_type="glm_moe_dsa",
    n_group=1,
    topk_group=1,
    rms_norm_eps=1e-5,
    rope_theta=1_000_000,
    rope_scaling=None,
)
GLM_52 = Config(
    architecture="GlmMoeDsaForCausalLM",
    model_type="glm_moe_dsa",
    num_hidden_layers=5,  # with the two below: full, full, shared, full, shared
    index_topk_freq=2,
    index_skip_topk_offset=2,
    index_share_for_mtp_iteration=True,
    n_group=1,
    topk_group=1,
    rms_norm_eps=1e-5,
    rope_theta=8_000_000,
    rope_scaling=None,
)


def config_json(config: Config) -> dict[str, object]:
    """What config.json holds."""
    fields = asdict(config)
    architecture, yarn = fields.pop("architecture"), fields.pop("rope_scaling")
    glm = config.model_type == "glm_moe_dsa"
    absent = (() if glm else GLM_KEYS) + (() if config.index_topk_freq > 1 else INDEX_SHARE_KEYS)
    content = {
        "architectures": [architecture],
        "torch_dtype": "bfloat16",
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        **{key: value for key, value in fields.items() if key not in absent},
    }
    if glm:
        content["rope_parameters"] = {"rope_theta": content.pop("rope_theta"), "rope_type": "default"}
    else:
        content["rope_scaling"] = {"type": "yarn", **yarn}
    if config.index_topk_freq > 1:
        content["indexer_types"] = [
            "full" if config.owns_indexer(layer) else "shared" for layer in range(config.num_hidden_layers)
        ]
    return content


FAMILIES = {"deepseek_v32": DEEPSEEK_V32, "glm51": GLM_51, "glm52": GLM_52}
