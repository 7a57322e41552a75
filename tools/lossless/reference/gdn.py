"""Gated DeltaNet: a causal convolution and a gated delta rule, computed in blocks with matrix products.

A block of T tokens reads the state once. Nothing is written until ``commit(n)``, which advances the state over the
first n tokens of the block only: that is how rejected draft tokens leave no trace.
"""

from dataclasses import dataclass

import numpy as np

from lossless.reference.config import TargetConfig
from lossless.reference.ops import F32, Rounding, rms_norm, sigmoid, silu, unit
from lossless.reference.state import GDNState
from lossless.reference.weights import Weights

BLOCK = 64
"""Most tokens one block may hold: the triangular inverse grows with its square."""


@dataclass(slots=True)
class Pending:
    """What ``commit`` needs of a block of T tokens.

    ``full`` [kernel - 1 + T, channels] convolution inputs; ``k`` [key heads, T, key dim]; ``new`` [key heads, value
    heads per key head, T, value dim] values written by each token; ``decay`` [key heads, value heads per key head, T]
    log decay since the block's start.
    """

    full: F32
    k: F32
    new: F32
    decay: F32


class GatedDeltaNet:
    """One linear-attention layer. Not safe for two threads at once: it owns scratch memory."""

    def __init__(self, c: TargetConfig, w: Weights, rounding: Rounding) -> None:
        self.round = rounding
        self.eps = c.rms_norm_eps
        self.nk, self.nv = c.linear_num_key_heads, c.linear_num_value_heads
        self.dk, self.dv = c.linear_key_head_dim, c.linear_value_head_dim
        self.per_key = self.nv // self.nk
        self.channels = 2 * self.nk * self.dk + self.nv * self.dv
        self.taps = c.linear_conv_kernel_dim
        self.w_in = w.matrix("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
        self.w_conv = np.ascontiguousarray(w.vector("conv1d.weight")[:, 0].T)
        self.w_out = w.matrix("out_proj")
        self.rate = -np.exp(w.vector("A_log"))
        self.dt_bias = w.vector("dt_bias")
        self.norm = w.vector("norm.weight")
        self.scale = np.float32(self.dk**-0.5)
        self._scratch: F32 = np.empty((self.nk, self.dk, self.per_key * self.dv), dtype=np.float32)
        self._eye: F32 = np.eye(BLOCK, dtype=np.float32)
        self._lower: F32 = np.tril(np.ones((BLOCK, BLOCK), dtype=np.float32))

    def new_state(self) -> GDNState:
        """The state before the first token."""
        return GDNState(
            np.zeros((self.nk, self.dk, self.per_key * self.dv), dtype=np.float32),
            np.zeros((self.taps - 1, self.channels), dtype=np.float32),
        )

    def extend(self, x: F32, state: GDNState) -> tuple[F32, Pending]:
        """Process x [T, hidden], T <= BLOCK, after ``state``; returns the layer's output and what commit needs."""
        tokens = x.shape[0]
        p = self.round(x @ self.w_in)
        full: F32 = np.concatenate((state.conv, p[:, : self.channels]))
        y = full[:tokens] * self.w_conv[0]
        for tap in range(1, self.taps):
            y += full[tap : tap + tokens] * self.w_conv[tap]
        y = self.round(silu(y))
        heads = self.nk * self.dk
        qk = unit(y[:, : 2 * heads].reshape(tokens, 2 * self.nk, self.dk))
        v = y[:, 2 * heads :].reshape(tokens, self.nk, self.per_key, self.dv)
        at = self.channels + self.nv * self.dv
        z = p[:, self.channels : at].reshape(tokens, self.nv, self.dv)
        beta = sigmoid(p[:, at : at + self.nv])
        g = np.logaddexp(p[:, at + self.nv :] + self.dt_bias, np.float32(0.0))
        g *= self.rate
        run = self._single if tokens == 1 else self._block
        o, pending = run(qk, v, g, beta, state, full)
        o = self.round(o).reshape(tokens, self.nv, self.dv)
        o = rms_norm(o, self.norm, self.eps)
        o *= silu(z)
        return self.round(self.round(o).reshape(tokens, -1) @ self.w_out), pending

    def _single(self, qk: F32, v: F32, g: F32, beta: F32, state: GDNState, full: F32) -> tuple[F32, Pending]:
        nk, r = self.nk, self.per_key
        pair = qk[0].reshape(2, nk, self.dk).transpose(1, 0, 2)
        read = (pair @ state.s).reshape(nk, 2, r, self.dv)
        read *= np.exp(g).reshape(nk, 1, r, 1)
        new = v[0] - read[:, 1]
        new *= beta.reshape(nk, r, 1)
        dots = np.add.reduce(pair[:, 0] * pair[:, 1], axis=-1)
        o: F32 = dots[:, None, None] * new
        o += read[:, 0]
        o *= self.scale
        return o[None], Pending(full, pair[:, 1:2], new[:, :, None], g.reshape(nk, r, 1))

    def _block(self, qk: F32, v: F32, g: F32, beta: F32, state: GDNState, full: F32) -> tuple[F32, Pending]:
        tokens, nk, r = qk.shape[0], self.nk, self.per_key
        both: F32 = np.ascontiguousarray(qk.transpose(1, 0, 2))
        q, k = both[:nk], both[nk:]
        decay = np.ascontiguousarray(np.cumsum(g, axis=0).T.reshape(nk, r, tokens))
        grown = np.exp(decay)[..., None]
        beta = np.ascontiguousarray(beta.T.reshape(nk, r, tokens))[..., None]
        lower = self._lower[:tokens, :tokens]
        between = decay[..., :, None] - decay[..., None, :]
        np.minimum(between, 0.0, out=between)
        np.exp(between, out=between)
        between *= lower
        k_t = k.transpose(0, 2, 1)
        system = (k @ k_t)[:, None] * between
        system *= beta
        # I + strictly lower part: entries are at most 1, so plain inversion is as stable as forward substitution.
        system *= lower - self._eye[:tokens, :tokens]
        system += self._eye[:tokens, :tokens]
        reads_k = (k @ state.s).reshape(nk, tokens, r, self.dv).transpose(0, 2, 1, 3)
        reads_q = (q @ state.s).reshape(nk, tokens, r, self.dv).transpose(0, 2, 1, 3)
        want = v.transpose(1, 2, 0, 3) - grown * reads_k
        want *= beta
        new: F32 = np.linalg.inv(system) @ want
        between *= (q @ k_t)[:, None]
        o: F32 = np.matmul(between, new)
        o += grown * reads_q
        o *= self.scale
        return o.transpose(2, 0, 1, 3), Pending(full, k, new, decay)

    def commit(self, state: GDNState, pending: Pending, count: int) -> None:
        """Advance ``state`` over the first ``count`` tokens of the block."""
        if count == 0:
            return
        self.commit_conv(state, pending, count)
        self.commit_recurrent(state, pending, count)

    def commit_conv(self, state: GDNState, pending: Pending, count: int) -> None:
        """The convolution half of ``commit``."""
        state.conv = pending.full[count : count + self.taps - 1].copy()

    def commit_recurrent(self, state: GDNState, pending: Pending, count: int) -> None:
        """The recurrent half of ``commit``."""
        nk, r = self.nk, self.per_key
        end = pending.decay[..., count - 1]
        view = state.s.reshape(nk, self.dk, r, self.dv)
        view *= np.exp(end)[:, None, :, None]
        if count == 1:
            np.multiply(pending.k[:, 0, :, None], pending.new[:, :, 0].reshape(nk, 1, -1), out=self._scratch)
            state.s += self._scratch
            return
        weight = np.exp(end[..., None] - pending.decay[..., :count])
        values = (pending.new[:, :, :count] * weight[..., None]).transpose(0, 2, 1, 3).reshape(nk, count, -1)
        state.s += pending.k[:, :count].transpose(0, 2, 1) @ values
