"""The plain rules that others use, on the evidence of ours: what would they have said?

A *pair* is one prompt answered by both servers; a rule looks at a set of pairs, one test run, and fails it or not.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lossless.verdict import Kind, OutputScores, Transcript, Verdict, common_prefix

TOP_N = 5
MATCH_RATE = 0.6
GREEDY_GAP = 0.25  # nats
GAP_BUDGET = 0.01  # share of a run's tokens that may lie beyond the gap


@dataclass(frozen=True, slots=True)
class Pair:
    """``scores``: the baseline's re-scoring of the variant's output (None: it was not re-scored). ``ours``: our verdict
    on the same evidence."""

    baseline: Transcript
    variant: Transcript
    scores: OutputScores | None
    ours: Verdict

    @property
    def first(self) -> int | None:
        """Position of the first mismatch, None where the outputs agree as far as both go."""
        at = common_prefix(self.baseline.ids, self.variant.ids)
        return at if at < min(len(self.baseline.ids), len(self.variant.ids)) else None


def text_differs(pairs: Sequence[Pair]) -> bool:
    """SGLang's parity kit: the texts must be equal, prompt by prompt."""
    return any(p.baseline.text != p.variant.text for p in pairs)


def match_rate_low(pairs: Sequence[Pair]) -> bool:
    """vLLM's end-to-end tests of speculation: more than ``int(0.6 * n)`` of n outputs must be equal."""
    return sum(p.baseline.text == p.variant.text for p in pairs) <= int(MATCH_RATE * len(pairs))


def outside_top_n(pairs: Sequence[Pair]) -> bool:
    """vLLM's ``check_logprobs_close``: at the first mismatch each side's token must be among the other's N best; what
    comes after is not looked at. Both lists are the baseline's here: up to that position both servers saw the same."""
    return any(_outside(p) for p in pairs)


def _outside(pair: Pair) -> bool:
    at = pair.first
    if at is None or pair.scores is None:
        return False
    best = {c.token_id for c in pair.scores.top[at][:TOP_N]}
    return not {pair.baseline.ids[at], pair.variant.ids[at]} <= best


def gap_over_budget(pairs: Sequence[Pair]) -> bool:
    """A greedy gap of up to 0.25 nats is fine, and of the run's tokens a budget of 1% may lie beyond it."""
    beyond = sum(_beyond(p) for p in pairs)
    return beyond > math.floor(GAP_BUDGET * sum(len(p.variant.ids) for p in pairs))


def _beyond(pair: Pair) -> int:
    if pair.scores is None:
        return 0
    regrets = (pair.scores.regret(t) for t in range(len(pair.scores.ids)))
    return sum(r is not None and r > GREEDY_GAP for r in regrets)


def ours_divergent(pairs: Sequence[Pair]) -> bool:
    """This suite: one divergent output fails the run."""
    return any(p.ours.kind is Kind.DIVERGENT for p in pairs)


Rule = Callable[[Sequence[Pair]], bool]
RULES: dict[str, Rule] = {
    "ours": ours_divergent,
    "text equality": text_differs,
    "match rate over 60%": match_rate_low,
    "top-5 at first mismatch": outside_top_n,
    "greedy gap 0.25, budget 1%": gap_over_budget,
}


def upper_95(failures: int, trials: int) -> float:
    """95% upper bound of a rate: the rule of three without failures, else the exact (Clopper-Pearson) bound."""
    if not trials:
        return 1.0
    if not failures:
        return min(1.0, 3.0 / trials)
    low, high = failures / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _at_most(failures, trials, middle) > 0.05:
            low = middle
        else:
            high = middle
    return high


def _at_most(k: int, n: int, p: float) -> float:
    if p >= 1.0:
        return 0.0 if k < n else 1.0
    terms = (
        math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(p) + (n - i) * math.log1p(-p)
        for i in range(k + 1)
    )
    return math.fsum(math.exp(t) for t in terms)
