"""What a safetensors file says about its tensors, without reading one of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from lossless.errors import UsageError

DENSE_TYPES = frozenset({"F16", "BF16", "F32"})
"""Types of weights that are read as plain matrices (SGLang: ``is_dense_head_weight``)."""

_BITS = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16}
_SMALL_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
_LFS_POINTER = b"version https://git-lfs"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Type (safetensors' name of it, such as ``BF16``) and shape of one stored tensor."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def dense(self) -> bool:
        """Whether it holds 16- or 32-bit floating-point values."""
        return self.dtype in DENSE_TYPES

    @property
    def size_bytes(self) -> int:
        """What it takes in the file."""
        bits = _BITS.get(self.dtype) or _SMALL_BITS.get(self.dtype) or 8
        return math.prod(self.shape) * bits // 8


def read_header(path: Path) -> Mapping[str, TensorInfo]:
    """The tensors of one file, by name.

    The library checks that the header is sound and that the file is as long as it says; no tensor is read.

    Raises:
        UsageError: no such file, or a broken one; the message names it and says what is wrong with it.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise UsageError(f"{path.name} is a pointer of Git LFS, not the weights", hint="run git lfs pull")
        with safe_open(path, framework="numpy") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118 - not a mapping
            return {name: TensorInfo(part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
    except FileNotFoundError:
        raise UsageError(f"{path.name} is missing", hint="download the model again") from None
    except OSError as problem:
        raise UsageError(f"{path.name} cannot be read: {problem.strerror}") from problem
    except SafetensorError as problem:
        why = "it is cut off" if "not fully covered" in str(problem) else str(problem)
        raise UsageError(f"{path.name} is broken: {why}", hint="download it again") from problem
