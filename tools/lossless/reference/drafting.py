"""What the engine needs of a draft model."""

from typing import Protocol

from lossless.reference.state import KVCache
from lossless.reference.target import Block


class DraftState:
    """A draft model's memory of one sequence."""

    def caches(self) -> list[KVCache]:
        """Its key-value caches, one slot a token, so that the prefix cache can keep and restore them."""
        raise NotImplementedError


class Drafter(Protocol):
    """A draft model: it is fed what the target committed, and proposes what may come next."""

    width: int
    """Tokens in one verified block: the newest known token and the drafts after it."""
    aux_layers: tuple[int, ...]
    """Target layers whose residual stream it wants to be fed."""
    lag: int
    """1 if its memory of a token depends on the token after it (NEXTN keys are token pairs), else 0."""

    def new_state(self, capacity: int) -> DraftState:
        """An empty state with room for ``capacity`` tokens."""

    def feed(self, state: DraftState, block: Block, count: int, following: list[int]) -> None:
        """Take in ``count`` committed tokens of ``block``; ``following[j]`` is the token after the j-th of them."""

    def propose(self, state: DraftState, last: int, position: int) -> list[int]:
        """``width - 1`` tokens that may follow ``last``, the newest known token, which stands at ``position``."""
