"""What must hold of every verdict, whatever the evidence: above all, that nothing passes without being shown."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from made import BEST, EOS, RULES, spell

from lossless.verdict import (
    Candidate,
    Epsilon,
    Evidence,
    Failure,
    Finish,
    Kind,
    OutputScores,
    Reason,
    StopRules,
    Transcript,
    Verdict,
    allow,
    judge,
    summarize,
    violations,
)
from lossless.verdict import given as bound

IDS = st.lists(st.sampled_from([EOS, 97, 98, 99, 0xE4, 0xB8, 0xAD]), max_size=24).map(tuple)
"""EOS, letters, and the three bytes of one Chinese character."""
FINISHES = st.sampled_from(
    [Finish("length"), Finish("stop", EOS), Finish("stop", "b"), Finish("stop"), Finish("abort")]
)
LOGPROBS = st.one_of(st.floats(-30, 0), st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, None]))
REGRETS = st.one_of(st.just(0.0), st.sampled_from([1 / 32, 1 / 16, 1 / 8, 1 / 4, 1.0, 20.0]))


def kept(rules: StopRules, transcript: Transcript) -> bool:
    return not violations(transcript, rules, spell)


@st.composite
def wild_transcripts(draw: st.DrawFn) -> Transcript:
    """Anything that a broken server may say."""
    ids = draw(IDS)
    return Transcript(
        ids=ids,
        text=draw(st.one_of(st.just(spell(ids, True)), st.text(max_size=4))),
        finish=draw(FINISHES),
        completion_tokens=draw(st.one_of(st.just(len(ids)), st.integers(0, 30))),
    )


@st.composite
def honest_transcripts(draw: st.DrawFn) -> Transcript:
    """What keeps every rule: up to 12 letters, then EOS or the cap of 12 tokens."""
    letters = draw(st.lists(st.sampled_from([97, 98, 99]), max_size=12).map(tuple))
    if len(letters) == 12:
        return Transcript(letters, spell(letters, True), Finish("length"), 12)
    ids = (*letters, EOS)
    return Transcript(ids, spell(ids, True), Finish("stop", EOS), len(ids))


SHORT = StopRules(max_new_tokens=12, eos_ids=(EOS,))


@st.composite
def wild_scores(draw: st.DrawFn, ids: tuple[int, ...]) -> OutputScores:
    """Any values, also such as no distribution has."""
    n = len(ids)
    tops = st.lists(
        st.builds(Candidate, st.integers(0, 99), LOGPROBS.map(lambda v: math.nan if v is None else v)), max_size=5
    )
    return OutputScores(
        ids,
        tuple(draw(st.lists(LOGPROBS, min_size=n, max_size=n))),
        tuple(tuple(draw(tops)) for _ in range(n)),
    )


@st.composite
def sound_scores(draw: st.DrawFn, baseline: tuple[int, ...], ids: tuple[int, ...]) -> OutputScores:
    """Values of real distributions; the other candidate is what the baseline said at that position."""
    logprobs, tops = [], []
    for t, token in enumerate(ids):
        regret = draw(REGRETS)
        other = baseline[t] if t < len(baseline) and baseline[t] != token else 255
        rival = BEST if regret else BEST - draw(st.sampled_from([0.0, 1 / 16, 1 / 4, 3.0]))
        logprobs.append(BEST - regret)
        tops.append((Candidate(token, BEST - regret), Candidate(other, rival)))
    return OutputScores(ids, tuple(logprobs), tuple(tops))


@st.composite
def cases(draw: st.DrawFn) -> Evidence:
    """Two honest transcripts (often alike), soundly scored."""
    baseline = draw(honest_transcripts())
    variant = draw(st.one_of(st.just(baseline), honest_transcripts()))
    return Evidence(
        baseline,
        variant,
        SHORT,
        bound(draw(st.sampled_from([1e-3, 1 / 16, 1 / 8, 1 / 2]))),
        scores=draw(sound_scores(baseline.ids, variant.ids)),
        own_rate=draw(st.sampled_from([0.0, 0.01, 0.1])),
        detokenize=spell,
    )


def proves(verdict: Verdict) -> bool:
    return verdict.passed() or verdict.passed(strict=True)


@given(
    st.one_of(st.none(), wild_transcripts()),
    st.one_of(st.none(), wild_transcripts()),
    st.one_of(st.none(), wild_transcripts()),
    st.booleans(),
    st.data(),
)
@settings(deadline=None, max_examples=80)
def test_every_evidence_gets_a_verdict_and_only_equals_are_identical(
    baseline: Transcript | None, variant: Transcript | None, repeat: Transcript | None, same: bool, data: st.DataObject
) -> None:
    if same:
        variant = baseline
    scores = None if variant is None else data.draw(st.one_of(st.none(), wild_scores(variant.ids)))
    verdict = judge(Evidence(baseline, variant, RULES, bound(0.125), scores, repeat, detokenize=spell))
    assert isinstance(verdict.detail, str)
    assert (verdict.reason is None) == (verdict.kind in (Kind.IDENTICAL, Kind.NEAR_TIE))
    if verdict.kind is Kind.IDENTICAL:
        assert baseline is not None
        assert variant is not None
        assert (baseline.ids, baseline.finish, baseline.text) == (variant.ids, variant.finish, variant.text)
        assert repeat is None or (repeat.ids, repeat.finish) == (baseline.ids, baseline.finish)
    if verdict.kind is Kind.NEAR_TIE and scores is not None:
        regret = summarize(scores)
        assert regret is not None
        assert regret.largest <= 0.125
    if baseline is None or variant is None:
        assert verdict.reason is Reason.MISSING


@given(cases())
@settings(deadline=None, max_examples=60)
def test_no_token_above_epsilon_passes(case: Evidence) -> None:
    verdict = judge(case)
    assert case.scores is not None
    assert case.baseline is not None
    assert case.variant is not None
    regret = summarize(case.scores)
    assert regret is not None
    if verdict.kind is Kind.NEAR_TIE:
        assert regret.largest <= case.epsilon.value
        assert all(d.gap is None or d.gap <= case.epsilon.value for d in verdict.differences)
        budget = allow(len(case.variant.ids), epsilon=case.epsilon.value, own_rate=case.own_rate)
        assert regret.count <= budget.count
        assert regret.total <= budget.total
    if case.baseline.ids == case.variant.ids:
        assert verdict.kind is Kind.IDENTICAL
    elif regret.largest > case.epsilon.value:
        assert verdict.kind is Kind.DIVERGENT


@given(cases(), st.floats(1.0, 8.0))
@settings(deadline=None, max_examples=60)
def test_a_larger_epsilon_never_turns_a_pass_into_a_failure(case: Evidence, factor: float) -> None:
    assume(judge(case).passed())
    assert judge(replace(case, epsilon=bound(case.epsilon.value * factor))).passed()


@given(cases(), st.integers(0, 11), st.sampled_from(["null", "nan", "zero", "no top", "null in top", "other token"]))
@settings(deadline=None, max_examples=80)
def test_damaged_scores_never_pass(case: Evidence, where: int, damage: str) -> None:
    """Even where every other token is the argmax, one position without sound evidence is enough."""
    scores = case.scores
    assert scores is not None
    assert case.baseline is not None
    assume(case.baseline.ids != scores.ids)
    t = where % len(scores.ids)
    logprobs, tops = list(scores.logprobs), list(scores.top)
    if damage == "null":
        logprobs[t] = None
    elif damage == "nan":
        logprobs[t] = math.nan
    elif damage == "zero":
        logprobs[t] = 0.0
    elif damage == "no top":
        tops[t] = ()
    elif damage == "null in top":
        tops[t] = (Candidate(7, math.nan), *tops[t])
    else:
        tops[t] = (Candidate(7, 0.0), Candidate(scores.ids[t], -12.0))
    broken = replace(case, scores=OutputScores(scores.ids, tuple(logprobs), tuple(tops)))
    assert not proves(judge(broken))


@given(cases())
@settings(deadline=None, max_examples=50)
def test_scores_of_another_output_never_pass(case: Evidence) -> None:
    assert case.scores is not None
    assert case.baseline is not None
    assume(case.scores.ids != case.baseline.ids)
    ids = (*case.scores.ids, EOS)
    other = OutputScores(ids, (*case.scores.logprobs, BEST), (*case.scores.top, case.scores.top[-1]))
    assert not judge(replace(case, scores=other)).passed()


@given(cases(), st.sampled_from([r for r in Reason if r is not Reason.GAP]))
@settings(deadline=None, max_examples=50)
def test_a_failed_control_is_always_inconclusive(case: Evidence, reason: Reason) -> None:
    verdict = judge(replace(case, failures=(Failure(reason, "planted"), Failure(Reason.MISSING, "another"))))
    assert (verdict.kind, verdict.reason, verdict.detail) == (Kind.INCONCLUSIVE, reason, "planted; another")
    assert not proves(verdict)


@given(cases())
@settings(deadline=None, max_examples=60)
def test_strict_passes_less_and_never_a_fork(case: Evidence) -> None:
    for evidence in (case, replace(case, scores=None)):
        verdict = judge(evidence)
        if verdict.passed(strict=True):
            assert verdict.passed()
            assert verdict.reconverged is not False
        elif verdict.passed():
            assert verdict.kind is Kind.NEAR_TIE
            assert verdict.label == "near-tie (forked)"


@given(cases())
@settings(deadline=None, max_examples=60)
def test_without_scores_no_fork_passes_and_where_scores_are_due_no_flip_does(case: Evidence) -> None:
    assert case.baseline is not None
    assert case.variant is not None
    unscored = judge(replace(case, scores=None))
    if unscored.kind is Kind.NEAR_TIE:
        assert unscored.reconverged
        assert unscored.differences[-1].to_end
    due = judge(replace(case, scores=None, unscored="the baseline died"))
    if case.baseline.ids != case.variant.ids:
        assert not proves(due)


@given(cases())
@example(Evidence(None, None, SHORT, bound(0.1)))
@settings(deadline=None, max_examples=50)
def test_without_an_epsilon_only_equals_pass(case: Evidence) -> None:
    unknown = Epsilon(math.nan, 2.0, 1e-3, 0.5, None, problem="not measured")
    verdict = judge(replace(case, epsilon=unknown))
    if case.baseline is None or case.variant is None or case.baseline.ids != case.variant.ids:
        assert not proves(verdict)
    else:
        assert verdict.kind is Kind.IDENTICAL


@given(honest_transcripts(), st.integers(1, 12))
@settings(deadline=None, max_examples=50)
def test_stopping_earlier_or_later_is_never_a_near_tie(longer: Transcript, cut: int) -> None:
    """One output is the beginning of the other, and every token is the argmax: no rounding explains it."""
    ids = longer.ids[: max(0, len(longer.ids) - cut)]
    shorter = Transcript(ids, spell(ids, True), Finish("stop", "b"), len(ids))
    top = (Candidate(1, BEST),)
    for baseline, variant in ((longer, shorter), (shorter, longer)):
        scores = OutputScores(variant.ids, (BEST,) * len(variant.ids), (top,) * len(variant.ids))
        verdict = judge(Evidence(baseline, variant, SHORT, bound(0.5), scores))  # no tokenizer: stop strings unseen
        assert verdict.kind is Kind.DIVERGENT
        assert verdict.reason in (Reason.LENGTH, Reason.STOP)


@pytest.mark.parametrize("rate", [0.0, 0.001, 0.01, 0.2])
def test_budget_grows_with_tokens_rate_and_epsilon(rate: float) -> None:
    budgets = [allow(n, epsilon=0.125, own_rate=rate) for n in range(1, 400)]
    assert all(a.count <= b.count and a.total <= b.total for a, b in pairwise(budgets))
    more = [allow(n, epsilon=0.25, own_rate=rate + 0.01) for n in range(1, 400)]
    assert all(a.count <= b.count and a.total < b.total for a, b in zip(budgets, more, strict=True))


def test_the_rules_of_these_tests_are_kept_by_honest_transcripts() -> None:
    assert kept(SHORT, Transcript((97, EOS), "a", Finish("stop", EOS), 2))
    assert kept(SHORT, Transcript((97,) * 12, "a" * 12, Finish("length"), 12))
