"""How many non-argmax tokens an output may hold although each is within epsilon.

A lossy server can hide below epsilon by choosing the second token wherever the two are close. An honest one is off the
argmax only as often as rounding makes it, and the baseline's own output shows how often that is. So the allowance is a
Poisson bound around the baseline's own rate.
"""

import math
from dataclasses import dataclass

from lossless.verdict.scores import Regret

MINIMUM_RATE = 0.005  # share of tokens; the recorded servers had 0.0004 to 0.0017
SIGMAS = 4.0
SLACK = 2.0


@dataclass(frozen=True, slots=True)
class Budget:
    """What one output of ``tokens`` tokens may spend: ``count`` of tokens off the argmax, ``total`` regret in nats."""

    tokens: int
    count: int
    total: float

    def excess(self, regret: Regret) -> str | None:
        """What was overspent, in words, or None."""
        if regret.count > self.count:
            return (
                f"{regret.count} of {regret.tokens} tokens are not the baseline's argmax, "
                f"at most {self.count} are explained by rounding"
            )
        if regret.total > self.total:
            return f"the regrets add up to {regret.total:.3g} nats, at most {self.total:.3g} are explained by rounding"
        return None


def allow(tokens: int, *, epsilon: float, own_rate: float) -> Budget:
    """Budget of an output of ``tokens`` tokens where the baseline's own off-argmax rate is ``own_rate``.

    The total is half the count's worst case: rounding spreads over (0, epsilon], it does not sit at its end.
    """
    expected = tokens * max(own_rate, MINIMUM_RATE)
    count = math.floor(expected + SIGMAS * math.sqrt(expected) + SLACK)
    return Budget(tokens=tokens, count=count, total=max(count / 2, 1.0) * epsilon)
