"""Checkpoint files to float32 arrays, with matrices turned so that ``x @ w`` reads memory in order."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from lossless.errors import UsageError
from lossless.reference.ops import F32

# safetensors.numpy reads bfloat16 only once ml_dtypes has registered the type with numpy.
BFLOAT16 = ml_dtypes.bfloat16


class Weights:
    """All tensors of one model folder as float32, looked up below an optional prefix.

    Raises:
        UsageError: from the constructor, when no or broken weight files lie in the folder; from a look-up, when a
            tensor is missing (the message names it).
    """

    def __init__(self, tensors: Mapping[str, F32], where: str, prefix: str = "") -> None:
        self._tensors, self._where, self._prefix = tensors, where, prefix

    @classmethod
    def load(cls, folder: Path) -> "Weights":
        """Read every ``*.safetensors`` file that the index names, or all of them without an index."""
        index = folder / "model.safetensors.index.json"
        names = (
            sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
            if index.is_file()
            else sorted(path.name for path in folder.glob("*.safetensors"))
        )
        if not names:
            raise UsageError(f"model folder {folder} holds no *.safetensors files")
        tensors: dict[str, F32] = {}
        for name in names:
            try:
                part = load_file(folder / name)
            except (OSError, ValueError, SafetensorError) as problem:
                raise UsageError(f"cannot read weights from {folder / name}: {problem}") from problem
            tensors.update({key: value.astype(np.float32) for key, value in part.items()})
        return cls(tensors, str(folder))

    @property
    def count(self) -> int:
        """Number of parameters."""
        return sum(tensor.size for tensor in self._tensors.values())

    def has(self, name: str) -> bool:
        """Is there a tensor of this name, or are there any below it?"""
        full = self._prefix + name
        return any(key == full or key.startswith(full + ".") for key in self._tensors)

    def below(self, name: str) -> "Weights":
        """The same tensors seen from below ``name``."""
        return Weights(self._tensors, self._where, f"{self._prefix}{name}.")

    def changed(self, change: Callable[[str, F32], F32]) -> "Weights":
        """The same names with ``change(full name, tensor)`` for each tensor."""
        tensors = {name: change(name, tensor) for name, tensor in self._tensors.items()}
        return Weights(tensors, self._where, self._prefix)

    def vector(self, name: str) -> F32:
        """The tensor ``name`` as stored."""
        try:
            return self._tensors[self._prefix + name]
        except KeyError:
            raise UsageError(f"{self._where} lacks the tensor {self._prefix + name!r}") from None

    def matrix(self, *names: str) -> F32:
        """Linear layers ``names`` side by side as one matrix [inputs, outputs]."""
        return np.ascontiguousarray(np.concatenate([self.vector(f"{name}.weight") for name in names]).T)
