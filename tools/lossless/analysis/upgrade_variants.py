"""Is each variant still lossless against its own new baseline, and what changed since the old run?"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from lossless.analysis.analysis import BASELINE, Analysis
from lossless.analysis.judged import Judged
from lossless.analysis.known import KnownIssue
from lossless.verdict import Kind

ABSENT = "not in the run"
_RANK = {Kind.IDENTICAL: 0, Kind.NEAR_TIE: 1, Kind.INCONCLUSIVE: 2, Kind.DIVERGENT: 3}


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """One answer whose verdict is another than before. ``known``: a public issue of the new version covers it."""

    prompt: str
    stage: str
    turn: int
    old: str
    new: str
    worse: bool
    known: bool
    detail: str


@dataclass(frozen=True, slots=True)
class VariantChange:
    """One variant. ``old`` and ``new`` are ``proven``, ``divergent``, ``inconclusive`` or :data:`ABSENT`; the counts
    are answers by verdict, known issues counted as ``known``. ``problems``: failed controls of the new run, rules that
    only the new variant breaks, and stress that a server did not survive."""

    variant: str
    old: str
    new: str
    old_counts: dict[str, int]
    new_counts: dict[str, int]
    changes: tuple[VerdictChange, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IssueChange:
    """A known issue of either version. ``old`` and ``new``: on how many of the prompts it covers it shows, None where
    the version is not listed for it. ``state`` is ``appears``, ``vanishes`` or ``stays``."""

    variant: str
    issue: KnownIssue
    prompts: tuple[str, ...]
    old: int | None
    new: int | None

    @property
    def state(self) -> str:
        before, after = bool(self.old), bool(self.new)
        if before == after:
            return "stays"
        return "appears" if after else "vanishes"


def variants(old: Analysis, new: Analysis, *, strict: bool) -> tuple[VariantChange, ...]:
    """Every variant of either run, the new run's first."""
    names = dict.fromkeys((*new.manifest.variants, *old.manifest.variants))
    before, after = (_by_variant(a) for a in (old, new))
    return tuple(_variant(old, new, name, before.get(name, []), after.get(name, []), strict) for name in names)


def issues(old: Analysis, new: Analysis) -> tuple[IssueChange, ...]:
    """Known issues of the old and of the new version, by variant."""
    found = []
    for variant in dict.fromkeys((*new.manifest.variants, *old.manifest.variants)):
        covered = [a.covered(variant) if variant in a.manifest.variants else {} for a in (old, new)]
        for issue in dict.fromkeys((*covered[0], *covered[1])):
            shown = [_shown(a, variant, c.get(issue)) for a, c in zip((old, new), covered, strict=True)]
            prompts = covered[1].get(issue) or covered[0][issue]
            found.append(IssueChange(variant, issue, prompts, shown[0], shown[1]))
    return tuple(found)


def status(analysis: Analysis, variant: str, judged: Iterable[Judged], *, strict: bool) -> str:
    """``proven``, ``divergent`` or ``inconclusive`` for one variant, known issues aside; as for a whole run."""
    counted = [j for j in judged if not analysis.is_known(j)]
    if any(j.verdict.kind is not Kind.INCONCLUSIVE and not j.verdict.passed(strict=strict) for j in counted):
        return "divergent"
    if _broken(analysis, variant) or any(s.divergent for s in analysis.survival if s.server == variant):
        return "divergent"
    if not counted or analysis.failures(variant) or any(j.verdict.kind is Kind.INCONCLUSIVE for j in counted):
        return "inconclusive"
    if any(not s.ok for s in analysis.survival if s.server in (BASELINE, variant)):
        return "inconclusive"
    return "proven"


def _by_variant(analysis: Analysis) -> dict[str, list[Judged]]:
    found: dict[str, list[Judged]] = {v: [] for v in analysis.manifest.variants}
    for judged in analysis.verdicts():
        found[judged.variant].append(judged)
    return found


def _variant(
    old: Analysis, new: Analysis, name: str, before: list[Judged], after: list[Judged], strict: bool
) -> VariantChange:
    problems = []
    if name in new.manifest.variants:
        problems = [f"{c.name}: {c.detail}" for c in new.controls if c.scope in (BASELINE, name) and c.failure]
        problems += _broken(new, name)
        problems += [
            f"stress, {s.server}: {s.detail}" for s in new.survival if s.server in (BASELINE, name) and not s.ok
        ]
    return VariantChange(
        variant=name,
        old=status(old, name, before, strict=strict) if name in old.manifest.variants else ABSENT,
        new=status(new, name, after, strict=strict) if name in new.manifest.variants else ABSENT,
        old_counts=_counts(old, before),
        new_counts=_counts(new, after),
        changes=tuple(_changes(new, before, after)),
        problems=tuple(problems),
    )


def _changes(new: Analysis, before: list[Judged], after: list[Judged]) -> Iterable[VerdictChange]:
    known_before = {(j.prompt.id, j.stage, j.turn): j for j in before}
    for now in after:
        then = known_before.get((now.prompt.id, now.stage, now.turn))
        if then is None or then.verdict.label == now.verdict.label:
            continue
        yield VerdictChange(
            prompt=now.prompt.id,
            stage=now.stage,
            turn=now.turn,
            old=then.verdict.label,
            new=now.verdict.label,
            worse=_RANK[now.verdict.kind] > max(_RANK[then.verdict.kind], _RANK[Kind.NEAR_TIE]),
            known=new.is_known(now),
            detail=now.verdict.detail,
        )


def _counts(analysis: Analysis, judged: list[Judged]) -> dict[str, int]:
    def label(j: Judged) -> str:
        if analysis.is_known(j):
            return "known"
        return j.verdict.label if j.verdict.kind is Kind.NEAR_TIE else str(j.verdict.kind)

    return dict(Counter(label(j) for j in judged))


def _broken(analysis: Analysis, variant: str) -> list[str]:
    """Rules that a variant's answers break where the baseline keeps them; equal tokens do not show these."""
    found = []
    for prompt in analysis.prompts:
        if analysis.known_issue(variant, prompt) is not None:
            continue
        both = {v.reason for v in analysis.broken_rules(BASELINE, prompt)}
        own = (v for v in analysis.broken_rules(variant, prompt) if v.reason not in both)
        found += [f"{prompt}: {v.reason}: {v.message}" for v in own]
    return found


def _shown(analysis: Analysis, variant: str, prompts: tuple[str, ...] | None) -> int | None:
    if prompts is None:
        return None
    return sum(not analysis.verdict(variant, p).verdict.passed() for p in prompts)
