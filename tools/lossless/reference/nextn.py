"""The NEXTN (MTP) head in the target's own checkpoint, and drafting with it.

Position i fuses the target's hidden state h_i with the embedding of token i+1 and predicts token i+2; later steps of a
chain take the head's own output for h. SGLang resolves ``NEXTN`` to its EAGLE worker, with the same shapes.
"""

import numpy as np

from lossless.errors import UsageError
from lossless.reference.attention import GatedAttention
from lossless.reference.drafting import DraftState
from lossless.reference.ops import F32, rms_norm
from lossless.reference.state import KVCache
from lossless.reference.target import Block, Layer, Target
from lossless.reference.weights import Weights


class NextnState(DraftState):
    """The head's own key-value cache and the output that the next chain starts from."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self.last: F32 | None = None

    def caches(self) -> list[KVCache]:
        """The head's one cache."""
        return [self.cache]


class Nextn:
    """Drafts ``steps`` tokens a verification with the checkpoint's MTP layer."""

    aux_layers: tuple[int, ...] = ()
    lag = 1

    def __init__(self, target: Target, weights: Weights, steps: int) -> None:
        if not weights.has("mtp"):
            raise UsageError("this checkpoint has no NEXTN head (no mtp.* tensors)")
        w = weights.below("mtp")
        self.target, self.round, self.eps = target, target.round, target.config.rms_norm_eps
        self.width = steps + 1
        self.fc = w.matrix("fc")
        self.norm_embedding = 1.0 + w.vector("pre_fc_norm_embedding.weight")
        self.norm_hidden = 1.0 + w.vector("pre_fc_norm_hidden.weight")
        self.layer = Layer(target.config, "full_attention", w.below("layers.0"), target.round)
        self.norm = 1.0 + w.vector("norm.weight")

    def new_state(self, capacity: int) -> NextnState:
        """An empty state with room for ``capacity`` tokens."""
        assert isinstance(self.layer.mixer, GatedAttention)
        return NextnState(self.layer.mixer.new_state(capacity))

    def _extend(self, ids: list[int], hidden: F32, state: NextnState) -> F32:
        start, t = state.cache.length, self.target
        cos, sin = t.cos[start : start + len(ids)], t.sin[start : start + len(ids)]
        pair = (
            self.round(rms_norm(t.embedding[ids], self.norm_embedding, self.eps)),
            self.round(rms_norm(hidden, self.norm_hidden, self.eps)),
        )
        x = self.round(np.concatenate(pair, axis=1) @ self.fc)
        x, _ = self.layer.extend(x, state.cache, cos, sin)
        state.cache.length += len(ids)
        return self.round(rms_norm(x, self.norm, self.eps))

    def feed(self, state: DraftState, block: Block, count: int, following: list[int]) -> None:
        """Take in ``count`` committed tokens of ``block``; ``following[j]`` is the token after the j-th of them."""
        assert isinstance(state, NextnState)
        state.last = self._extend(following, block.hidden[:count], state)[-1:]

    def propose(self, state: DraftState, last: int, position: int) -> list[int]:
        """Draft ``width - 1`` tokens to follow ``last``, the newest known token, at ``position``."""
        del last, position  # its embedding is in state.last already
        assert isinstance(state, NextnState)
        assert state.last is not None
        h, drafts, committed = state.last, [], state.cache.length
        while True:
            drafts.append(int(self.target.logits(h)[0].argmax()))
            if len(drafts) == self.width - 1:
                break
            h = self._extend(drafts[-1:], h, state)
        state.cache.length = committed  # the chain's own keys are only guesses
        return drafts
