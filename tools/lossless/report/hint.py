"""Hints for a person: what kind of fault it may be. Always worded as a guess."""

from lossless.analysis import Analysis, Judged
from lossless.analysis.localize import Hint, hints, run_hints
from lossless.verdict import Kind

IN_A_FAILURE = 2


def failure_lines(analysis: Analysis, judged: Judged) -> list[str]:
    """One line a likely kind of fault behind a divergent answer, best first, at most two."""
    if judged.verdict.kind is not Kind.DIVERGENT:
        return []  # the verdict says itself what is missing
    return [f"perhaps {hint_line(h)}" for h in hints(analysis, judged)[:IN_A_FAILURE]]


def run_lines(analysis: Analysis, variant: str) -> list[str]:
    """One line a likely kind of fault of a variant, counted over its answers; none if all passed."""
    return [f"{variant}: perhaps {hint_line(h)}" for h in run_hints(analysis, variant)]


def hint_line(hint: Hint) -> str:
    reports = f" [{', '.join(hint.reports[:2])}]" if hint.reports else ""
    return f"{hint.kind}: {hint.sentence}; {hint.evidence}{reports}"
