"""The result of judging one prompt of one pair: frozen, and carrying every number a reader needs."""

from dataclasses import dataclass

from lossless.verdict.budget import Budget
from lossless.verdict.kinds import Kind, Reason
from lossless.verdict.noise import Epsilon
from lossless.verdict.scores import Regret


@dataclass(frozen=True, slots=True)
class TokenAt:
    """One token at one position; ``logprob`` in nats under the baseline given the variant's prefix, if known."""

    token_id: int
    logprob: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One aligned hunk and what the baseline thinks of it.

    ``baseline_token`` / ``variant_token`` are the tokens where the hunk starts (None: that side has no token there).
    ``argmax`` is the baseline's best token at that point given the variant's prefix, ``gap`` its distance to the
    variant's token in nats, ``rank`` the variant's token's place (1 = argmax), ``ties`` how many candidates share the
    best logprob exactly. ``candidates`` is the top list there. ``reconverged_for`` counts the equal tokens after the
    hunk, ``to_end`` says whether they reach the end of both outputs.
    """

    baseline_start: int
    baseline_end: int
    variant_start: int
    variant_end: int
    baseline_token: TokenAt | None
    variant_token: TokenAt | None
    argmax: TokenAt | None
    gap: float | None
    top2_gap: float | None
    rank: int | None
    ties: int
    candidates: tuple[TokenAt, ...]
    reconverged_for: int
    to_end: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """One verdict for one prompt in a pair.

    ``detail`` is one sentence for a reader. ``reconverged`` is None where nothing differs; False means forked.
    """

    kind: Kind
    reason: Reason | None
    detail: str
    baseline_tokens: int
    variant_tokens: int
    differences: tuple[Difference, ...] = ()
    reconverged: bool | None = None
    regret: Regret | None = None
    budget: Budget | None = None
    epsilon: Epsilon | None = None
    notes: tuple[str, ...] = ()

    def passed(self, *, strict: bool = False) -> bool:
        """Whether losslessness is shown. Strict: a fork is not good enough."""
        if self.kind is Kind.IDENTICAL:
            return True
        return self.kind is Kind.NEAR_TIE and not (strict and self.reconverged is False)

    @property
    def label(self) -> str:
        """The kind, with what matters about it: ``near-tie (forked)``, ``divergent (gap)``."""
        if self.kind is Kind.NEAR_TIE:
            return f"{self.kind} ({'reconverged' if self.reconverged else 'forked'})"
        return str(self.kind) if self.reason is None else f"{self.kind} ({self.reason})"
