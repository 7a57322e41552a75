# mypy: ignore-errors
"""Pure-torch stand-in for the CPU build of `sgl_kernel`, enough to serve small
Qwen3.5-style hybrid models (Gated DeltaNet + gated attention) and dense models
with SGLang on a machine without a GPU.

SGLang reaches its CPU kernels in two ways: module functions (`sgl_kernel.foo_cpu`)
and the `torch.ops.sgl_kernel` namespace.  Both are served from the same functions;
`register()` puts the second kind in place.  `convert_weight_packed` is left out on
purpose: its absence is how SGLang decides that there are no AMX kernels, and that
keeps linear layers, norms, rotary embedding and MoE on plain torch code.
"""

import torch

from . import attention, gdn, norms
from .spec import *  # noqa: F403  (module functions SGLang imports by name)

__version__ = "0.0.0+torch"


def register():
    ops = torch.ops.sgl_kernel
    for module in (attention, gdn, norms):
        for name in module.OPS:
            setattr(ops, name, getattr(module, name))


register()
# the scheduler calls this on CPU tensors, where torch does not define it
torch.Tensor.record_stream = lambda _self, _stream: None
