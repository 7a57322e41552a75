"""Gated attention of the target and its NEXTN head: grouped queries, per-head norms, partial rotary, output gate."""

import numpy as np

from lossless.reference.config import TargetConfig
from lossless.reference.ops import F32, Rounding, causal_bias, rms_norm, rotate_, sigmoid, silu, softmax_
from lossless.reference.state import KVCache
from lossless.reference.weights import Weights


class GatedAttention:
    """One full-attention layer."""

    def __init__(self, c: TargetConfig, w: Weights, rounding: Rounding) -> None:
        self.round = rounding
        self.eps = c.rms_norm_eps
        self.nh, self.nkv, self.d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        # The checkpoint interleaves query and gate of each head; apart they are plain slices.
        both = w.vector("q_proj.weight").reshape(self.nh, 2, self.d, c.hidden_size)
        query, gate = (both[:, i].reshape(self.nh * self.d, c.hidden_size) for i in (0, 1))
        rows = [query, w.vector("k_proj.weight"), w.vector("v_proj.weight"), gate]
        self.w_in = np.ascontiguousarray(np.concatenate(rows).T)
        self.w_out = w.matrix("o_proj")
        norms = [w.vector("q_norm.weight")] * self.nh + [w.vector("k_norm.weight")] * self.nkv
        self.qk_norm = 1.0 + np.stack(norms)
        self.scale = np.float32(self.d**-0.5)

    def new_state(self, capacity: int) -> KVCache:
        """An empty cache with room for ``capacity`` tokens (it grows when that was too few)."""
        return KVCache(self.nkv, capacity, self.d)

    def extend(self, x: F32, cache: KVCache, cos: F32, sin: F32) -> F32:
        """x [T, hidden] at the rotary angles cos, sin [T, 1, half]; writes behind the cache's committed slots."""
        tokens, nh, nkv, d = x.shape[0], self.nh, self.nkv, self.d
        p = self.round(x @ self.w_in)
        heads = (nh + nkv) * d
        qk = self.round(rms_norm(p[:, :heads].reshape(tokens, nh + nkv, d), self.qk_norm, self.eps))
        qk = self.round(rotate_(qk, cos, sin))
        v = p[:, heads : heads + nkv * d].reshape(tokens, nkv, d)
        end = cache.put(qk[:, nh:].transpose(1, 0, 2), v.transpose(1, 0, 2))
        o = attend(qk[:, :nh], cache.k[:, :end], cache.v[:, :end], self.scale, causal=True)
        gate = self.round(sigmoid(p[:, heads + nkv * d :]))
        return self.round(self.round(self.round(o) * gate) @ self.w_out)


def attend(q: F32, k: F32, v: F32, scale: np.float32, *, causal: bool) -> F32:
    """q [T, heads, d] over k, v [kv heads, S, d]; with ``causal`` the last T slots are the queries' own.

    Returns [T, heads * d].
    """
    tokens, nh, d = q.shape
    nkv, slots = k.shape[:2]
    r = nh // nkv
    rows = q.reshape(tokens, nkv, r, d).transpose(1, 2, 0, 3).reshape(nkv, r * tokens, d)
    scores = rows @ k.transpose(0, 2, 1)
    scores *= scale
    if causal and tokens > 1:
        scores.reshape(nkv, r, tokens, slots)[..., slots - tokens :] += causal_bias(tokens)
    o: F32 = softmax_(scores) @ v
    return o.reshape(nkv, r, tokens, d).transpose(2, 0, 1, 3).reshape(tokens, nh * d)


class MLP:
    """silu(gate) * up, then down."""

    def __init__(self, w: Weights, rounding: Rounding) -> None:
        self.round = rounding
        self.w_in = w.matrix("gate_proj", "up_proj")
        self.w_out = w.matrix("down_proj")
        self.width = self.w_out.shape[0]

    def __call__(self, x: F32) -> F32:
        p = self.round(x @ self.w_in)
        y = silu(p[:, : self.width])
        y *= p[:, self.width :]
        return self.round(self.round(y) @ self.w_out)
