"""What is known of one model, wherever it was read: its folder, the hub, or the table that travels with the package. Pure records.

`ModelShape` holds the numbers that memory and speed follow from; which of the four kinds of attention a model has decides how its KV
pool is laid out, and the engine sizes each by a rule of its own.
"""

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct


class Origin(Enum):
    FOLDER = "folder"  # its config.json, on this machine
    HUB = "hub"  # the same file, fetched at a commit
    TABLE = "table"  # spec_toolkit/facts/tables: offline, or nobody asked the hub
    UNKNOWN = "unknown"


class MlaAttention(Struct, frozen=True, kw_only=True):
    """DeepSeek V3: one latent per token and layer, the same on every rank of tensor parallelism."""

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None
    num_heads: int


class DsaAttention(Struct, frozen=True, kw_only=True):
    """DeepSeek V3.2, GLM-5: the latent of MLA, and an indexer whose keys live on some of the layers."""

    mla: MlaAttention
    index_heads: int
    index_head_dim: int
    index_topk: int  # tokens
    indexer_layers: int  # that own one; the others reuse a neighbour's (IndexShare)
    shared_in_draft: bool  # the draft's steps share the first step's indices


class CompressedAttention(Struct, frozen=True, kw_only=True):
    """DeepSeek V4: a window, and pools that keep one entry for 4 or for 128 tokens."""

    num_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    index_heads: int
    index_head_dim: int
    index_topk: int
    window_tokens: int
    compress_ratios: tuple[int, ...]  # of the target's layers: 0 window only, 4, 128
    compress_ratios_draft: tuple[int, ...]  # of the MTP layer or of DSpark's stages


class WindowedAttention(Struct, frozen=True, kw_only=True):
    """Gemma 4: most layers see a window, the others everything; some reuse the KV of an earlier layer."""

    num_heads: int
    window_layers: int
    full_layers: int
    window_kv_heads: int
    full_kv_heads: int
    window_head_dim: int
    full_head_dim: int
    window_tokens: int
    keys_are_values: bool  # full layers
    kv_shared_layers: int


Attention = MlaAttention | DsaAttention | CompressedAttention | WindowedAttention


class Experts(Struct, frozen=True, kw_only=True):
    routed: int
    per_token: int
    shared: int
    intermediate_size: int
    dense_layers: int  # first layers without experts
    beside_dense: bool = False  # Gemma 4: every layer has a dense part too


class ModelShape(Struct, frozen=True, kw_only=True):
    layers: int
    hidden_size: int
    intermediate_size: int  # of the dense layers; 0: there are none
    vocab_size: int
    attention: Attention
    experts: Experts | None = None
    mtp_layers: int = 0  # in the checkpoint
    per_layer_embedding: int = 0  # Gemma 4 E2B, E4B: width of the embedding each layer adds
    double_width_layers: int = 0  # Gemma 4 E2B: layers that share KV have a dense part twice as wide
    tied_embeddings: bool = False


class VisionTower(Struct, frozen=True, kw_only=True):
    """Of a model that sees images; the engine keeps more memory free for a larger one."""

    layers: int
    hidden_size: int


class Weights(Enum):
    """How the bulk of a checkpoint's weights is stored."""

    BF16 = "bf16"
    FP8 = "fp8"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"
    FP4_FP8 = "fp4_fp8"  # DeepSeek V4: routed experts FP4, the rest FP8
    W4A16 = "w4a16"
    W4A8 = "w4a8"


class Inside(Enum):
    """The draft that ships in a target's checkpoint."""

    MTP = "mtp"
    DSPARK = "dspark"


class Quantization(Struct, frozen=True, kw_only=True):
    """config.json's quantization_config, as far as rules look at it; all None: the checkpoint is not quantised."""

    method: str | None = None  # quant_method: fp8, modelopt, compressed-tensors, quark
    algorithm: str | None = None  # quant_algo: NVFP4
    bits: int | None = None
    kv_cache: str | None = None  # kv_cache_quant_algo: FP8
    ignored: tuple[str, ...] = ()  # modules that are not


class Tensor(Struct, frozen=True, kw_only=True):
    bytes: int | None  # None: only its name is known, from the index
    dtype: str | None = None  # as safetensors spells it: BF16, F8_E4M3, U8
    shape: tuple[int, ...] | None = None


class Model(Struct, frozen=True, kw_only=True):
    """None: not known. A rule that needs what is not known says nothing, or says that it could not look."""

    name: str  # repository or folder, as the recipe or command has it
    origin: Origin
    says: str  # where it was read, in words for people: "table, official-config (dsv3-cfg)"
    commit: str | None = None
    architecture: str | None = None  # first of config.json's architectures
    model_type: str | None = None
    shape: ModelShape | None = None  # None where the architecture is not one of ours
    weights: Weights | None = None
    weight_bytes: int | None = None  # of the whole checkpoint, draft layer included
    draft_weight_bytes: int | None = None  # of the MTP layer or DSpark's stages in it
    draft_weights: Weights | None = None  # how those are stored
    quantization: Quantization | None = None  # None: not known; Quantization(): known to be none
    hidden_size: int | None = None  # of the text model
    backbone_hidden_size: int | None = None  # of a Gemma 4 assistant: its target's hidden size
    vocab_size: int | None = None
    max_position_embeddings: int | None = None  # tokens; those that the engine counts, a rope's factor included
    num_hidden_layers: int | None = None
    num_nextn_predict_layers: int | None = None
    dspark_block_size: int | None = None
    vision: VisionTower | None = None  # vision_config's; None: none, or not known
    tokenizer: str | None = None  # "sha256:..." over vocabulary, merges, special tokens and chat template
    tensors: Mapping[str, Tensor] | None = None  # from the weight index or headers
    unindexed_files: tuple[str, ...] = ()  # weight files in the folder that the index does not name
