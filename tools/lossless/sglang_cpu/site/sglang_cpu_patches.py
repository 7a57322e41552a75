# mypy: ignore-errors
"""Run-time changes to SGLang 0.5.19, applied while its modules are imported.

TEXT   replaces source text before a module is compiled.  Every entry must be found exactly
       `count` times; otherwise the import fails, so a different SGLang version is noticed.
AFTER  runs a function on a module right after it was executed, before anyone else can copy
       names out of it.

Only what stops the CPU path is touched: device checks, hard-coded "cuda", and Triton
kernels without a CPU variant.  Scheduling, drafting, verification and sampling are SGLang's.
"""

import importlib.abc
import importlib.machinery
import sys

TEXT = {
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
    # the MTP head shares the target's embedding; nothing to wait for without a GPU
    "sglang.srt.models.qwen3_5_mtp": [
        (
            "        torch.cuda.empty_cache()\n        torch.cuda.synchronize()",
            "        if torch.cuda.is_available():\n"
            "            torch.cuda.empty_cache()\n            torch.cuda.synchronize()",
            1,
        ),
    ],
    # prefix caching with tracking slots: the copies below exist in torch form here
    "sglang.srt.arg_groups.mamba_hook": [
        (
            '        or get_platform().is_xpu\n    ), "extra_buffer needs',
            '        or get_platform().is_xpu\n        or view.device == "cpu"\n    ), "extra_buffer needs',
            1,
        ),
    ],
    # ... and no pinned host memory without a GPU
    "sglang.srt.managers.schedule_batch": [
        (
            "            track_positions,\n            dtype=torch.int64,\n            pin_memory=True,",
            "            track_positions,\n            dtype=torch.int64,\n            pin_memory=all_buffers.is_cuda,",
            1,
        ),
        ("track_mask_cpu.pin_memory().to(", "track_mask_cpu.clone().to(", 1),
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

AFTER = {}


def after(name):
    def deco(fn):
        AFTER[name] = fn
        return fn

    return deco


@after("sglang.srt.server_args")
def _(m):
    if "intel_amx" not in m.DRAFT_ATTENTION_BACKEND_CHOICES:
        m.add_draft_attention_backend_choices(["intel_amx"])


@after("sglang.kernels.ops.attention.fla.layernorm_gated")
def _(m):
    # take the CPU branch (fused_rmsnorm_gated_cpu) although there are no AMX kernels
    m._use_cpu = True


@after("sglang.kernels.ops.mamba.mamba_state_scatter_triton")
def _(m):
    import sglang_cpu_states as s

    for name in s.NAMES:
        assert hasattr(m, name), name
        setattr(m, name, getattr(s, name))


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        text = TEXT.get(fullname)
        if not text:
            return super().get_code(fullname)
        src = self.get_data(self.path).decode("utf-8")
        for old, new, count in text:
            found = src.count(old)
            if found != count:
                raise ImportError(f"{fullname}: expected {count} times, found {found}: {old!r} (other SGLang version?)")
            src = src.replace(old, new)
        return compile(src, self.path, "exec", dont_inherit=True)

    def exec_module(self, module):
        super().exec_module(module)
        fn = AFTER.get(module.__name__)
        if fn is not None:
            fn(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name not in TEXT and name not in AFTER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None:
            return spec
        spec.loader = _Loader(name, spec.origin)
        return spec


def install():
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
