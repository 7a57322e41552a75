"""The hybrid target model: Gated DeltaNet and gated attention layers, run incrementally.

``extend`` computes a block of tokens after the committed state, ``commit`` makes its first n tokens permanent. Prefill,
single-token decoding and the verification of draft tokens are all this one path, in blocks of different size.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lossless.errors import UsageError
from lossless.reference.attention import MLP, GatedAttention
from lossless.reference.config import ModelFiles, TargetConfig, read_target
from lossless.reference.gdn import BLOCK, GatedDeltaNet, Pending
from lossless.reference.numerics import LogitNoise
from lossless.reference.ops import F32, ROUNDINGS, Rounding, rms_norm, rope_tables
from lossless.reference.state import GDNState, KVCache, LayerState, TargetState
from lossless.reference.weights import Weights

ROPE_SLACK = 64
"""Positions beyond the context that a last draft block may touch before its tokens are cut off."""


@dataclass(slots=True)
class Block:
    """One computed block of T tokens, not yet committed.

    ``hidden`` [T, hidden] after the final norm; ``aux`` [T, features * hidden] or None: residual streams after the
    requested layers; ``pending``: one entry a Gated DeltaNet layer.
    """

    hidden: F32
    aux: F32 | None
    pending: list[Pending]

    @property
    def tokens(self) -> int:
        """T"""
        return len(self.hidden)


class Layer:
    """Pre-norm mixer and pre-norm MLP with residuals."""

    def __init__(self, c: TargetConfig, kind: str, w: Weights, rounding: Rounding) -> None:
        self.round, self.eps = rounding, c.rms_norm_eps
        self.mixer: GatedAttention | GatedDeltaNet = (
            GatedAttention(c, w.below("self_attn"), rounding)
            if kind == "full_attention"
            else GatedDeltaNet(c, w.below("linear_attn"), rounding)
        )
        self.mlp = MLP(w.below("mlp"), rounding)
        self.before = 1.0 + w.vector("input_layernorm.weight")
        self.between = 1.0 + w.vector("post_attention_layernorm.weight")

    def extend(self, x: F32, state: LayerState, cos: F32, sin: F32) -> tuple[F32, Pending | None]:
        """x [T, hidden] through the layer; the second value is what a Gated DeltaNet layer must commit."""
        h = self.round(rms_norm(x, self.before, self.eps))
        pending = None
        if isinstance(self.mixer, GatedAttention):
            assert isinstance(state, KVCache)
            o = self.mixer.extend(h, state, cos, sin)
        else:
            assert isinstance(state, GDNState)
            o, pending = self.mixer.extend(h, state)
        x = self.round(x + o)
        h = self.round(rms_norm(x, self.between, self.eps))
        return self.round(x + self.mlp(h)), pending


class Target:
    """The target model with its embedding and output head.

    Raises:
        UsageError: from ``load``, for missing or unfit files, and for an unknown ``dtype``.
    """

    def __init__(self, files: ModelFiles, weights: Weights, dtype: str, noise: LogitNoise | None = None) -> None:
        if dtype not in ROUNDINGS:
            raise UsageError(f"unknown dtype {dtype!r}: choose one of {', '.join(ROUNDINGS)}")
        c = self.config = files.config
        self.files, self.dtype, self.noise = files, dtype, noise
        self.round = ROUNDINGS[dtype]
        model = weights.below("model.language_model" if weights.has("model.language_model") else "model")
        self.embedding = model.vector("embed_tokens.weight")
        self.layers = [Layer(c, kind, model.below(f"layers.{i}"), self.round) for i, kind in enumerate(c.layer_types)]
        self.gdn_layers = [layer.mixer for layer in self.layers if isinstance(layer.mixer, GatedDeltaNet)]
        self.norm = 1.0 + model.vector("norm.weight")
        head = self.embedding if c.tie_word_embeddings else weights.vector("lm_head.weight")
        self.head = np.ascontiguousarray(head.T)
        self.cos, self.sin = rope_tables(
            c.max_position_embeddings + ROPE_SLACK, c.rotary_dim, c.rope_parameters.rope_theta
        )

    @classmethod
    def load(
        cls, folder: Path, dtype: str, weights: Weights | None = None, noise: LogitNoise | None = None
    ) -> "Target":
        """Read a target folder in Hugging Face layout."""
        return cls(read_target(folder), weights or Weights.load(folder), dtype, noise)

    def new_state(self, capacity: int) -> TargetState:
        """Empty layer states with room for ``capacity`` tokens."""
        return TargetState(
            [
                layer.mixer.new_state(capacity) if isinstance(layer.mixer, GatedAttention) else layer.mixer.new_state()
                for layer in self.layers
            ]
        )

    def extend(
        self, ids: list[int], state: TargetState, aux_layers: tuple[int, ...] = (), rope_shift: int = 0
    ) -> Block:
        """Compute a block of up to ``gdn.BLOCK`` tokens after ``state``, without committing it.

        Args:
            ids: token ids, in the vocabulary.
            state: the committed past.
            aux_layers: layers after which the residual stream is kept (the features of a DFlash draft).
            rope_shift: added to the rotary positions; 0 except under a planted fault.
        """
        if not 0 < len(ids) <= BLOCK:
            raise ValueError(f"a block holds 1 to {BLOCK} tokens, got {len(ids)}")
        start = state.length + rope_shift
        cos, sin = self.cos[start : start + len(ids)], self.sin[start : start + len(ids)]
        x = self.embedding[ids]
        aux, pending = [], []
        for i, (layer, layer_state) in enumerate(zip(self.layers, state.layers, strict=True)):
            x, p = layer.extend(x, layer_state, cos, sin)
            if p is not None:
                pending.append(p)
            if i in aux_layers:
                aux.append(x)
        hidden = self.round(rms_norm(x, self.norm, self.config.rms_norm_eps))
        return Block(hidden, np.concatenate(aux, axis=1) if aux else None, pending)

    def commit(self, state: TargetState, block: Block, count: int) -> None:
        """Make the first ``count`` tokens of ``block`` permanent; the others leave no trace."""
        for mixer, layer_state, pending in zip(self.gdn_layers, state.gdn, block.pending, strict=True):
            mixer.commit(layer_state, pending, count)
        for cache in state.kv:
            cache.length += count
        state.length += count

    def logits(self, hidden: F32) -> F32:
        """[T, hidden] to [T, vocabulary]."""
        logits = self.round(hidden @ self.head)
        return logits if self.noise is None else self.noise.add(logits, hidden)
