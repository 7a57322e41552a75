"""The noise floor of this run on this machine, and the near-tie bound epsilon made from it.

The floor is how far the baseline's decode and the baseline's own re-scoring of the same output disagree about which of
two tokens is better, since that is what flips a token. One position contributes the largest of three figures: the
shift of the gap between decode's two best tokens, the shift of the emitted token's logprob, and the token's own
regret. (The emitted token's logprob alone says too little: where the model is sure it stays near 0 whatever the logits
do: on an H200 in bfloat16 it moved by at most 0.08 nats, while honest flips reached 0.125.)

The floor is the third largest contribution: a bound that one or two freak positions cannot widen. Whatever lies above
epsilon is not noise but a contradiction inside the baseline, and is reported as such.

All positions count, also those where the gap is far too wide to flip: there it moves up to half as much again, but the
close ones alone are too few in a short run. (On 475 tokens they gave a bound of 0.094, below an honest flip of 0.125.)

Why k is 1.5: a flip's regret is itself one draw of this noise, seen on as many tokens again, so the bound leaves room
above the largest of the draws that were measured.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

DEFAULT_K = 1.5
DEFAULT_MINIMUM = 1e-3  # nats: far above float32 rounding (1e-5 on real servers), far below one bfloat16 step (1/32)
DEFAULT_CAP = 0.75  # nats: a token less than half as likely as the best one is no tie
SLACK = 1e-5  # nats: differences of logprobs carry float32 rounding, and flips sit exactly on bfloat16 steps
MIN_TOKENS = 200
RANK = 3


@dataclass(frozen=True, slots=True)
class NoiseSample:
    """One position of the baseline's own output: its decode and re-scored logprob, its own regret, and the gap between
    decode's two best tokens as decode and as re-scoring see it. All in nats; None where evidence is missing."""

    decode_logprob: float | None
    rescored_logprob: float | None
    regret: float | None
    decode_gap: float | None = None
    rescored_gap: float | None = None

    @property
    def shift(self) -> float | None:
        """|decode - re-scored|, in nats."""
        if self.decode_logprob is None or self.rescored_logprob is None:
            return None
        shift = abs(self.decode_logprob - self.rescored_logprob)
        return None if math.isnan(shift) else shift

    @property
    def gap_shift(self) -> float:
        """|decode - re-scored| of the gap, in nats; 0 where it is not known (a token left the short list)."""
        if self.decode_gap is None or self.rescored_gap is None:
            return 0.0
        shift = abs(self.decode_gap - self.rescored_gap)
        return 0.0 if math.isnan(shift) else shift


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """``value`` is the floor in nats. The rest says what it was made of."""

    value: float
    tokens: int
    missing: int
    median_shift: float
    p99_shift: float
    max_shift: float
    p99_gap_shift: float
    max_gap_shift: float
    max_regret: float
    regret_count: int

    @property
    def regret_rate(self) -> float:
        """Share of the baseline's own tokens that are not the argmax of its re-scoring."""
        return self.regret_count / self.tokens if self.tokens else 0.0


@dataclass(frozen=True, slots=True)
class Epsilon:
    """The near-tie bound of a run, in nats, with everything it was made of.

    ``problem`` says why no bound could be had; then nothing but identical outputs can be judged.
    """

    value: float
    k: float
    minimum: float
    cap: float
    floor: NoiseFloor | None
    problem: str | None = None

    @property
    def limit(self) -> float:
        """The largest regret that is still a near-tie: the bound and a hair for float rounding."""
        return self.value + SLACK

    def describe(self) -> str:
        """One line for a reader, inputs included."""
        if self.problem:
            return f"no epsilon: {self.problem}"
        if self.floor is None:
            return f"epsilon {self.value:.4g} nats (given, not measured)"
        return (
            f"epsilon {self.value:.4g} nats = clamp({self.k:g} x noise floor {self.floor.value:.3g}, "
            f"{self.minimum:g}, {self.cap:g}); floor from {self.floor.tokens} tokens of the baseline's own output: "
            f"|decode - re-scored| median {self.floor.median_shift:.2g}, p99 {self.floor.p99_shift:.2g}, "
            f"max {self.floor.max_shift:.3g}; top-2 gap p99 {self.floor.p99_gap_shift:.2g}, "
            f"max {self.floor.max_gap_shift:.3g}; own regret above 0 at {self.floor.regret_count}, "
            f"max {self.floor.max_regret:.3g}"
        )


def measure(samples: Iterable[NoiseSample]) -> NoiseFloor:
    """Noise floor from the baseline's own output. Positions without evidence are counted, never guessed."""
    shifts: list[float] = []
    regrets: list[float] = []
    gaps: list[float] = []
    all_: list[float] = []
    missing = 0
    for sample in samples:
        shift, regret = sample.shift, sample.regret
        if shift is None or regret is None:
            missing += 1
            continue
        shifts.append(shift)
        regrets.append(regret)
        gaps.append(sample.gap_shift)
        all_.append(max(shift, regret, sample.gap_shift))
    all_.sort(reverse=True)
    return NoiseFloor(
        value=all_[min(RANK, len(all_)) - 1] if all_ else math.nan,
        tokens=len(all_),
        missing=missing,
        median_shift=quantile(shifts, 0.5),
        p99_shift=quantile(shifts, 0.99),
        max_shift=max(shifts, default=math.nan),
        p99_gap_shift=quantile(gaps, 0.99),
        max_gap_shift=max(gaps, default=math.nan),
        max_regret=max(regrets, default=math.nan),
        regret_count=sum(r > 0 for r in regrets),
    )


def calibrate(
    floor: NoiseFloor,
    *,
    k: float = DEFAULT_K,
    minimum: float = DEFAULT_MINIMUM,
    cap: float = DEFAULT_CAP,
    min_tokens: int = MIN_TOKENS,
) -> Epsilon:
    """Epsilon = clamp(k * floor, minimum, cap). A floor that cannot be trusted is a problem, not a wider net."""
    problem = None
    if floor.tokens < min_tokens:
        problem = f"the noise floor was measured on {floor.tokens} tokens, at least {min_tokens} are needed"
    elif not math.isfinite(floor.value):
        problem = "the noise floor is not a number"
    elif floor.value > cap:
        problem = (
            f"the noise floor of {floor.value:.3g} nats is above the cap of {cap:g}: the baseline contradicts itself"
        )
    value = min(max(k * floor.value, minimum), cap) if math.isfinite(floor.value) else math.nan
    return Epsilon(value=value, k=k, minimum=minimum, cap=cap, floor=floor, problem=problem)


def given(value: float) -> Epsilon:
    """An epsilon set by hand (``--lossless-epsilon``), in nats."""
    return Epsilon(value=value, k=1.0, minimum=value, cap=value, floor=None)


def quantile(values: list[float], q: float) -> float:
    """Nearest-rank quantile; NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(q * len(ordered)) - 1 if q > 0 else 0)]
