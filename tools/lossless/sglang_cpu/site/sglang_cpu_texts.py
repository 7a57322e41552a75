# mypy: ignore-errors
"""Source text of SGLang that is replaced before a module is compiled, by SGLang version.

module -> [(text, replacement, how often the text must occur)].  `texts(version)` is the one
place that chooses by version; a version that is not listed gets the newest list, whose
counts then fail the import where the module differs.
"""

# the same in all versions
COMMON = {
    # DFlash's verify input has no tree; it is a chain
    "sglang.srt.layers.attention.intel_amx_backend": [
        ("if spec_info.tree_topk != 1:", 'if getattr(spec_info, "tree_topk", 1) != 1:', 1),
    ],
    # the draft's input embeddings keep the model's dtype
    "sglang.srt.model_executor.model_runner": [
        ("forward_batch.input_embeds.bfloat16()", "forward_batch.input_embeds.to(self.dtype)", 1),
    ],
    # bfloat16 draft attention: the fused norm + rope kernel is Triton only; take the unfused code
    "sglang.srt.models.dflash": [
        (
            "elif self.use_table_qk_norm_rope and qkv.dtype == torch.bfloat16:",
            "elif self.use_table_qk_norm_rope and qkv.dtype == torch.bfloat16 and qkv.is_cuda:",
            1,
        ),
    ],
    # no pinned host memory without a GPU
    "sglang.srt.managers.schedule_batch": [
        ("track_mask_cpu.pin_memory().to(", "track_mask_cpu.clone().to(", 1),
    ],
}

V0_5_19 = {
    # DFLASH refuses every device but CUDA and NPU
    "sglang.srt.arg_groups.speculative_hook": [
        (
            'if not (cfg.device.startswith("cuda") or cfg.device == "npu"):\n'
            "        raise ValueError(\n"
            '            "DFLASH speculative decoding only supports',
            'if not (cfg.device.startswith("cuda") or cfg.device in ("npu", "cpu")):\n'
            "        raise ValueError(\n"
            '            "DFLASH speculative decoding only supports',
            1,
        ),
        # ... and every draft attention backend but the GPU ones
        (
            '        "trtllm_mha",\n        "ascend",\n    )\n'
            "    # Use triton on ROCm (no FlashInfer), flashinfer on CUDA.",
            '        "trtllm_mha",\n        "ascend",\n        "intel_amx",\n    )\n'
            "    # Use triton on ROCm (no FlashInfer), flashinfer on CUDA.",
            1,
        ),
    ],
    # the MTP head shares the target's embedding; nothing to wait for without a GPU
    "sglang.srt.models.qwen3_5_mtp": [
        (
            "        torch.cuda.empty_cache()\n        torch.cuda.synchronize()",
            "        if torch.cuda.is_available():\n"
            "            torch.cuda.empty_cache()\n            torch.cuda.synchronize()",
            1,
        ),
    ],
    # prefix caching with tracking slots: the copies exist in torch form (sglang_cpu_states)
    "sglang.srt.arg_groups.mamba_hook": [
        (
            '        or get_platform().is_xpu\n    ), "extra_buffer needs',
            '        or get_platform().is_xpu\n        or view.device == "cpu"\n    ), "extra_buffer needs',
            1,
        ),
    ],
    "sglang.srt.managers.schedule_batch": [
        (
            "            track_positions,\n            dtype=torch.int64,\n            pin_memory=True,",
            "            track_positions,\n            dtype=torch.int64,\n            pin_memory=all_buffers.is_cuda,",
            1,
        ),
    ],
    # saved verify states of hybrid models
    "sglang.srt.mem_cache.memory_pool": [
        (
            'dtype=ssm_dtype,\n                        device="cuda",',
            "dtype=ssm_dtype,\n                        device=device,",
            1,
        ),
        (
            'dtype=conv_dtype,\n                            device="cuda",',
            "dtype=conv_dtype,\n                            device=device,",
            1,
        ),
    ],
}

V0_5_23 = {
    # DFLASH refuses every device but CUDA, NPU and XPU
    "sglang.srt.arg_groups.speculative_hook": [
        (
            'cfg.device.startswith("cuda") or cfg.device == "npu" or cfg.device == "xpu"\n'
            "        )\n"
            "    if not is_supported:\n"
            "        raise ValueError(\n"
            '            f"{algorithm} speculative',
            'cfg.device.startswith("cuda") or cfg.device in ("npu", "xpu", "cpu")\n'
            "        )\n"
            "    if not is_supported:\n"
            "        raise ValueError(\n"
            '            f"{algorithm} speculative',
            1,
        ),
    ],
    # prefix caching with tracking slots: the copies exist in torch form (sglang_cpu_states)
    "sglang.srt.arg_groups.mamba_hook": [
        (
            "        or platform.is_xpu\n    )\n",
            "        or platform.is_xpu\n        or current_platform.is_cpu()\n    )\n",
            1,
        ),
    ],
}

BY_VERSION = {"0.5.19": V0_5_19, "0.5.23": V0_5_23}
NEWEST = "0.5.23"


def texts(version):
    """All replacements for this SGLang version."""
    own = BY_VERSION.get(version, BY_VERSION[NEWEST])
    return {name: COMMON.get(name, []) + own.get(name, []) for name in COMMON.keys() | own.keys()}
