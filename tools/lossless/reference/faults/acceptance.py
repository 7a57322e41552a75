# ruff: noqa: ARG002  (a hook's arguments are there for the faults that need them)
"""Faults in deciding which draft tokens are accepted, and in what is put out of them."""

from typing import TYPE_CHECKING

from lossless.reference.faults.base import Commit, Fault, FaultSpec, register

if TYPE_CHECKING:
    from lossless.reference.generation import Generation

OFF_BY_ONE = "off by one at accept"


class AcceptUnverified(Fault):
    """Takes the first draft token of some blocks without asking the target; it is put out and kept as context."""

    def accepted(self, g: "Generation", drafts: list[int], picks: list[int], count: int) -> int:
        return max(count, 1) if self.strikes(g, g.steps) else count


class AcceptOneTooMany(Fault):
    """Takes the first draft token that the target rejected along with the accepted ones."""

    def accepted(self, g: "Generation", drafts: list[int], picks: list[int], count: int) -> int:
        return min(count + 1, len(drafts)) if self.strikes(g, g.steps) else count


class BonusDropped(Fault):
    """Does not put out the target's own token after a run of accepted drafts, though it goes on from it."""

    def shown(self, g: "Generation", tokens: list[int], accepted: int) -> list[int]:
        return tokens[:-1] if accepted and self.strikes(g, g.steps) else tokens


class BonusDoubled(Fault):
    """Puts out the target's own token after a run of accepted drafts twice."""

    def shown(self, g: "Generation", tokens: list[int], accepted: int) -> list[int]:
        return [*tokens, tokens[-1]] if accepted and self.strikes(g, g.steps) else tokens


class CacheLagsByOne(Fault):
    """Advances cache and position by one token too few after a run of accepted drafts."""

    def commit(self, g: "Generation", width: int, count: int) -> Commit:
        moved = max(1, count - 1) if self.strikes(g, g.steps) else count
        return Commit(kv=moved, recurrent=count, conv=count, position=moved)


class MaskTokenDropped(Fault):
    """Takes a legitimate token for a leftover mask of the draft's and drops it. ``rate`` is the token id."""

    def shown(self, g: "Generation", tokens: list[int], accepted: int) -> list[int]:
        return [token for token in tokens if token != int(self.rate)]


class SpeculationOff(Fault):
    """Never drafts, and says nothing about it."""

    def speculates(self, g: "Generation") -> bool:
        return False


class RandomDraft(Fault):
    """Proposes what an untrained draft would."""

    def drafts(self, g: "Generation", drafts: list[int]) -> list[int]:
        return self.noise(g, len(drafts))

    def noise(self, g: "Generation", count: int) -> list[int]:
        """Tokens that have nothing to do with the text."""
        size = g.models.target.config.vocab_size
        return [(self.seed + 7919 * (g.steps + 1) + 104_729 * (i + 1)) % size for i in range(count)]


class AcceptLengthHalved(RandomDraft):
    """Proposes a good first half and an untrained second half."""

    def drafts(self, g: "Generation", drafts: list[int]) -> list[int]:
        good = len(drafts) // 2
        return drafts[:good] + self.noise(g, len(drafts) - good)


SHARE = "the share of blocks"
for spec in (
    FaultSpec(
        "accept-unverified",
        "first draft token unverified",
        "In a share of the blocks the first draft token is accepted without verification.",
        AcceptUnverified,
        rate=0.05,
        rate_means=SHARE,
    ),
    FaultSpec(
        "accept-one-too-many",
        OFF_BY_ONE,
        "The first rejected draft token is accepted too.",
        AcceptOneTooMany,
        rate_means=SHARE,
    ),
    FaultSpec(
        "bonus-dropped",
        OFF_BY_ONE,
        "The target's own token after accepted drafts is not put out.",
        BonusDropped,
        rate_means=SHARE,
    ),
    FaultSpec(
        "bonus-doubled",
        OFF_BY_ONE,
        "The target's own token after accepted drafts is put out twice.",
        BonusDoubled,
        rate_means=SHARE,
    ),
    FaultSpec(
        "cache-lags-by-one",
        OFF_BY_ONE,
        "Cache and position advance by one token too few after accepted drafts.",
        CacheLagsByOne,
        rate_means=SHARE,
    ),
    FaultSpec(
        "mask-token-dropped",
        "mask token emitted for real",
        "A token equal to the draft's mask token is not put out.",
        MaskTokenDropped,
        rate=5,
        rate_means="the id of the dropped token",
    ),
    FaultSpec(
        "speculation-off",
        "speculation silently off",
        "No block is ever drafted: right output, no gain.",
        SpeculationOff,
    ),
    FaultSpec(
        "random-draft",
        "speculation silently off",
        "The draft is untrained: right output, accept length 1.",
        RandomDraft,
    ),
    FaultSpec(
        "accept-length-halved",
        "accept length falls",
        "The second half of each draft is noise: right output, less gain.",
        AcceptLengthHalved,
    ),
):
    register(spec)
