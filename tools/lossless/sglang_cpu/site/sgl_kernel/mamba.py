# mypy: ignore-errors
"""Names SGLang imports from `sgl_kernel.mamba` on CPU."""

from .gdn import (  # noqa: F401
    causal_conv1d_fn_cpu,
    causal_conv1d_update_cpu,
    chunk_gated_delta_rule_cpu,
)
