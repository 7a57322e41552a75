"""Where a fault probably lies: hints from evidence, for one answer and for all answers of a variant.

A hint names a kind of fault that would explain what was seen, and what speaks for it. It is never a certainty and
touches no verdict. The rules are in ``hint_rules``.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from lossless.analysis import fault_kinds as kinds
from lossless.analysis.analysis import BASELINE, Analysis
from lossless.analysis.hint_cases import Case, Seen, Suspicion
from lossless.analysis.hint_rules import suspicions
from lossless.analysis.judged import Judged
from lossless.verdict import Kind, Reason

SHOWN = 3  # hints worth reading; what comes after them is guesswork
FEW_NAMES = 4


@dataclass(frozen=True, slots=True)
class Hint:
    """A likely kind of fault. ``sentence`` is worded as a guess, ``evidence`` says what it rests on, ``reports`` are
    public reports of the same kind."""

    kind: str
    sentence: str
    evidence: str
    reports: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}? {self.sentence} ({self.evidence})"


_SEEN: WeakKeyDictionary[Analysis, dict[str, Seen]] = WeakKeyDictionary()


def hints(analysis: Analysis, judged: Judged) -> tuple[Hint, ...]:
    """The likeliest kinds of fault behind one answer that did not pass, best first, at most three.

    Empty for an answer that passed, one that a known issue of the server's version explains, and one that is not a
    variant's answer of this run.
    """
    if judged.variant not in analysis.manifest.variants or judged.verdict.passed() or analysis.is_known(judged):
        return ()
    answer = analysis.servers[judged.variant].answers.get((judged.stage, judged.prompt.id, judged.turn))
    if answer is None and judged.verdict.kind is Kind.DIVERGENT:
        return ()  # made elsewhere: a replay, say
    found = suspicions(Case(judged, answer), _seen(analysis, judged.variant))
    return tuple(_hint(s.kind, s.sentence, s.evidence) for s in found[:SHOWN])


def run_hints(analysis: Analysis, variant: str) -> tuple[Hint, ...]:
    """The likeliest kinds of fault of a variant over the whole run, best first, at most three; their evidence counts
    the answers ("7 of 7 divergent answers are prefix-cache hits").

    Divergent answers speak first; inconclusive ones only where nothing is divergent.
    """
    seen = _seen(analysis, variant)
    bad = [c for c in seen.divergent if not analysis.is_known(c.judged)]
    word = "divergent"
    if not bad:
        bad, word = [c for c in seen.cases if c.judged.verdict.kind is Kind.INCONCLUSIVE], "inconclusive"
    by_kind: dict[str, list[tuple[Suspicion, str]]] = defaultdict(list)
    for case in bad:
        for suspicion in suspicions(case, seen):
            by_kind[suspicion.kind].append((suspicion, case.prompt_id))

    def weight(found: list[tuple[Suspicion, str]]) -> float:
        return sum(s.weight for s, _ in found) / len(bad)

    ordered = sorted(by_kind.values(), key=weight, reverse=True)
    found = [_summed(group, len(bad), word) for group in ordered]
    if word == "divergent":  # wrong tokens explain wrong logprobs
        return tuple(found[:SHOWN])
    return tuple([*_logprobs(analysis, variant), *found][:SHOWN])


def _seen(analysis: Analysis, variant: str) -> Seen:
    """Judging a whole run takes a while, and every red line asks for it."""
    kept = _SEEN.setdefault(analysis, {})
    if variant not in kept:
        kept[variant] = Seen.of(analysis, variant)
    return kept[variant]


def _summed(found: list[tuple[Suspicion, str]], total: int, word: str) -> Hint:
    feature = _most(found, lambda s: s.feature)
    with_it = [(s, prompt) for s, prompt in found if s.feature == feature]
    best = max((s for s, _ in with_it), key=lambda s: s.weight)
    names = list(dict.fromkeys(prompt for _, prompt in with_it))
    shown = ", ".join(names[:FEW_NAMES]) + (" …" if len(names) > FEW_NAMES else "")
    answers = "answer" if total == 1 else "answers"
    evidence = f"{len(with_it)} of {total} {word} {answers} {feature}: {shown}"
    return _hint(best.kind, best.sentence, evidence)


def _most(found: list[tuple[Suspicion, str]], key: Callable[[Suspicion], str]) -> str:
    weights: dict[str, float] = defaultdict(float)
    for suspicion, _ in found:
        weights[key(suspicion)] += suspicion.weight
    return max(weights, key=lambda k: weights[k])


def _logprobs(analysis: Analysis, variant: str) -> list[Hint]:
    """Wrong logprobs of right tokens: verdicts, which come from tokens, do not see them."""
    found: dict[str, str] = {}
    for prompt_id in analysis.prompts:
        own = analysis.broken_rules(variant, prompt_id)
        ours = next((v.message for v in own if v.reason is Reason.LOGPROBS), None)
        baseline = (v.reason for v in analysis.broken_rules(BASELINE, prompt_id)) if ours else ()
        if ours is not None and Reason.LOGPROBS not in baseline:
            found[prompt_id] = ours
    if not found:
        return []
    prompt_id, message = next(iter(found.items()))
    evidence = f"{len(found)} prompts, such as {prompt_id}: {message}"
    return [_hint(kinds.LOGPROBS, "the logprobs are not those of the tokens", evidence)]


def _hint(kind: str, sentence: str, evidence: str) -> Hint:
    return Hint(kind, sentence, evidence, kinds.REPORTS[kind])
