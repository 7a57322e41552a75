"""From samples to figures: one value a repeat, then median and spread over the repeats. Pure.

A repeat of one category is pooled over its prompts (tokens over seconds), so the spread shows how far repeats are
apart and not how far prompts are. A repeat in which a request is missing or failed has no value: a sum over fewer
prompts would be another figure. Nothing missing is ever taken for 0.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from lossless.bench.sample import Sample


@dataclass(frozen=True, slots=True)
class Figure:
    """One value a repeat that has one; ``expected`` is how many repeats were planned."""

    values: tuple[float, ...]
    expected: int
    unfit: bool = False

    @property
    def median(self) -> float | None:
        """None where there is no value."""
        return median(self.values) if self.values else None

    @property
    def low(self) -> float | None:
        return min(self.values, default=None)

    @property
    def high(self) -> float | None:
        return max(self.values, default=None)

    @property
    def missing(self) -> int:
        """Planned repeats without a value."""
        return self.expected - len(self.values)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of medians, and the ratios that the two spreads allow: lowest by highest, highest by lowest.

    ``distinguishable``: the spreads do not overlap, and both have two values or more. One value has no spread.
    """

    value: float
    low: float
    high: float
    distinguishable: bool


def ratio(figure: Figure, base: Figure) -> Ratio | None:
    """How many times ``base`` a figure is; None where either has no value, or the base has a 0."""
    if not figure.values or not base.values or min(base.values) <= 0:
        return None
    ours, theirs = figure.values, base.values
    apart = min(ours) > max(theirs) or max(ours) < min(theirs)
    return Ratio(
        median(ours) / median(theirs),
        min(ours) / max(theirs),
        max(ours) / min(theirs),
        apart and min(len(ours), len(theirs)) > 1,
    )


def figure(
    samples: Iterable[Sample], value: Callable[[Sequence[Sample]], float | None], *, repeats: int, size: int
) -> Figure:
    """One value a repeat. ``size`` is how many samples a whole repeat has."""
    groups: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.repeat].append(sample)
    values = []
    for _, group in sorted(groups.items()):
        if len(group) == size and all(sample.ok for sample in group):
            found = value(group)
            if found is not None:
                values.append(found)
    every = [sample for group in groups.values() for sample in group]
    return Figure(tuple(values), repeats, bool(every) and all(sample.unfit for sample in every))


def decode_rate(group: Sequence[Sample]) -> float | None:
    """Tokens a second of one stream: tokens after the first piece over the seconds from first to last piece."""
    seconds = sum(sample.last_s - sample.first_s for sample in group)
    return _after_first(group) / seconds if seconds > 0 and _after_first(group) else None


def aggregate_rate(group: Sequence[Sample]) -> float | None:
    """Tokens a second of all streams together: from the first piece of any stream to the last piece of any."""
    seconds = max(sample.last_s for sample in group) - min(sample.first_s for sample in group)
    return _after_first(group) / seconds if seconds > 0 and _after_first(group) else None


def first_token(group: Sequence[Sample]) -> float | None:
    """Mean seconds from sending a request to its first token."""
    return sum(sample.first_s - sample.sent_s for sample in group) / len(group)


def prefill_rate(group: Sequence[Sample]) -> float | None:
    """Prompt tokens over the seconds to the first token, what is spent around the prefill included."""
    seconds = sum(sample.first_s - sample.sent_s for sample in group)
    return sum(sample.prompt_tokens for sample in group) / seconds if seconds > 0 else None


def accept_length(group: Sequence[Sample]) -> float | None:
    """Completion tokens over verify steps, as SGLang counts (``spec_accept_length``: the bonus token and the
    prefill's token are in it). An answer without a verify step was decoded token by token: one step a token.
    Answers of one token come from the prefill alone and say nothing."""
    spoken = [sample for sample in group if sample.tokens > 1]
    steps = sum(sample.verify_steps or sample.tokens for sample in spoken)
    return sum(sample.tokens for sample in spoken) / steps if steps else None


def _after_first(group: Sequence[Sample]) -> int:
    return sum(sample.tokens - sample.first_tokens for sample in group)
