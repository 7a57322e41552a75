"""Judging one prompt of a pair: alignment, re-scoring, budget and stop rules become one verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

from lossless.verdict.alignment import Alignment, Hunk, align
from lossless.verdict.budget import Budget, allow
from lossless.verdict.kinds import Kind, Reason
from lossless.verdict.noise import Epsilon
from lossless.verdict.scores import OutputScores, Regret, summarize
from lossless.verdict.stops import Detokenize, Violation, violations
from lossless.verdict.transcript import StopRules, Transcript
from lossless.verdict.verdict import Difference, TokenAt, Verdict

RECONVERGENCE = 8  # equal tokens at the end that make a flip "reconverged" when the outputs are long enough


@dataclass(frozen=True, slots=True)
class Failure:
    """A control that failed, or an answer that is missing: whatever it touches is inconclusive."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything known about one prompt of a pair.

    ``scores``: the baseline's re-scoring of the variant's output. ``own_rate``: share of the baseline's own tokens
    that are not its argmax. ``repeat``: the baseline's second run, if there was one. ``failures``: controls that
    failed for this prompt or for the whole pair. ``names`` is what the two sides are called in sentences.
    ``unscored`` says why scores that should be there are not: then a flip is inconclusive, reconverged or not.
    """

    baseline: Transcript | None
    variant: Transcript | None
    rules: StopRules
    epsilon: Epsilon
    scores: OutputScores | None = None
    repeat: Transcript | None = None
    own_rate: float = 0.0
    failures: tuple[Failure, ...] = ()
    detokenize: Detokenize | None = None
    names: tuple[str, str] = ("baseline", "variant")
    unscored: str | None = None


def judge(evidence: Evidence) -> Verdict:
    """The verdict. Total: every input gets one, and missing evidence is ``inconclusive``, never a pass."""
    baseline, variant = evidence.baseline, evidence.variant
    if evidence.failures:
        return _inconclusive(evidence, evidence.failures[0].reason, "; ".join(f.message for f in evidence.failures))
    if baseline is None or variant is None:
        side = evidence.names[0 if baseline is None else 1]
        return _inconclusive(evidence, Reason.MISSING, f"the {side} gave no answer")
    repeat = evidence.repeat
    if repeat is not None and (repeat.ids, repeat.finish) != (baseline.ids, baseline.finish):
        at = _first(align(baseline.ids, repeat.ids))
        return _inconclusive(
            evidence, Reason.NOT_REPEATABLE, f"the baseline differs from its own second run, first at position {at}"
        )
    broken = _variant_only(evidence, baseline, variant)
    if broken:
        return _divergent(evidence, broken[0].reason, "; ".join(v.message for v in broken))
    if baseline.ids == variant.ids:
        return _same_ids(evidence, baseline, variant)
    return _different_ids(evidence, baseline, variant)


def _variant_only(evidence: Evidence, baseline: Transcript, variant: Transcript) -> tuple[Violation, ...]:
    """Rules the variant breaks. What both break is not speculation's doing where the answers are the same; and where
    the baseline's text too is not its detokenized ids, our detokenizer is not the server's."""
    both = {v.reason for v in violations(baseline, evidence.rules, evidence.detokenize)}
    found = violations(variant, evidence.rules, evidence.detokenize)
    if baseline.ids == variant.ids and (baseline.text, baseline.finish) == (variant.text, variant.finish):
        return tuple(v for v in found if v.reason not in both)
    return tuple(v for v in found if v.reason is not Reason.TEXT or Reason.TEXT not in both)


def _same_ids(evidence: Evidence, baseline: Transcript, variant: Transcript) -> Verdict:
    if baseline.finish != variant.finish:
        return _divergent(
            evidence, Reason.STOP, f"same tokens, but finish is {variant.finish} instead of {baseline.finish}"
        )
    if baseline.text != variant.text:
        return _divergent(evidence, Reason.TEXT, "same tokens and finish reason, but another text")
    n = len(variant.ids)
    return Verdict(Kind.IDENTICAL, None, f"all {n} tokens equal", n, n, epsilon=evidence.epsilon)


def _different_ids(evidence: Evidence, baseline: Transcript, variant: Transcript) -> Verdict:
    alignment = align(baseline.ids, variant.ids)
    scores = evidence.scores
    if scores is not None and scores.ids != variant.ids:
        return _inconclusive(evidence, Reason.UNSCORED, f"the re-scored output is not the {evidence.names[1]}'s output")
    differences = tuple(_difference(alignment, k, baseline, variant, scores) for k in range(len(alignment.hunks)))
    reconverged = _reconverged(alignment)
    if differences[0].variant_token is None or differences[0].baseline_token is None:
        # The same tokens, but one side stopped and the other went on: no choice of a token was involved.
        return _divergent(
            evidence,
            Reason.LENGTH,
            f"the {evidence.names[1]} ends after {len(variant.ids)} tokens, "
            f"the {evidence.names[0]} has {len(baseline.ids)}, "
            f"finish {variant.finish}",
            differences,
            reconverged,
        )
    if scores is None and evidence.unscored is not None:
        return _inconclusive(evidence, Reason.UNSCORED, evidence.unscored, differences, reconverged)
    if scores is None:
        return _unscored(evidence, differences, reconverged)
    if evidence.epsilon.problem:
        return _inconclusive(evidence, Reason.NO_EPSILON, evidence.epsilon.problem, differences, reconverged)
    regret = summarize(scores)
    if regret is None:
        return _inconclusive(
            evidence, Reason.UNSCORED, "re-scoring lacks logprobs for some tokens", differences, reconverged
        )
    epsilon, limit = evidence.epsilon.value, evidence.epsilon.limit
    budget = allow(len(variant.ids), epsilon=epsilon, own_rate=evidence.own_rate)
    first = differences[0]
    gap = first.gap or 0.0
    reason: Reason | None = None
    if gap > limit:
        reason = Reason.GAP
        detail = f"the first difference is {gap:.4g} nats from the baseline's argmax, epsilon is {epsilon:.4g}"
    elif (late := next((d for d in differences if d.gap is not None and d.gap > limit), None)) is not None:
        reason = Reason.GAP
        detail = (
            f"the difference at position {late.variant_start} is {late.gap:.4g} nats from the baseline's argmax, "
            f"epsilon is {epsilon:.4g}"
        )
    elif regret.largest > limit:
        reason = Reason.REGRET
        detail = (
            f"the token at position {regret.largest_at} is {regret.largest:.4g} nats from the baseline's argmax given "
            f"its own prefix, epsilon is {epsilon:.4g}"
        )
    elif excess := budget.excess(regret):
        reason, detail = Reason.BUDGET, excess
    elif contradiction := _contradiction(first, limit, evidence.names[0]):
        return _inconclusive(evidence, Reason.CONTRADICTION, contradiction, differences, reconverged)
    if reason is not None:
        return _result(Kind.DIVERGENT, reason, detail, evidence, differences, reconverged, regret, budget)
    where = f"position {first.variant_start}"
    how = _how_close(first, gap)
    after = "reconverges" if reconverged else "forks"
    detail = f"flips at {where} ({how}, epsilon {epsilon:.4g}) and {after}; largest regret {regret.largest:.4g} nats"
    return _result(Kind.NEAR_TIE, None, detail, evidence, differences, reconverged, regret, budget)


def _contradiction(first: Difference, limit: float, name: str) -> str | None:
    """Whether re-scoring disowns the very token that the baseline itself chose at the first difference."""
    own, best = first.baseline_token, first.argmax
    if own is None or own.logprob is None or best is None or best.logprob is None:
        return f"the {name}'s own token is not among the {len(first.candidates)} best of its re-scoring"
    gap = best.logprob - own.logprob
    return f"re-scoring puts the {name}'s own token {gap:.4g} nats below the argmax" if gap > limit else None


def _how_close(first: Difference, gap: float) -> str:
    """The distance of the two tokens in words; either of them may be the re-scored argmax."""
    own, best = first.baseline_token, first.argmax
    if first.ties > 1 and gap == 0 and own is not None and best is not None and own.logprob == best.logprob:
        return f"an exact {first.ties}-way tie"
    if gap == 0 and own is not None and best is not None and own.logprob is not None and best.logprob is not None:
        return f"gap {best.logprob - own.logprob:.4g} nats the other way round"
    return f"gap {gap:.4g} nats"


def _unscored(evidence: Evidence, differences: Sequence[Difference], reconverged: bool) -> Verdict:
    if not reconverged:
        return _divergent(
            evidence,
            Reason.UNPROVEN_FORK,
            f"differs from position {differences[0].variant_start} on, does not reconverge, and was not re-scored",
            differences,
            reconverged,
        )
    detail = (
        f"differs at position {differences[0].variant_start} and reconverges to the end; not re-scored, "
        "so the size of the flip is unknown"
    )
    return _result(Kind.NEAR_TIE, None, detail, evidence, differences, reconverged)


def _reconverged(alignment: Alignment) -> bool:
    """Whether the outputs agree again at their ends, for at least RECONVERGENCE tokens (or half of a short output)."""
    tail = alignment.matched_after(len(alignment.hunks) - 1)
    shorter = min(alignment.baseline_length, alignment.variant_length)
    return tail >= max(1, min(RECONVERGENCE, shorter // 2))


def _difference(
    alignment: Alignment, index: int, baseline: Transcript, variant: Transcript, scores: OutputScores | None
) -> Difference:
    hunk = alignment.hunks[index]
    t = hunk.variant_start
    matched = alignment.matched_after(index)
    scored = scores is not None and t < len(scores.ids)
    own_id = baseline.ids[hunk.baseline_start] if hunk.baseline_start < len(baseline.ids) else None
    top = scores.top[t] if scores is not None and scored else ()
    best = scores.best(t) if scores is not None and scored else None
    argmax = next((TokenAt(c.token_id, c.logprob) for c in top if c.logprob == best), None)
    return Difference(
        baseline_start=hunk.baseline_start,
        baseline_end=hunk.baseline_end,
        variant_start=hunk.variant_start,
        variant_end=hunk.variant_end,
        # Only at the first difference do both sides share the prefix, so only there is the score the baseline's too.
        baseline_token=None
        if own_id is None
        else TokenAt(own_id, scores.logprob_of(t, own_id) if scores is not None and scored and index == 0 else None),
        variant_token=_variant_token(hunk, variant, scores),
        argmax=argmax,
        gap=scores.regret(t) if scores is not None and scored else None,
        top2_gap=scores.top2_gap(t) if scores is not None and scored else None,
        rank=scores.rank(t, variant.ids[t]) if scores is not None and scored else None,
        ties=sum(c.logprob == best for c in top),
        candidates=tuple(TokenAt(c.token_id, c.logprob) for c in top),
        reconverged_for=matched,
        to_end=index == len(alignment.hunks) - 1 and matched > 0,
    )


def _variant_token(hunk: Hunk, variant: Transcript, scores: OutputScores | None) -> TokenAt | None:
    t = hunk.variant_start
    if t >= len(variant.ids):
        return None
    return TokenAt(variant.ids[t], scores.logprobs[t] if scores is not None else None)


def _first(alignment: Alignment) -> int | str:
    return alignment.hunks[0].variant_start if alignment.hunks else "the end (finish reason)"


def _inconclusive(
    evidence: Evidence,
    reason: Reason,
    detail: str,
    differences: Sequence[Difference] = (),
    reconverged: bool | None = None,
) -> Verdict:
    return _result(Kind.INCONCLUSIVE, reason, detail, evidence, differences, reconverged)


def _divergent(
    evidence: Evidence,
    reason: Reason,
    detail: str,
    differences: Sequence[Difference] = (),
    reconverged: bool | None = None,
) -> Verdict:
    if not differences and evidence.baseline is not None and evidence.variant is not None:
        # A broken stop rule comes first, but a reader still wants to see where the tokens part.
        alignment = align(evidence.baseline.ids, evidence.variant.ids)
        scores = evidence.scores if evidence.scores and evidence.scores.ids == evidence.variant.ids else None
        differences = [
            _difference(alignment, k, evidence.baseline, evidence.variant, scores) for k in range(len(alignment.hunks))
        ]
        reconverged = _reconverged(alignment) if differences else None
    return _result(Kind.DIVERGENT, reason, detail, evidence, differences, reconverged)


def _result(
    kind: Kind,
    reason: Reason | None,
    detail: str,
    evidence: Evidence,
    differences: Sequence[Difference],
    reconverged: bool | None,
    regret: Regret | None = None,
    budget: Budget | None = None,
) -> Verdict:
    return Verdict(
        kind=kind,
        reason=reason,
        detail=detail,
        baseline_tokens=len(evidence.baseline.ids) if evidence.baseline else 0,
        variant_tokens=len(evidence.variant.ids) if evidence.variant else 0,
        differences=tuple(differences),
        reconverged=reconverged,
        regret=regret,
        budget=budget,
        epsilon=evidence.epsilon,
    )
