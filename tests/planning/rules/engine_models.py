"""Configurations of the families, as the engine reads them, cut to what its resolver looks at; numbers of the tables' sources."""

from typing import Any

_DEEPSEEK = {
    "hidden_act": "silu",
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_nextn_predict_layers": 1,
    "rms_norm_eps": 1e-06,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
}
_MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "first_k_dense_replace": 3, "n_routed_experts": 256}
_FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}

DEEPSEEK_V3: dict[str, Any] = {
    **_DEEPSEEK,
    **_MLA,
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "max_position_embeddings": 163840,
    "n_group": 8,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "quantization_config": _FP8,
    "topk_group": 4,
    "v_head_dim": 128,
    "vocab_size": 129280,
}

_INDEXER = {"index_head_dim": 128, "index_topk": 2048}
DEEPSEEK_V32: dict[str, Any] = {
    **DEEPSEEK_V3,
    **_INDEXER,
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "index_n_heads": 64,
}

GLM_51: dict[str, Any] = {
    **_DEEPSEEK,
    **_MLA,
    **_INDEXER,
    "architectures": ["GlmMoeDsaForCausalLM"],
    "model_type": "glm_moe_dsa",
    "hidden_size": 6144,
    "index_n_heads": 32,
    "intermediate_size": 12288,
    "max_position_embeddings": 202752,
    "n_group": 1,
    "num_attention_heads": 64,
    "num_hidden_layers": 78,
    "num_key_value_heads": 64,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "rope_theta": 1000000,
    "topk_group": 1,
    "v_head_dim": 256,
    "vocab_size": 154880,
}

DEEPSEEK_V4: dict[str, Any] = {
    **_DEEPSEEK,
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
    "expert_dtype": "fp4",
    "hc_mult": 4,
    "head_dim": 512,
    "hidden_size": 4096,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "index_topk": 512,
    "max_position_embeddings": 1048576,
    "n_routed_experts": 256,
    "num_attention_heads": 64,
    "num_experts_per_tok": 6,
    "num_hash_layers": 3,
    "num_hidden_layers": 43,
    "num_key_value_heads": 1,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "q_lora_rank": 1024,
    "qk_nope_head_dim": 448,
    "qk_rope_head_dim": 64,
    "quantization_config": {**_FP8, "scale_fmt": "ue8m0"},
    "routed_scaling_factor": 1.5,
    "sliding_window": 128,
    "vocab_size": 129280,
}
DEEPSEEK_V4_DSPARK = {**DEEPSEEK_V4, "dspark_block_size": 5}

_GEMMA_TEXT = {
    "model_type": "gemma4_text",
    "attention_k_eq_v": False,
    "global_head_dim": 512,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "num_key_value_heads": 2,
    "vocab_size": 262144,
}
GEMMA_E4B: dict[str, Any] = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "model_type": "gemma4",
    "dtype": "bfloat16",
    "text_config": {
        **_GEMMA_TEXT,
        "hidden_size": 2560,
        "hidden_size_per_layer_input": 256,
        "intermediate_size": 10240,
        "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 7,
        "num_attention_heads": 8,
        "num_hidden_layers": 42,
        "num_kv_shared_layers": 18,
        "sliding_window": 512,
    },
    "vision_config": {"model_type": "gemma4_vision"},
}
ASSISTANT_E4B: dict[str, Any] = {
    "architectures": ["Gemma4AssistantForCausalLM"],
    "model_type": "gemma4_assistant",
    "backbone_hidden_size": 2560,
    "dtype": "bfloat16",
    "text_config": {
        **_GEMMA_TEXT,
        "hidden_size": 256,
        "hidden_size_per_layer_input": 0,
        "intermediate_size": 2048,
        "layer_types": [*["sliding_attention"] * 3, "full_attention"],
        "num_attention_heads": 4,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 4,
        "vocab_size_per_layer_input": 0,
    },
    "use_ordered_embeddings": True,
}

CONFIGS = {
    "v3": DEEPSEEK_V3,
    "v32": DEEPSEEK_V32,
    "glm51": GLM_51,
    "v4": DEEPSEEK_V4,
    "v4-dspark": DEEPSEEK_V4_DSPARK,
    "gemma": GEMMA_E4B,
}
