"""Every planted fault through the whole suite: noticed or not, how, why, and after how much."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.detection.plan import (
    ALGORITHMS,
    CHUNK,
    CONTROLS,
    GOLDEN,
    PARITY,
    RULES,
    SERVER,
    FaultCase,
    Prompts,
)
from benchmarks.detection.recording import BASELINE, Servers, Workshop

from lossless.analysis import Analysis, Judged
from lossless.golden.acceptance import GoldenAcceptance, outside
from lossless.record.store import RunStore
from lossless.report.evidence import broken_by_speculation, status
from lossless.verdict import Kind

VARIANT = "variant"


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault on one variant with one seed. ``answers`` and ``tokens``: how many answers were compared, and how many
    tokens the variant had put out, up to the first one that gave it away (None: nothing did). ``flagged`` answers were
    divergent and ``identical`` ones equal, of ``compared``."""

    algorithm: str
    seed: int
    detected: bool
    outcome: str
    how: str | None
    verdict: str | None
    reason: str | None
    detail: str
    answers: int | None
    tokens: int | None
    flagged: int
    identical: int
    compared: int
    generated: int


def run_fault(case: FaultCase, workshop: Workshop, prompts: Prompts, base: RunStore | None) -> list[Trial]:
    """All variants and seeds of one case."""
    chosen = prompts.fault(case)
    trials = []
    for algorithm in case.algorithms:
        for seed in case.seeds:
            name = f"{case.fault}-{case.rate}-{algorithm}-{seed}{'-baseline' if case.on_baseline else ''}"
            options = ["--dtype", workshop.dtype, *ALGORITHMS[algorithm], *CHUNK, "--seed", str(seed)]
            faulty = BASELINE if case.on_baseline else VARIANT
            variant = {"nextn": options} if case.process else {VARIANT: options}
            servers = Servers(
                {},
                workshop.folder / name / "logs",
                case.timeout_s,
                case.argument,
                "nextn" if case.process else faulty,
                case.process,
                case.warm_up,
            )
            analysis = workshop.record(
                name,
                chosen,
                variant,
                algorithms={next(iter(variant)): algorithm},
                seeded_from=None if case.on_baseline else base,
                servers=servers,
                epsilon=0.25 if len(case.core) < 3 else None,
                fault=case.argument,
            )
            trials.append(examine(analysis, case, algorithm, seed))
    return trials


def examine(analysis: Analysis, case: FaultCase, algorithm: str, seed: int) -> Trial:
    """What the suite makes of a run, and whether it is what it should say."""
    judged = list(analysis.verdicts())
    outcome = status(analysis, judged)
    notices = list(notice(analysis, judged))
    right = [n for n in notices if n.how in case.how]
    golden = [] if right or GOLDEN not in case.how else list(accept_length_fell(analysis, algorithm))
    first = next(iter(right or golden), None)
    detected = first is not None and (outcome != "proven" or first.how == GOLDEN)
    generated = sum(len(j.right.ids) for j in judged if j.right is not None)
    flagged = sum(j.verdict.kind is Kind.DIVERGENT for j in judged)
    return Trial(
        algorithm=algorithm,
        seed=seed,
        detected=detected,
        outcome=outcome,
        how=first.how if first else None,
        verdict=first.verdict if first else None,
        reason=first.reason if first else None,
        detail=first.detail if first else "",
        answers=first.answers if first else None,
        tokens=first.tokens if first else None,
        flagged=flagged,
        identical=sum(j.verdict.kind is Kind.IDENTICAL for j in judged),
        compared=len(judged),
        generated=generated,
    )


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing in a run that gives a fault away."""

    how: str
    verdict: str
    reason: str | None
    detail: str
    answers: int | None = None
    tokens: int | None = None


def notice(analysis: Analysis, judged: list[Judged]) -> Iterator[Notice]:
    """Everything suspicious, in the order in which a run meets it: answers first, then rules, then controls."""
    tokens = 0
    for number, j in enumerate(judged, 1):
        v = j.verdict
        said = len(j.right.ids) if j.right is not None else 0
        if v.kind is Kind.DIVERGENT:
            at = min((d.variant_start for d in v.differences), default=said)
            yield Notice(PARITY, v.label, str(v.reason), v.detail, number, tokens + min(at + 1, said))
        elif v.kind is Kind.INCONCLUSIVE:
            how = SERVER if j.right is None or j.left is None else CONTROLS
            yield Notice(how, v.label, str(v.reason), v.detail, number, tokens + said)
        tokens += said
    tokens = 0
    for answers, (variant, prompt) in enumerate(dict.fromkeys((j.variant, j.prompt.id) for j in judged), 1):
        tokens += sum(len(j.right.ids) for j in judged if j.prompt.id == prompt and j.right is not None)
        for violation in broken_by_speculation(analysis, variant, prompt):
            yield Notice(RULES, "divergent", str(violation.reason), violation.message, answers, tokens)
    for control in analysis.controls:
        if not control.ok:
            reason = None if control.reason is None else str(control.reason)
            yield Notice(CONTROLS, "inconclusive", reason, f"{control.name}: {control.detail}")


_GOLDEN: dict[str, dict[str, GoldenAcceptance]] = {}


def remember_acceptance(analysis: Analysis, algorithm: str) -> None:
    """Keep an honest run's accept lengths as the golden ones."""
    _GOLDEN[algorithm] = acceptance_of(analysis)


def acceptance_of(analysis: Analysis) -> dict[str, GoldenAcceptance]:
    """Accept length by category, as a golden file holds it."""
    found = analysis.acceptance(analysis.manifest.variants[0])
    return {c: GoldenAcceptance(a.accept_length, a.verify_steps) for c, a in found.items() if a.accept_length}


def accept_length_fell(analysis: Analysis, algorithm: str) -> Iterator[Notice]:
    """The golden band of the accept length: right output, less gain."""
    golden = _GOLDEN.get(algorithm)
    if golden:
        for sentence in outside(acceptance_of(analysis), golden):
            yield Notice(GOLDEN, "proven", "accept-length", sentence)


def row(case: FaultCase, trials: list[Trial]) -> dict[str, Any]:
    """One line of the table: detected means detected on every variant with every seed."""
    hits = [t for t in trials if t.detected]
    reasons = Counter(t.reason for t in hits)
    first = min(hits, key=lambda t: t.tokens if t.tokens is not None else 1 << 30, default=None)
    missed = [t for t in trials if not t.detected]
    data: dict[str, Any] = {
        "name": case.fault,
        "rate": case.rate,
        "planted_in": "baseline" if case.on_baseline else "variant",
        "detected": bool(trials) and not missed,
        "verdict": first.verdict if first else (trials[0].outcome if trials else None),
        "reason": reasons.most_common(1)[0][0] if reasons else None,
        "how": first.how if first else None,
        "algorithms": list(case.algorithms),
        "seeds": len(case.seeds),
        "caught": len(hits),
        "trials": len(trials),
        "prompts": _worst(t.answers for t in hits),
        "tokens": _worst(t.tokens for t in hits),
        "flagged": sum(t.flagged for t in trials),
        "compared": sum(t.compared for t in trials),
        "generated": sum(t.generated for t in trials),
        "detail": first.detail if first else (trials[0].detail if trials else ""),
    }
    if missed:
        data["why"] = case.why_missed or _why(missed)
        data["missed"] = [asdict(t) for t in missed]
    return data


def _worst(values: Iterable[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return max(known, default=None)


def _why(missed: list[Trial]) -> str:
    where = ", ".join(f"{t.algorithm} seed {t.seed}" for t in missed)
    if all(t.identical == t.compared for t in missed):
        return f"no effect on {where}: every output equals the baseline's, token for token"
    equal, compared = sum(t.identical for t in missed), sum(t.compared for t in missed)
    return (
        f"on {where}, {equal} of {compared} outputs equal the baseline's and the others are near-ties: it moved no "
        "token beyond epsilon"
    )
