"""DFlash2: a draft model that fills a whole block of mask tokens at once, and a candidate selector that walks a path.

The draft attends to keys and values computed from the target's own features (residual streams after a few layers) and,
inside the block, in both directions; two input-dependent convolutions per layer mix neighboring block positions.
"""

import numpy as np

from lossless.errors import UsageError
from lossless.reference.attention import MLP, attend
from lossless.reference.config import DraftConfig
from lossless.reference.drafting import DraftState
from lossless.reference.ops import F32, Rounding, rms_norm, rope_tables, rotate_
from lossless.reference.state import KVCache
from lossless.reference.target import ROPE_SLACK, Block, Target
from lossless.reference.weights import Weights


class DflashState(DraftState):
    """Context keys and values of the draft layers."""

    def __init__(self, layers: list[KVCache]) -> None:
        self.layers = layers

    def caches(self) -> list[KVCache]:
        """One cache a draft layer."""
        return self.layers


class BlockConv:
    """Input-dependent depthwise convolution inside one block; its two sides share one projection."""

    def __init__(self, taps: int, group: int, w: Weights, rounding: Rounding) -> None:
        self.taps, self.group, self.round = taps, group, rounding
        base = w.vector("base_kernel")
        self.groups = base.shape[-1] // group
        self.base = base.reshape(2, taps, self.groups, group)
        self.w = w.matrix("kernel_projection")

    def kernels(self, x: F32) -> F32:
        """x [L, hidden] to kernel offsets [L, 2, taps, groups]."""
        return self.round(x @ self.w).reshape(x.shape[0], 2, self.taps, self.groups)

    def apply(self, x: F32, delta: F32, side: int) -> F32:
        """Convolve x [L, hidden] over the block with the kernels of one side."""
        rows = x.shape[0]
        blocks = x.reshape(rows, self.groups, self.group)
        kernel = self.base[side] + delta[:, side, :, :, None]
        y = kernel[:, 0] * blocks
        for tap in range(1, min(self.taps, rows)):
            y[tap:] += kernel[tap:, tap] * blocks[:-tap]
        return self.round(y.reshape(rows, -1))


class DraftLayer:
    """One draft layer: convolution-wrapped attention and convolution-wrapped MLP."""

    def __init__(self, c: DraftConfig, w: Weights, rounding: Rounding) -> None:
        self.round, self.eps = rounding, c.rms_norm_eps
        self.nh, self.nkv, self.d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        taps, group = c.dflash_config.conv_kernel_size, c.dflash_config.conv_group_size
        self.before, self.between = w.vector("input_layernorm.weight"), w.vector("post_attention_layernorm.weight")
        self.attention_conv = BlockConv(taps, group, w.below("attention_conv"), rounding)
        self.mlp_conv = BlockConv(taps, group, w.below("mlp_conv"), rounding)
        a = w.below("self_attn")
        self.w_kv, self.w_q, self.w_out = a.matrix("k_proj", "v_proj"), a.matrix("q_proj"), a.matrix("o_proj")
        self.q_norm, self.k_norm = a.vector("q_norm.weight"), a.vector("k_norm.weight")
        self.mlp = MLP(w.below("mlp"), rounding)
        self.scale = np.float32(self.d**-0.5)

    def kv(self, x: F32, cos: F32, sin: F32) -> tuple[F32, F32]:
        """Keys and values [kv heads, T, d] of x [T, hidden]."""
        p = self.round(x @ self.w_kv).reshape(x.shape[0], 2 * self.nkv, self.d)
        k = self.round(rms_norm(p[:, : self.nkv], self.k_norm, self.eps))
        k = self.round(rotate_(k, cos, sin))
        return k.transpose(1, 0, 2), p[:, self.nkv :].transpose(1, 0, 2)

    def _attention(self, x: F32, context: KVCache, cos: F32, sin: F32) -> F32:
        q = self.round(x @ self.w_q).reshape(x.shape[0], self.nh, self.d)
        q = self.round(rms_norm(q, self.q_norm, self.eps))
        q = self.round(rotate_(q, cos, sin))
        end = context.put(*self.kv(x, cos, sin))
        o = attend(q, context.k[:, :end], context.v[:, :end], self.scale, causal=False)
        return self.round(self.round(o) @ self.w_out)

    def extend(self, x: F32, context: KVCache, cos: F32, sin: F32) -> F32:
        """One block x [L, hidden] after the context."""
        h = self.round(rms_norm(x, self.before, self.eps))
        kernels = self.attention_conv.kernels(h)
        h = self._attention(self.attention_conv.apply(h, kernels, 0), context, cos, sin)
        x = self.round(x + self.attention_conv.apply(h, kernels, 1))
        h = self.round(rms_norm(x, self.between, self.eps))
        kernels = self.mlp_conv.kernels(h)
        h = self.mlp(self.mlp_conv.apply(h, kernels, 0))
        return self.round(x + self.mlp_conv.apply(h, kernels, 1))


class Dflash:
    """Drafts a block of ``width - 1`` tokens a verification.

    Raises:
        UsageError: ``width`` outside 2 .. the draft's own block size.
    """

    lag = 0

    def __init__(self, target: Target, config: DraftConfig, weights: Weights, width: int | None = None) -> None:
        d = config.dflash_config
        self.width = d.block_size if width is None else width
        if not 2 <= self.width <= d.block_size:
            raise UsageError(
                f"--speculative-num-draft-tokens {self.width} does not fit this draft: its block size is "
                f"{d.block_size}, so 2 to {d.block_size} are possible"
            )
        self.target, self.config = target, config
        self.round, self.eps = target.round, config.rms_norm_eps
        self.aux_layers = tuple(d.target_layer_ids)
        self.mask, self.top_k = d.mask_token_id, d.selector_top_k
        self.fc = weights.matrix("fc")
        self.hidden_norm, self.norm = weights.vector("hidden_norm.weight"), weights.vector("norm.weight")
        self.layers = [
            DraftLayer(config, weights.below(f"layers.{i}"), self.round) for i in range(config.num_hidden_layers)
        ]
        selector = weights.below("candidate_selector")
        self.before, self.after = selector.vector("predecessor_codebook"), selector.vector("successor_codebook")
        self.edge = selector.matrix("hidden_projection")
        self.cos, self.sin = rope_tables(
            config.max_position_embeddings + ROPE_SLACK, config.head_dim, config.rope_parameters.rope_theta
        )

    def new_state(self, capacity: int) -> DflashState:
        """An empty state with room for ``capacity`` tokens."""
        c = self.config
        return DflashState([KVCache(c.num_key_value_heads, capacity, c.head_dim) for _ in self.layers])

    def feed(self, state: DraftState, block: Block, count: int, following: list[int]) -> None:
        """Turn the target's features of ``count`` committed tokens into context keys and values."""
        del following  # this draft reads features only
        assert isinstance(state, DflashState)
        assert block.aux is not None
        h = self.round(rms_norm(self.round(block.aux[:count] @ self.fc), self.hidden_norm, self.eps))
        start = state.layers[0].length
        cos, sin = self.cos[start : start + count], self.sin[start : start + count]
        for layer, cache in zip(self.layers, state.layers, strict=True):
            cache.put(*layer.kv(h, cos, sin))
            cache.length += count

    def propose(self, state: DraftState, last: int, position: int) -> list[int]:
        """Fill the block ``[last, mask, mask, ...]`` at ``position`` and walk the best path through its candidates."""
        assert isinstance(state, DflashState)
        t = self.target
        x = t.embedding[[last] + [self.mask] * (self.width - 1)]
        cos, sin = self.cos[position : position + self.width], self.sin[position : position + self.width]
        for layer, cache in zip(self.layers, state.layers, strict=True):
            x = layer.extend(x, cache, cos, sin)
        hidden = self.round(rms_norm(x, self.norm, self.eps))[1:]
        logits = t.logits(hidden)
        near = np.argpartition(logits, -self.top_k, axis=-1)[:, -self.top_k :]
        unary = np.take_along_axis(logits, near, axis=-1)
        edges = self.round(hidden @ self.edge)
        path, previous = [], last
        for row in range(len(hidden)):
            query = self.round(self.before[previous] * edges[row])
            score = unary[row] + self.round(self.after[near[row]] @ query)
            previous = int(near[row, int(score.argmax())])
            path.append(previous)
        return path
