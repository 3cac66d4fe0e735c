"""What a launch asks of the engine, under the engine's own names (its parser's destinations, SGLang 0.5.23). Pure.

A recipe and a pasted command line both become one of these, so that a rule about the engine is written once. None means that the
launch does not say; what the engine then does is a fact, not an argument. Deprecated spellings are already under their new name.
"""

from msgspec import Struct


class Arguments(Struct, frozen=True, kw_only=True, omit_defaults=True):
    model_path: str | None = None
    tokenizer_path: str | None = None
    revision: str | None = None
    served_model_name: str | None = None
    trust_remote_code: bool | None = None
    chat_template: str | None = None
    dtype: str | None = None
    device: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    load_format: str | None = None

    tp_size: int | None = None
    dp_size: int | None = None
    ep_size: int | None = None
    pp_size: int | None = None
    attn_dp_size: int | None = None  # the new spelling of dp_size with enable_dp_attention
    attn_cp_size: int | None = None
    moe_dp_size: int | None = None
    enable_dp_attention: bool | None = None
    enable_dp_lm_head: bool | None = None
    enable_dp_attention_local_control_broadcast: bool | None = None
    nnodes: int | None = None
    node_rank: int | None = None
    dist_init_addr: str | None = None
    dist_timeout: int | None = None  # seconds
    moe_a2a_backend: str | None = None
    moe_runner_backend: str | None = None
    flashinfer_mxfp4_moe_precision: str | None = None  # bf16, fp8
    deepep_mode: str | None = None
    enable_two_batch_overlap: bool | None = None
    enable_pdmux: bool | None = None
    enable_eplb: bool | None = None

    context_length: int | None = None  # tokens
    max_running_requests: int | None = None  # of the whole server
    max_total_tokens: int | None = None
    mem_fraction_static: float | None = None
    chunked_prefill_size: int | None = None  # tokens
    max_prefill_tokens: int | None = None
    enable_mixed_chunk: bool | None = None
    page_size: int | None = None  # tokens
    swa_full_tokens_ratio: float | None = None
    disable_radix_cache: bool | None = None
    schedule_conservativeness: float | None = None

    attention_backend: str | None = None
    prefill_attention_backend: str | None = None
    decode_attention_backend: str | None = None
    dsa_prefill_backend: str | None = None
    dsa_decode_backend: str | None = None
    sampling_backend: str | None = None
    grammar_backend: str | None = None

    cuda_graph_bs_decode: tuple[int, ...] | None = None  # batch sizes
    cuda_graph_max_bs_decode: int | None = None
    cuda_graph_backend_decode: str | None = None
    cuda_graph_backend_prefill: str | None = None
    disable_cuda_graph: bool | None = None
    disable_overlap_schedule: bool | None = None

    speculative_algorithm: str | None = None  # as written: the engine's case and aliases matter to some models
    speculative_draft_model_path: str | None = None
    speculative_draft_model_revision: str | None = None
    speculative_draft_model_quantization: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    speculative_adaptive: bool | None = None
    speculative_adaptive_config: str | None = None
    speculative_accept_threshold_single: float | None = None
    speculative_accept_threshold_acc: float | None = None
    speculative_use_rejection_sampling: bool | None = None
    speculative_attention_mode: str | None = None
    speculative_moe_runner_backend: str | None = None
    speculative_moe_a2a_backend: str | None = None
    speculative_dspark_block_size: int | None = None
    speculative_dflash_block_size: int | None = None
    speculative_ngram_max_bfs_breadth: int | None = None
    speculative_token_map: str | None = None
    enable_multi_layer_eagle: bool | None = None

    enable_lora: bool | None = None
    lora_paths: tuple[str, ...] | None = None
    max_lora_rank: int | None = None
    lora_target_modules: tuple[str, ...] | None = None
    enable_hierarchical_cache: bool | None = None
    hicache_ratio: float | None = None
    hicache_size: int | None = None  # GB
    hicache_write_policy: str | None = None
    hicache_storage_backend: str | None = None
    hicache_storage_backend_extra_config: str | None = None
    disaggregation_mode: str | None = None  # prefill, decode
    disaggregation_transfer_backend: str | None = None
    disaggregation_decode_enable_radix_cache: bool | None = None

    host: str | None = None
    port: int | None = None
    enable_metrics: bool | None = None
    watchdog_timeout: float | None = None  # seconds
    api_key: str | None = None  # "***" where one was given: its value is not kept
    admin_api_key: str | None = None  # as above
    others: tuple[str, ...] = ()  # names of what the engine knows and no rule looks at, sorted

    @property
    def speculates(self) -> bool:
        return self.speculative_algorithm is not None

    @property
    def exchanges(self) -> bool:
        """Whether experts send each other their tokens, all to all."""
        return self.moe_a2a_backend not in {None, "none"}

    @property
    def attention_dp(self) -> int:
        """Ranks that hold requests of their own; 1 without attention data parallelism."""
        ranks = self.attn_dp_size if self.attn_dp_size is not None else self.dp_size if self.enable_dp_attention else 1
        return max(1, ranks or 1)  # a launch may say anything; who divides by it has no case for nothing
