"""Does the new baseline still say what the old one said? The old output, judged by the new baseline."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from lossless.analysis.analysis import BASELINE, Analysis
from lossless.analysis.judged import Judged
from lossless.analysis.load import stop_rules
from lossless.analysis.merge import MergedAnalysis
from lossless.record.plan import PLAIN, adjusted, not_scorable
from lossless.record.store import RecordedPrompt
from lossless.verdict import Evidence, Failure, Kind, OutputScores, Reason, Transcript, Verdict, judge

NAMES = ("new", "old")

Source = Literal["tokens", "re-scored", "re-scored by the old", "first flip", "not scorable", "none"]
"""What a verdict rests on. ``tokens``: they are equal, or one output ends early; no score is needed. ``re-scored``:
the new baseline re-scored the whole old output. ``re-scored by the old``: the old baseline re-scored the whole new
output. ``first flip``: only the token at the first difference is scored, because both share the prefix there.
``not scorable``: a penalty or grammar under which scores mean nothing. ``none``: no score at all."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One prompt: the old baseline's answer as the new baseline sees it (``judged.left`` is new, ``right`` old)."""

    judged: Judged
    source: Source

    @property
    def prompt(self) -> str:
        return self.judged.prompt.id

    @property
    def verdict(self) -> Verdict:
        return self.judged.verdict


def drift(old: Analysis, new: Analysis) -> tuple[Drift, ...]:
    """Every prompt of either run, in the old run's order, new ones last. What only one run has, what was sent
    differently, and what nobody re-scored is inconclusive."""
    ids = [*old.prompts, *(p for p in new.prompts if p not in old.prompts)]
    return tuple(_one(_home(old, p), _home(new, p), p) for p in ids if _sent(old, p) or _sent(new, p))


def counts(found: Iterable[Drift]) -> dict[str, int]:
    """Number of prompts by verdict; near-ties by whether they reconverge."""
    return dict(Counter(d.verdict.label if d.verdict.kind is Kind.NEAR_TIE else str(d.verdict.kind) for d in found))


def _sent(analysis: Analysis, prompt: str) -> bool:
    return prompt in analysis.prompts and analysis.inapplicable(prompt) is None


def _home(analysis: Analysis, prompt: str) -> Analysis:
    """The shard that recorded a prompt, where the run was merged from shards: each has a noise floor of its own."""
    shards = analysis.shards if isinstance(analysis, MergedAnalysis) else ()
    return next((shard for shard in shards if prompt in shard.prompts), analysis)


def _one(old: Analysis, new: Analysis, prompt_id: str) -> Drift:
    failures = _failures(old, new, prompt_id)
    prompt = (new if prompt_id in new.prompts else old).prompts[prompt_id]
    said, now = (a.baseline.transcript(PLAIN, prompt_id) for a in (old, new))
    judged = _judged(new, prompt, now, said, NAMES, failures)
    if now is None or said is None or failures:
        return Drift(judged, "none")
    verdict, scored = judged.verdict, new.scores(prompt, said) is not None
    if verdict.reason is Reason.UNSCORED and not scored:
        if old.scores(prompt, now) is not None:
            return Drift(_judged(old, prompt, said, now, (NAMES[1], NAMES[0])), "re-scored by the old")
        return _first_flip(new, judged, now, said)
    if not verdict.differences or verdict.reason is Reason.LENGTH:
        return Drift(judged, "tokens")
    return Drift(judged, "re-scored" if scored else "not scorable")


def _judged(
    by: Analysis,
    prompt: RecordedPrompt,
    own: Transcript | None,
    other: Transcript | None,
    names: tuple[str, str],
    failures: tuple[Failure, ...] = (),
) -> Judged:
    """The other run's output as one run's baseline sees it. Its text is not decoded again: another version may write
    it down in another way, and that shows where the tokens are equal."""
    evidence = Evidence(
        baseline=own,
        variant=other,
        rules=by.rules(prompt) if prompt.id in by.prompts else stop_rules(prompt, by.eos_ids),
        epsilon=by.epsilon,
        scores=by.scores(prompt, other) if other is not None and not failures else None,
        own_rate=by.noise.regret_rate,
        failures=failures,
        names=(f"{names[0]} baseline", f"{names[1]} baseline"),
        unscored=None
        if not_scorable(prompt.sampling)
        else f"the {names[0]} baseline has not re-scored the {names[1]} output",
    )
    return Judged(BASELINE, prompt, "upgrade", 0, judge(evidence), own, other, names)


def _failures(old: Analysis, new: Analysis, prompt_id: str) -> tuple[Failure, ...]:
    found = []
    for name, analysis in (("old", old), ("new", new)):
        if not _sent(analysis, prompt_id):
            found.append(Failure(Reason.MISSING, f"the {name} run has no such prompt"))
        elif analysis.baseline.transcript(PLAIN, prompt_id) is None:
            found.append(Failure(Reason.MISSING, f"the {name} {analysis.baseline.missing(PLAIN, prompt_id)}"))
    if not found and _request(old.prompts[prompt_id]) != _request(new.prompts[prompt_id]):
        found.append(Failure(Reason.NOT_A_PAIR, "the two runs sent different tokens or sampling parameters"))
    return tuple(found)


def _request(prompt: RecordedPrompt) -> tuple[object, ...]:
    return prompt.ids, prompt.sampling


def _first_flip(new: Analysis, judged: Judged, now: Transcript, said: Transcript) -> Drift:
    """What can be said without a re-scoring of the old output: the new baseline re-scored its own one, and up to the
    first difference the two are the same. A token further than epsilon from the argmax there is a divergence. A
    near-tie is proven only where nothing else differs: later tokens of the old output were never scored."""
    verdict, epsilon = judged.verdict, new.epsilon
    own = new.scores(judged.prompt, now)
    t = verdict.differences[0].variant_start
    if own is None or epsilon.problem or t >= len(own.ids):
        return Drift(judged, "none")
    gap, exact = _gap(own, t, said.ids[t], bounded=not adjusted(judged.prompt.sampling))
    if gap is None:
        return Drift(judged, "none")
    words = f"{'' if exact else 'at least '}{gap:.4g} nats"
    if gap > epsilon.limit:
        detail = (
            f"the old token at position {t} is {words} from the new baseline's argmax, epsilon is {epsilon.value:.4g}"
        )
        return Drift(replace(judged, verdict=_as(verdict, Kind.DIVERGENT, Reason.GAP, detail)), "first flip")
    if not exact:
        return Drift(judged, "none")
    where = f"flips at position {t} (gap {words}, epsilon {epsilon.value:.4g})"
    (first, *others) = verdict.differences
    if verdict.reconverged and not others and first.variant_end == t + 1:
        detail = f"{where}, the only token that differs"
        return Drift(replace(judged, verdict=_as(verdict, Kind.NEAR_TIE, None, detail)), "first flip")
    detail = f"{where}; the tokens after it were not re-scored"
    return Drift(replace(judged, verdict=_as(verdict, Kind.INCONCLUSIVE, Reason.UNSCORED, detail)), "first flip")


def _gap(scores: OutputScores, t: int, token: int, *, bounded: bool) -> tuple[float | None, bool]:
    """Distance of a token from the argmax at t in nats, and whether it is exact or only a lower bound: what is on no
    list is below the list's end, unless penalties reordered it (then not ``bounded``)."""
    best, found = scores.best(t), scores.logprob_of(t, token)
    if best is None or not scores.sound(t):
        return None, False
    if found is not None:
        return best - found, True
    return (best - min(c.logprob for c in scores.top[t]), False) if bounded else (None, False)


def _as(verdict: Verdict, kind: Kind, reason: Reason | None, detail: str) -> Verdict:
    return replace(verdict, kind=kind, reason=reason, detail=detail)
