"""From findings to one sentence: the first thing that is wrong, or that nothing is, or what is missing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from lossless.doctor.case import Case
from lossless.doctor.finding import Finding
from lossless.doctor.task_rules import mix_explains

Outcome = Literal["fine", "wrong", "unclear"]
_ORDER: tuple[Outcome, ...] = ("wrong", "unclear", "fine")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One variant: its findings in the order of the rules, and what they come to. ``next`` is what to do first."""

    variant: str
    findings: tuple[Finding, ...]
    outcome: Outcome
    conclusion: str
    next: str | None = None


def conclude(case: Case, findings: Sequence[Finding]) -> Diagnosis:
    """The first wrong finding decides. Without one the draft is fine only if accept lengths were measured and
    compared with figures; a suspicion stands unless those figures are this variant's own."""
    found = tuple(findings)
    by_rule = {f.rule: f for f in found}
    suspicious = [f for f in found if f.status == "suspicious"]
    first = next((f for f in found if f.status == "wrong"), None)
    if first is not None:
        leads = [f for f in suspicious if found.index(f) < found.index(first)]
        lead = f" A likely cause stands above it: {leads[0].rule}." if leads else ""
        remedy = leads[0].remedy if leads else first.remedy
        return Diagnosis(
            case.variant, found, "wrong", f"first thing wrong: {first.rule}: {first.detail}.{lead}", remedy
        )
    run, compared = case.measured, by_rule.get("tasks")
    if run is None:
        unread = next((f for f in found if f.status == "unknown" and f.remedy), None)
        files = "the files could not be looked at" if case.checks is None else "nothing is wrong in the files"
        also = f"; suspicious: {suspicious[0].rule}: {suspicious[0].detail}" if suspicious else ""
        missing = "a recorded run with accept lengths" if case.run is None else "accept lengths in this run"
        return Diagnosis(
            case.variant,
            found,
            "unclear",
            f"cannot tell: {files}{also}. Missing: {missing}.",
            suspicious[0].remedy if suspicious else (unread.remedy if unread else None),
        )
    own, mix = run.reference is not None, by_rule.get("task-mix")
    settled = not suspicious or (own and (mix is None or mix.status != "suspicious"))
    if compared is not None and compared.status == "ok" and settled:
        aside = f" (suspicious all the same: {', '.join(f.rule for f in suspicious)})" if suspicious else ""
        if mix is not None and mix_explains(mix):
            return Diagnosis(
                case.variant, found, "fine", f"the draft is fine, the task mix explains it: {mix.detail}.{aside}"
            )
        word = "is fine" if own else "looks fine, as far as another model's figures can tell"
        return Diagnosis(case.variant, found, "fine", f"the draft {word}: {compared.detail}.{aside}")
    if suspicious:
        return Diagnosis(
            case.variant,
            found,
            "unclear",
            f"cannot tell: nothing is plainly wrong; suspicious: {suspicious[0].rule}: {suspicious[0].detail}.",
            suspicious[0].remedy,
        )
    why = compared.detail if compared is not None else "no categories"
    return Diagnosis(
        case.variant,
        found,
        "unclear",
        f"cannot tell: nothing is wrong in what could be looked at. Missing: {why}.",
        compared.remedy if compared is not None else None,
    )


def worst_outcome(diagnoses: Iterable[Diagnosis]) -> Outcome:
    """Wrong before unclear before fine; nothing at all is unclear."""
    outcomes = {d.outcome for d in diagnoses}
    return next((o for o in _ORDER if o in outcomes), "unclear")
