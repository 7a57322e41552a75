"""What a sequence leaves behind in the layers: keys and values, recurrent and convolution state."""

from dataclasses import dataclass

import numpy as np

from lossless.reference.ops import F32


class KVCache:
    """Keys and values of one attention layer: [kv heads, capacity, head dim], the first ``length`` slots are real.

    ``extend`` of a layer writes behind ``length`` without moving it; only ``commit`` makes slots permanent, so a
    rejected draft token is simply overwritten later.
    """

    __slots__ = ("k", "length", "v")

    def __init__(self, heads: int, capacity: int, dim: int) -> None:
        self.k: F32 = np.zeros((heads, capacity, dim), dtype=np.float32)
        self.v: F32 = np.zeros((heads, capacity, dim), dtype=np.float32)
        self.length = 0

    def put(self, k: F32, v: F32) -> int:
        """Write k, v [kv heads, tokens, dim] behind the committed slots; returns the end of what was written."""
        end: int = self.length + k.shape[1]
        if end > self.k.shape[1]:
            self._grow(end)
        self.k[:, self.length : end] = k
        self.v[:, self.length : end] = v
        return end

    def _grow(self, needed: int) -> None:
        capacity = max(needed, 2 * self.k.shape[1])
        for name in ("k", "v"):
            old: F32 = getattr(self, name)
            new: F32 = np.zeros((old.shape[0], capacity, old.shape[2]), dtype=np.float32)
            new[:, : old.shape[1]] = old
            setattr(self, name, new)

    def read(self, start: int, end: int) -> tuple[F32, F32]:
        """Copies of the slots [start, end)."""
        return self.k[:, start:end].copy(), self.v[:, start:end].copy()


@dataclass(slots=True)
class GDNState:
    """Recurrent state of one Gated DeltaNet layer.

    ``s`` [key heads, key dim, value heads per key head * value dim] in float32, ``conv`` [kernel - 1, channels]: the
    last inputs of the causal convolution.
    """

    s: F32
    conv: F32

    def copy(self) -> "GDNState":
        """An independent copy."""
        return GDNState(self.s.copy(), self.conv.copy())


LayerState = KVCache | GDNState


class TargetState:
    """All layer states of one sequence, and how many tokens they stand for."""

    __slots__ = ("layers", "length")

    def __init__(self, layers: list[LayerState]) -> None:
        self.layers = layers
        self.length = 0

    @property
    def kv(self) -> list[KVCache]:
        """The attention layers' caches, in layer order."""
        return [layer for layer in self.layers if isinstance(layer, KVCache)]

    @property
    def gdn(self) -> list[GDNState]:
        """The recurrent layers' states, in layer order."""
        return [layer for layer in self.layers if isinstance(layer, GDNState)]
