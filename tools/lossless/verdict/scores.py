"""The baseline's opinion of an output: re-scored logprobs, regret and top-2 gap for every position.

Scores come from a prefill of prompt + output (teacher forcing), so position t is judged given the output's own first
t tokens. All values are natural-log probabilities; differences are in nats.
"""

import math
from dataclasses import dataclass

TOLERANCE = 1e-3  # nats; two float32 sums of one logprob differ by about 1e-5, values of another token by far more
PROBABILITY_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class Candidate:
    """One token the baseline could have chosen at a position, with its logprob in nats."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class OutputScores:
    """Scores of one output of n tokens.

    ``logprobs[t]`` belongs to the emitted token ``ids[t]``; None where the server sent null or not a number.
    ``top[t]`` holds the best candidates, best first (NaN where the server sent null); at an exact tie their order
    means nothing. A position whose values contradict each other (:meth:`sound`) counts as missing evidence: servers
    have sent logprobs that are all zero or belong to another position (sglang #17349, #10660).
    """

    ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    top: tuple[tuple[Candidate, ...], ...]

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.logprobs) == len(self.top):
            raise ValueError(
                f"scores are not aligned: {len(self.ids)} ids, {len(self.logprobs)} logprobs, {len(self.top)} top lists"
            )

    def regret(self, t: int) -> float | None:
        """logprob(argmax) - logprob(emitted token) at t, in nats, never below 0; None where evidence is missing."""
        logprob, best = self.logprobs[t], self.best(t)
        if logprob is None or best is None or not self.sound(t):
            return None
        return max(0.0, best - logprob)

    def sound(self, t: int) -> bool:
        """Whether the values at t can be logprobs of one distribution: numbers, together at most 1 in probability,
        none above the best, and the emitted token's the same in both places."""
        logprob, values = self.logprobs[t], [c.logprob for c in self.top[t]]
        if logprob is None or not values or any(math.isnan(v) for v in (logprob, *values)):
            return False
        best = max(values)
        if not -math.inf < best <= TOLERANCE or logprob > best + TOLERANCE:
            return False
        if math.fsum(map(math.exp, values)) > 1 + PROBABILITY_TOLERANCE:
            return False
        same = next((c.logprob for c in self.top[t] if c.token_id == self.ids[t]), logprob)
        return same == logprob or abs(same - logprob) <= TOLERANCE

    def best(self, t: int) -> float | None:
        """Logprob of the argmax at t. Values decide, not the order of the list."""
        values = [c.logprob for c in self.top[t] if not math.isnan(c.logprob)]
        return max(values) if values else None

    def top2_gap(self, t: int) -> float | None:
        """logprob(top-1) - logprob(top-2) at t, in nats."""
        values = sorted((c.logprob for c in self.top[t] if not math.isnan(c.logprob)), reverse=True)
        return values[0] - values[1] if len(values) > 1 else None

    def logprob_of(self, t: int, token_id: int) -> float | None:
        """Logprob of a token at t, if it is the emitted one or among the top candidates."""
        if self.ids[t] == token_id:
            return self.logprobs[t]
        return next((c.logprob for c in self.top[t] if c.token_id == token_id), None)

    def rank(self, t: int, token_id: int) -> int | None:
        """1 for the argmax (ties included), 2 for the second choice, ...; None outside the top list."""
        logprob = self.logprob_of(t, token_id)
        if logprob is None or token_id not in {c.token_id for c in self.top[t]}:
            return None
        return 1 + len({c.token_id for c in self.top[t] if c.logprob > logprob})


@dataclass(frozen=True, slots=True)
class Regret:
    """Regret over one output: ``total`` and ``largest`` in nats, ``count`` of tokens above zero, of ``tokens``."""

    tokens: int
    count: int
    total: float
    largest: float
    largest_at: int | None


def summarize(scores: OutputScores) -> Regret | None:
    """Regret of a whole output, or None when a single position lacks evidence."""
    values: list[float] = []
    for t in range(len(scores.ids)):
        value = scores.regret(t)
        if value is None:
            return None
        values.append(value)
    largest = max(values, default=0.0)
    return Regret(
        tokens=len(values),
        count=sum(v > 0 for v in values),
        total=math.fsum(values),
        largest=largest,
        largest_at=values.index(largest) if largest > 0 else None,
    )
