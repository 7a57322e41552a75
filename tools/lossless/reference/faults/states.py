# ruff: noqa: ARG002  (a hook's arguments are there for the faults that need them)
"""Faults in the memory of a sequence: keys and values, recurrent and convolution state, positions."""

from typing import TYPE_CHECKING

from lossless.reference.faults.base import Commit, Fault, FaultSpec, register
from lossless.reference.prefix_cache import copies
from lossless.reference.state import GDNState
from lossless.reference.target import ROPE_SLACK

if TYPE_CHECKING:
    from lossless.reference.generation import Generation

ROLLBACK = "recurrent state rollback"


def _lose(states: list[GDNState]) -> None:
    for state in states:
        state.s[:] = 0.0
        state.conv[:] = 0.0


def _overwrite(states: list[GDNState], source: list[GDNState]) -> None:
    for state, other in zip(states, copies(source), strict=True):
        state.s, state.conv = other.s, other.conv


class KvNotRolledBack(Fault):
    """Leaves the keys and values of rejected tokens in the cache, where later tokens attend to them."""

    def commit(self, g: "Generation", width: int, count: int) -> Commit:
        kept = width if self.strikes(g, g.steps) else count
        return Commit(kv=kept, recurrent=count, conv=count, position=count)


class RecurrentNotRolledBack(Fault):
    """Leaves rejected tokens in the recurrent state."""

    def commit(self, g: "Generation", width: int, count: int) -> Commit:
        kept = width if self.strikes(g, g.steps) else count
        return Commit(kv=count, recurrent=kept, conv=count, position=count)


class ConvNotRolledBack(Fault):
    """Leaves rejected tokens in the convolution state."""

    def commit(self, g: "Generation", width: int, count: int) -> Commit:
        kept = width if self.strikes(g, g.steps) else count
        return Commit(kv=count, recurrent=count, conv=kept, position=count)


class StateFromWrongSlot(Fault):
    """Takes the recurrent state of the block's slot before the right one after a run of accepted drafts."""

    def commit(self, g: "Generation", width: int, count: int) -> Commit:
        slot = max(1, count - 1) if self.strikes(g, g.steps) else count
        return Commit(kv=count, recurrent=slot, conv=slot, position=count)


class ShortPromptStateLost(Fault):
    """Loses the recurrent states of prompts no longer than ``rate`` tokens: they went through the verify graph."""

    def prefilled(self, g: "Generation", start: int, end: int) -> None:
        if end == len(g.ids) <= self.rate:
            _lose(g.state.gdn)


class ChunkStateLost(Fault):
    """Loses the recurrent states between two prefill chunks."""

    def prefilled(self, g: "Generation", start: int, end: int) -> None:
        if end < len(g.ids) and (end - g.cached) % g.models.chunk == 0:
            _lose(g.state.gdn)


class BoundaryStateLost(Fault):
    """Loses the recurrent states when a decoding step crosses a multiple of ``rate`` tokens."""

    def committed(self, g: "Generation", before: int) -> None:
        if before // int(self.rate) != g.state.length // int(self.rate):
            _lose(g.state.gdn)


class _Remembers(Fault):
    """Keeps the recurrent states of the request that ended last."""

    left: list[GDNState] | None = None

    def finished(self, g: "Generation") -> None:
        self.left = copies(g.state.gdn)


class StaleStateOnHit(_Remembers):
    """On a prefix-cache hit, resumes from the recurrent states of another request: right keys, wrong state."""

    def started(self, g: "Generation") -> None:
        if g.cached and self.left is not None:
            _overwrite(g.state.gdn, self.left)


class StateLeaks(_Remembers):
    """Starts a request from the recurrent states that the one before left in the slot."""

    def started(self, g: "Generation") -> None:
        if not g.cached and self.left is not None:
            _overwrite(g.state.gdn, self.left)


class BatchMixed(Fault):
    """Reads another request's recurrent states while ``rate`` or more are being decoded."""

    def committed(self, g: "Generation", before: int) -> None:
        decoding = [peer for peer in g.peers if peer.steps and peer.finish is None]
        if len(decoding) >= self.rate and g in decoding:
            other = decoding[(decoding.index(g) + 1) % len(decoding)]
            _overwrite(g.state.gdn[:1], other.state.gdn[:1])


class RopeOffByOne(Fault):
    """Counts the position once too often for each run of accepted drafts, and rotates by that count."""

    def rope_shift(self, g: "Generation") -> int:
        drift = sum(g.tally.histogram[1:])
        return min(drift, ROPE_SLACK // 2)  # the tables end not far behind the context


class NotRepeatable(Fault):
    """Answers a prompt differently every second time: what an unstable kernel does to a baseline."""

    def __init__(self, spec: FaultSpec | None = None, rate: float = 1.0, seed: int = 0) -> None:
        super().__init__(spec, rate, seed)
        self._asked: dict[tuple[int, ...], int] = {}

    def prefilled(self, g: "Generation", start: int, end: int) -> None:
        if end < len(g.ids):
            return
        times = self._asked[g.request.ids] = self._asked.get(g.request.ids, 0) + 1
        if times % 2 == 0:
            for state in g.state.gdn:
                state.s *= 1.0 + self.rate


SHARE = "the share of blocks"
for spec in (
    FaultSpec(
        "kv-not-rolled-back",
        "KV rollback",
        "Rejected tokens stay in the KV cache and are attended to.",
        KvNotRolledBack,
        rate_means=SHARE,
    ),
    FaultSpec(
        "recurrent-not-rolled-back",
        ROLLBACK,
        "Rejected tokens stay in the recurrent state.",
        RecurrentNotRolledBack,
        rate_means=SHARE,
    ),
    FaultSpec(
        "conv-not-rolled-back",
        ROLLBACK,
        "Rejected tokens stay in the convolution state.",
        ConvNotRolledBack,
        rate_means=SHARE,
    ),
    FaultSpec(
        "state-from-wrong-slot",
        ROLLBACK,
        "After accepted drafts the recurrent state is taken one slot too early.",
        StateFromWrongSlot,
        rate_means=SHARE,
    ),
    FaultSpec(
        "boundary-state-lost",
        ROLLBACK,
        "The recurrent state is lost where decoding crosses a 256-token boundary.",
        BoundaryStateLost,
        rate=256,
        rate_means="the boundary's multiple in tokens",
        needs="any",
    ),
    FaultSpec(
        "short-prompt-state-lost",
        "prompt as short as the draft",
        "Prompts of 1 to K tokens lose their recurrent state.",
        ShortPromptStateLost,
        rate=8,
        rate_means="the longest such prompt K in tokens",
        needs="any",
    ),
    FaultSpec(
        "chunk-state-lost",
        "chunked prefill",
        "The recurrent state is lost between two prefill chunks.",
        ChunkStateLost,
        needs="a prompt longer than the prefill chunk",
    ),
    FaultSpec(
        "stale-state-on-hit",
        "prefix-cache hit",
        "A prefix-cache hit resumes from another request's recurrent state.",
        StaleStateOnHit,
        needs="a prefix-cache hit",
    ),
    FaultSpec(
        "state-leaks",
        "order dependence",
        "A request starts from the recurrent state that the one before left behind.",
        StateLeaks,
        needs="any",
    ),
    FaultSpec(
        "batch-mixed",
        "batch mixing",
        "With two or more requests in flight one reads another's recurrent state.",
        BatchMixed,
        rate=2,
        rate_means="the least number of requests in flight",
        needs="several requests in flight",
    ),
    FaultSpec(
        "rope-off-by-one",
        "off by one at accept",
        "Rotary positions are one too high after each run of accepted draft tokens.",
        RopeOffByOne,
    ),
    FaultSpec(
        "not-repeatable",
        "not repeatable",
        "Every second time a prompt is asked its state is scaled up a little.",
        NotRepeatable,
        rate=0.2,
        rate_means="how much larger the state gets, as a share",
        needs="any",
    ),
):
    register(spec)
