"""Small array functions shared by the models, and the rounding that stands for the compute type."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Rounding = Callable[[F32], F32]


def keep(x: F32) -> F32:
    """Rounding of the float32 engine: none."""
    return x


def to_bfloat16(x: F32) -> F32:
    """Round to the nearest bfloat16 (ties to even), kept in float32."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


ROUNDINGS: dict[str, Rounding] = {"float32": keep, "bfloat16": to_bfloat16}


def rms_norm(x: F32, weight: F32, eps: float) -> F32:
    """Root-mean-square norm over the last axis, times ``weight``; not rounded."""
    scale = np.add.reduce(x * x, axis=-1, keepdims=True)
    scale /= x.shape[-1]
    scale += eps
    np.sqrt(scale, out=scale)
    y = np.divide(x, scale)
    y *= weight
    return y


def unit(x: F32) -> F32:
    """x / sqrt(sum(x^2) + 1e-6) over the last axis: the key and query norm of Gated DeltaNet."""
    scale = np.add.reduce(x * x, axis=-1, keepdims=True)
    scale += 1e-6
    np.sqrt(scale, out=scale)
    return np.divide(x, scale)


def sigmoid(x: F32) -> F32:
    """1 / (1 + exp(-x))"""
    y: F32 = np.exp(-x)
    y += 1.0
    return np.reciprocal(y, out=y)


def silu(x: F32) -> F32:
    """x * sigmoid(x)"""
    y: F32 = np.exp(-x)
    y += 1.0
    return np.divide(x, y, out=y)


def softmax_(x: F32) -> F32:
    """Softmax over the last axis, in place."""
    x -= np.maximum.reduce(x, axis=-1, keepdims=True)
    np.exp(x, out=x)
    x /= np.add.reduce(x, axis=-1, keepdims=True)
    return x


def log_softmax(x: F32) -> F32:
    """Log-probabilities (nats) over the last axis."""
    y: F32 = x - np.maximum.reduce(x, axis=-1, keepdims=True)
    y -= np.log(np.add.reduce(np.exp(y), axis=-1, keepdims=True))
    return y


def rope_tables(positions: int, dim: int, theta: float) -> tuple[F32, F32]:
    """cos and sin [positions, 1, dim / 2] of rotary embedding, in float32 like the training code."""
    inverse = np.float32(1.0) / np.float32(theta) ** (np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim))
    angle = (np.arange(positions, dtype=np.float32)[:, None] * inverse.astype(np.float32)[None])[:, None]
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def rotate_(x: F32, cos: F32, sin: F32) -> F32:
    """Rotary embedding in place on x [tokens, heads, dim]; only the first 2 * cos.shape[-1] dims turn (neox halves)."""
    half = cos.shape[-1]
    a, b = x[..., :half], x[..., half : 2 * half]
    turned = a * cos
    turned -= b * sin
    other = b * cos
    other += a * sin
    x[..., :half] = turned
    x[..., half : 2 * half] = other
    return x


def causal_bias(tokens: int) -> F32:
    """[tokens, tokens] with 0 where a row may look and -inf above the diagonal."""
    return np.triu(np.full((tokens, tokens), -np.inf, dtype=np.float32), 1)
