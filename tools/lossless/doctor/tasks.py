"""Kinds of tasks and the accept lengths that go with them. Pure.

Accept length depends on the task more than on anything else: the same target and the same draft reach 2.4 on prose and
5.9 on text that is copied, so a mean over a set of prompts shows the mix first and the draft second.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lossless.analysis import Acceptance
from lossless.doctor.case import ALL
from lossless.golden.acceptance import GoldenAcceptance

_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("copying", ("extract", "copy", "quote")),
    ("code", ("code", "coding", "program")),
    ("summary", ("summar",)),
    ("creative writing", ("writing", "creative", "poem")),
    ("prose", ("prose", "story", "essay", "novel")),
)
HARD = frozenset({"prose", "creative writing", "summary"})
"""Kinds in which a low accept length is normal."""


@dataclass(frozen=True, slots=True)
class FieldFigures:
    """Accept lengths from a field report (Qwen3.8-27B, SGLang 0.5.19): tokens a verify step of ``width`` tokens.

    ``mean`` is the one figure the report gives for its set of short prompts, which holds code and copying.
    """

    width: int
    mean: float
    kinds: Mapping[str, float]


FIELD: Mapping[str, FieldFigures] = {
    "DFLASH": FieldFigures(
        8, 4.74, {"prose": 2.4, "summary": 2.86, "creative writing": 3.05, "code": 4.99, "copying": 5.94}
    ),
    "NEXTN": FieldFigures(4, 3.76, {"prose": 2.59, "creative writing": 2.56, "code": 3.76, "copying": 3.66}),
}

LONG_CONTEXT: Mapping[str, tuple[float, float]] = {"DFLASH": (4.74, 2.91), "NEXTN": (3.76, 2.13)}
"""The same report: accept length of short prompts and of prompts of 128K tokens."""


def family(algorithm: str | None) -> str | None:
    """DFLASH or NEXTN (which SGLang calls EAGLE once it runs); None for others."""
    name = (algorithm or "").upper()
    if name.startswith("DFLASH"):
        return "DFLASH"
    return "NEXTN" if name in ("NEXTN", "EAGLE") else None


def kind_of(category: str) -> str | None:
    """The kind of task that a prompt category is, None where there is no figure to compare it with."""
    return next((kind for kind, words in _KINDS if any(word in category for word in words)), None)


def pooled(parts: Mapping[str, Acceptance]) -> Acceptance:
    """Several categories as one."""
    values = parts.values()
    return Acceptance(
        sum(a.prompts for a in values),
        sum(a.tokens for a in values),
        sum(a.verify_steps for a in values),
        sum(a.silent for a in values),
    )


def by_kind(categories: Mapping[str, Acceptance]) -> dict[str, Acceptance]:
    """Accept length by kind of task; categories of no kind are left out."""
    groups: dict[str, dict[str, Acceptance]] = {}
    for category, value in categories.items():
        kind = kind_of(category)
        if category != ALL and kind is not None and value.verify_steps:
            groups.setdefault(kind, {})[category] = value
    return {kind: pooled(parts) for kind, parts in sorted(groups.items())}


def expected(categories: Mapping[str, Acceptance], lengths: Mapping[str, float]) -> float | None:
    """The mean that this mix of tasks has if each category reaches its length in ``lengths``.

    Tokens over steps, as SGLang pools: ``sum(tokens) / sum(tokens / length)``. None unless ``lengths`` knows the
    categories of more than half of the tokens.
    """
    tokens = steps = 0.0
    total = sum(value.tokens for name, value in categories.items() if name != ALL)
    for name, value in categories.items():
        length = lengths.get(name)
        if name != ALL and length:
            tokens += value.tokens
            steps += value.tokens / length
    return tokens / steps if steps and tokens > total / 2 else None


def below(now: Mapping[str, Acceptance], wanted: Mapping[str, GoldenAcceptance]) -> dict[str, tuple[float, float]]:
    """Categories below their band, as (accept length, lowest that counts as unchanged).

    The band is the golden one, as wide as the smaller of the two samples of verify steps makes it.
    """
    found = {}
    for name, value in now.items():
        golden = wanted.get(name)
        if golden is None or value.accept_length is None or name == ALL:
            continue
        steps = min(golden.verify_steps, value.verify_steps)
        low, _ = GoldenAcceptance(golden.accept_length, steps).band
        if value.accept_length < low:
            found[name] = (value.accept_length, low)
    return found
