"""Which of SGLang's arguments make two servers a pair, each with its reason (read in SGLang 0.5.17 to 0.5.23).

An argument in none of the tables is reported as a note when it differs.
"""

_WEIGHTS = "the two must run the very same weights"
_ROUNDING = "it changes how numbers are rounded, so near-ties may fall the other way"
_KERNELS = "other kernels sum in another order"
_LAYOUT = "it changes how attention is split into blocks, and with it the order of sums"
_PREFILL = "prompts are cut into other pieces, so the state after prefill is rounded differently"
_SHARDS = "sums are split over other numbers of devices"
_STATE = "it changes how the recurrent state is stored or restored"
_CACHE = "prefix-cache hits change what is computed and what is read back"
_INPUT = "the two must read the same tokens"

MATTER: dict[str, str] = {
    # the model
    "model_path": _WEIGHTS,
    "revision": _WEIGHTS,
    "weight_version": _WEIGHTS,
    "load_format": "dummy or partial loading means other weights",
    "json_model_override_args": "it changes the model's configuration",
    "model_impl": "another implementation of the model",
    "model_type": _WEIGHTS,
    "architectures": _WEIGHTS,
    "lora_paths": "adapters change the weights",
    "is_embedding": "an embedding model generates nothing",
    "version": "two versions of SGLang may compute differently; an upgrade is not speculation",
    "device": _KERNELS,
    # numbers
    "dtype": _ROUNDING,
    "quantization": _ROUNDING,
    "quantization_param_path": _ROUNDING,
    "kv_cache_dtype": _ROUNDING,
    "modelopt_quant": _ROUNDING,
    "enable_fp32_lm_head": _ROUNDING,
    "enable_tf32_matmul": _ROUNDING,
    "triton_attention_reduce_in_fp32": _ROUNDING,
    "enable_deterministic_inference": "deterministic kernels round differently from the others",
    "rl_on_policy_target": _ROUNDING,
    # kernels
    "attention_backend": _KERNELS,
    "prefill_attention_backend": _KERNELS,
    "decode_attention_backend": _KERNELS,
    "sampling_backend": "another argmax may break ties differently",
    "linear_attn_backend": _KERNELS,
    "linear_attn_prefill_backend": _KERNELS,
    "linear_attn_decode_backend": _KERNELS,
    "mamba_backend": _KERNELS,
    "fp8_gemm_runner_backend": _KERNELS,
    "fp4_gemm_runner_backend": _KERNELS,
    "bf16_gemm_backend": _KERNELS,
    "moe_runner_backend": _KERNELS,
    "moe_a2a_backend": _KERNELS,
    "enable_torch_compile": _KERNELS,
    "enable_fused_qk_norm_rope": _KERNELS,
    "triton_attention_num_kv_splits": _LAYOUT,
    "triton_attention_split_tile_size": _LAYOUT,
    "page_size": _LAYOUT,
    # prefill and caches
    "chunked_prefill_size": _PREFILL,
    "enable_mixed_chunk": "prefill and decode share a batch",
    "enable_dynamic_chunking": _PREFILL,
    "disable_radix_cache": _CACHE,
    "radix_cache_backend": _CACHE,
    "enable_hierarchical_cache": _CACHE,
    "context_length": "long prompts or outputs end at another length",
    "allow_auto_truncate": "prompts may be cut",
    # recurrent state
    "mamba_ssm_dtype": _ROUNDING,
    "mamba_radix_cache_strategy": _STATE,
    "uses_mamba_radix_cache": _STATE,
    "enable_mamba_cache_stochastic_rounding": "the state is rounded at random",
    "enable_int8_mamba_checkpoint": _STATE,
    "enable_linear_replayssm": _STATE,
    # devices
    "tp_size": _SHARDS,
    "pp_size": _SHARDS,
    "dp_size": _SHARDS,
    "ep_size": _SHARDS,
    "dcp_size": _SHARDS,
    "attn_cp_size": _SHARDS,
    "enable_dp_attention": _SHARDS,
    "disable_custom_all_reduce": _SHARDS,
    # requests
    "tokenizer_path": _INPUT,
    "tokenizer_mode": _INPUT,
    "skip_tokenizer_init": "one of them answers without text",
    "preferred_sampling_params": "one of them samples differently",
    "enable_custom_logit_processor": "logits may be changed",
    # environment variables, of launched servers
    "SGLANG_MAMBA_CONV_DTYPE": _ROUNDING,
    "SGLANG_MAMBA_SSM_DTYPE": _ROUNDING,
    "SGLANG_ENABLE_FAST_INPUT_LOGPROBS": "re-scored logprobs are computed differently",
    "SGLANG_USE_CPU_ENGINE": _KERNELS,
}

SETTINGS_MATTER = frozenset(name for name in MATTER if name.startswith("SGLANG_"))
"""Environment variables that are compared."""

_MEMORY = "a draft leaves less memory"
_GRAPHS = "speculation captures other batch sizes"

EXPECTED: dict[str, str] = {
    "mem_fraction_static": _MEMORY,
    "max_total_num_tokens": _MEMORY,
    "max_total_tokens": _MEMORY,
    "max_req_input_len": _MEMORY,
    "max_mamba_cache_size": _MEMORY,
    "max_prefill_tokens": _MEMORY,
    "max_running_requests": "speculation takes more memory a request, and DFLASH has a limit of its own",
    "disable_overlap_schedule": "some algorithms run without overlapped scheduling",
    "cuda_graph_config": _GRAPHS,
    "cuda_graph_max_bs_decode": _GRAPHS,
    "cuda_graph_bs_decode": _GRAPHS,
    "disable_cuda_graph": "graphs replay the same kernels",
    "linear_attn_verify_backend": "this is the speculation under test",
    "random_seed": "greedy decoding draws nothing",
    "served_model_name": "only a name",
    "host": "two servers",
    "grpc_port": "two servers",
    "base_gpu_id": "two servers",
}

IGNORED = frozenset(
    {
        "port",
        "nccl_port",
        "dist_init_addr",
        "status",
        "startup_time",
        "internal_states",
        "launch_command",
        "api_key",
        "admin_api_key",
        "kv_events",
        "log_level",
        "crash_dump_folder",
        "embedding",
        "engine_info_bootstrap_port",
        "disaggregation_bootstrap_port",
    }
)
"""Differs from server to server and says nothing, or (keys) must not be shown."""
