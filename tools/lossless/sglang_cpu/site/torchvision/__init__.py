# mypy: ignore-errors
"""Runs the real torchvision on CPU torch.

PyPI's torchvision wheel carries a CUDA extension that does not load next to a CPU build
of torch, and the import then fails because two operators are undeclared.  Declare them,
then execute the installed package under this name.
"""

import site
from pathlib import Path

import torch

_real = next(path for s in site.getsitepackages() if (path := Path(s) / "torchvision").is_dir())
_lib = torch.library.Library("torchvision", "DEF")
for _op in ("qnms", "nms"):
    _lib.define(_op + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
__path__ = [str(_real)]
__file__ = str(_real / "__init__.py")
exec(compile((_real / "__init__.py").read_text(encoding="utf-8"), __file__, "exec"))
