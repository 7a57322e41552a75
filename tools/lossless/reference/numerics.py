"""Benign differences between two honest servers, made on purpose: another order of summation, and noisy logits.

Real kernels differ so from batch shape to batch shape. They are here to show that the suite does not cry wolf.
"""

import zlib
from dataclasses import dataclass

import numpy as np

from lossless.reference.ops import F32
from lossless.reference.weights import Weights

_WRITES_HIDDEN = ("o_proj.weight", "out_proj.weight", "down_proj.weight")
_OWN_WIDTH = ("linear_attn.norm.weight", "q_norm.weight", "k_norm.weight")


def reordered(weights: Weights, hidden: int, seed: int) -> Weights:
    """The same model with its hidden units in another order: equal in exact arithmetic, but every sum over them runs in
    another order and rounds differently.

    Args:
        weights: a target's tensors, its NEXTN head included.
        hidden: width of the residual stream.
        seed: which order.
    """
    order = np.random.default_rng(seed).permutation(hidden)

    def change(name: str, tensor: F32) -> F32:
        if name.endswith(_WRITES_HIDDEN):
            return tensor[order]
        if name.endswith("mtp.fc.weight"):
            return tensor[order][:, np.concatenate((order, order + hidden))]
        if name.endswith("norm.weight") or ".pre_fc_norm_" in f".{name}":
            return tensor if name.endswith(_OWN_WIDTH) else tensor[order]
        return tensor[:, order] if tensor.ndim == 2 and tensor.shape[1] == hidden else tensor

    return weights.changed(change)


@dataclass(frozen=True, slots=True)
class LogitNoise:
    """Uniform noise that moves the gap of any two logits by at most ``nats``. A function of seed and hidden state only,
    so a noisy server is as repeatable as a quiet one."""

    nats: float
    seed: int = 0

    def add(self, logits: F32, hidden: F32) -> F32:
        """``logits`` [tokens, vocabulary] of ``hidden`` [tokens, hidden], with noise."""
        rows = [
            np.random.default_rng((self.seed, zlib.crc32(row.tobytes()))).random(logits.shape[1], dtype=np.float32)
            for row in hidden
        ]
        noisy: F32 = logits + (np.stack(rows) - np.float32(0.5)) * np.float32(self.nats)
        return noisy
