"""Every verdict and every reason, each from a planted cause."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from made import BEST, EOS, ended, evidence, said, scores

from lossless.verdict import (
    Candidate,
    Epsilon,
    Evidence,
    Failure,
    Finish,
    Kind,
    OutputScores,
    Reason,
    Transcript,
    given,
    judge,
)
from lossless.verdict.logprobs import misaligned

LONG = "the quick brown fox jumps over the lazy dog"
AT = LONG.index("q")
FLIPPED = LONG.replace("quick", "Quick")
FORKED = LONG[:AT] + "Xyz"
NO_EPSILON = Epsilon(math.nan, 2.0, 1e-3, 0.5, None, problem="the noise floor was measured on 3 tokens")


def flip(regret: float, *, text: str = FLIPPED, later: dict[int, float] | None = None) -> Evidence:
    """One token differs at position AT, so far below the argmax; ``later`` adds regrets at other positions."""
    baseline, variant = said(ended(LONG)), said(ended(text))
    found = scores(variant.ids, {AT: regret, **(later or {})}, {AT: baseline.ids[AT]})
    return evidence(baseline, variant, scores=found)


def same(**more: object) -> Evidence:
    return evidence(said(ended(LONG)), said(ended(LONG)), **more)


@dataclass(frozen=True)
class Case:
    """What is planted, and what has to come out; ``says`` is part of the detail."""

    name: str
    make: Callable[[], Evidence]
    kind: Kind
    reason: Reason | None
    says: str


def _variant(**change: object) -> Evidence:
    case = same()
    assert case.variant is not None
    return replace(case, variant=replace(case.variant, **change))  # type: ignore[arg-type]


def _transcripts(baseline: Transcript, variant: Transcript) -> Callable[[], Evidence]:
    return lambda: evidence(baseline, variant, scores=scores(variant.ids) if variant.ids else None)


def _many_second_choices() -> Evidence:
    """Each of 30 tokens is a second choice 1/100 nat below the argmax: none is suspicious, all together are."""
    case = flip(0.01)
    assert case.variant is not None
    found = scores(case.variant.ids, dict.fromkeys(range(AT, AT + 30), 0.01))
    top = list(found.top)
    assert case.baseline is not None
    top[AT] = (Candidate(case.baseline.ids[AT], BEST), *top[AT][1:])
    return replace(case, scores=replace(found, top=tuple(top)))


def _much_in_total() -> Evidence:
    """Few tokens, each at the very edge of epsilon."""
    return flip(0.125, later={AT + 5: 0.125, AT + 6: 0.125})


def _disowned(position_in_list: bool) -> Evidence:
    """The variant's token is the argmax; the baseline's own token is far below, or not in the list at all."""
    case = flip(0.0)
    assert case.scores is not None
    assert case.baseline is not None
    top = list(case.scores.top)
    own = Candidate(case.baseline.ids[AT], -9.0) if position_in_list else Candidate(77, -9.0)
    top[AT] = (top[AT][0] if top[AT][0].token_id == case.scores.ids[AT] else top[AT][1], own)
    return replace(case, scores=replace(case.scores, top=tuple(top)))


def _with(case: Evidence, **change: object) -> Callable[[], Evidence]:
    return lambda: replace(case, **change)  # type: ignore[arg-type]


def _scores_without(position: int) -> Evidence:
    case = flip(0.0)
    assert case.scores is not None
    logprobs = list(case.scores.logprobs)
    logprobs[position] = None
    return replace(case, scores=replace(case.scores, logprobs=tuple(logprobs)))


def _all_zero_scores() -> Evidence:
    """A server that answers 0.0 for every logprob must not look as if every token were the argmax."""
    case = flip(3.0)
    assert case.scores is not None
    return replace(case, scores=replace(case.scores, logprobs=(0.0,) * len(case.scores.ids)))


def _shifted_scores() -> Evidence:
    """Logprobs of the emitted tokens that belong to the position before."""
    case = flip(3.0)
    assert case.scores is not None
    moved = (BEST, *case.scores.logprobs[:-1])
    return replace(case, scores=replace(case.scores, logprobs=moved))


CASES = (
    Case("equal", same, Kind.IDENTICAL, None, f"all {len(LONG) + 1} tokens equal"),
    Case("equal without scores or tokenizer", lambda: same(detokenize=None), Kind.IDENTICAL, None, "tokens equal"),
    Case("a flip within epsilon", lambda: flip(0.0625), Kind.NEAR_TIE, None, f"flips at position {AT} (gap 0.0625"),
    Case("a flip at epsilon exactly", lambda: flip(0.125), Kind.NEAR_TIE, None, "gap 0.125 nats"),
    Case("an exact tie", lambda: flip(0.0), Kind.NEAR_TIE, None, "an exact 2-way tie"),
    Case("a fork within epsilon", lambda: flip(0.0625, text=FORKED), Kind.NEAR_TIE, None, "and forks"),
    Case("a flip not re-scored", _with(flip(9.0), scores=None), Kind.NEAR_TIE, None, "not re-scored"),
    Case("a flip above epsilon", lambda: flip(0.126), Kind.DIVERGENT, Reason.GAP, "the first difference is 0.126"),
    Case(
        "a second flip above epsilon",
        lambda: flip(0.0, text=FLIPPED.replace("lazy", "Lazy"), later={LONG.index("l"): 2.0}),
        Kind.DIVERGENT,
        Reason.GAP,
        f"position {LONG.index('lazy')} is 2 nats",
    ),
    Case(
        "an equal token above epsilon",
        lambda: flip(0.0, later={AT + 9: 0.2}),
        Kind.DIVERGENT,
        Reason.REGRET,
        f"position {AT + 9} is 0.2 nats",
    ),
    Case("many second choices", _many_second_choices, Kind.DIVERGENT, Reason.BUDGET, "30 of 44 tokens"),
    Case("much regret in total", _much_in_total, Kind.DIVERGENT, Reason.BUDGET, "add up to 0.375"),
    Case(
        "tokens after EOS",
        _transcripts(said(ended(LONG)), said((*ended(LONG), 97, 98), Finish("stop", 98))),
        Kind.DIVERGENT,
        Reason.STOP,
        "2 tokens follow the stop token 0",
    ),
    Case("another finish reason", lambda: _variant(finish=Finish("stop")), Kind.DIVERGENT, Reason.STOP, "finish is"),
    Case(
        "length instead of stop",
        lambda: _variant(finish=Finish("length")),
        Kind.DIVERGENT,
        Reason.LENGTH,
        "finish reason is length after 44 of 64",
    ),
    Case("miscounted", lambda: _variant(completion_tokens=45), Kind.DIVERGENT, Reason.LENGTH, "completion_tokens"),
    Case(
        "cut short",
        _transcripts(said(b"a" * 64), said(b"a" * 63, Finish("length"))),
        Kind.DIVERGENT,
        Reason.LENGTH,
        "length after 63 of 64",
    ),
    Case(
        "too long",
        _transcripts(said(b"a" * 64), said(b"a" * 65, Finish("length"))),
        Kind.DIVERGENT,
        Reason.STOP,
        "65 tokens, but max_new_tokens is 64",
    ),
    Case("another text", lambda: _variant(text=LONG + "!"), Kind.DIVERGENT, Reason.TEXT, "text is not the detokenized"),
    Case(
        "another text, no tokenizer",
        lambda: replace(_variant(text=LONG + "!"), detokenize=None),
        Kind.DIVERGENT,
        Reason.TEXT,
        "another text",
    ),
    Case(
        "a fork not re-scored",
        _with(flip(0.0, text=FORKED), scores=None),
        Kind.DIVERGENT,
        Reason.UNPROVEN_FORK,
        f"differs from position {AT} on",
    ),
    Case("no baseline", _with(same(), baseline=None), Kind.INCONCLUSIVE, Reason.MISSING, "the baseline gave no answer"),
    Case("no variant", _with(same(), variant=None), Kind.INCONCLUSIVE, Reason.MISSING, "the variant gave no answer"),
    Case(
        "the second run says something else",
        _with(same(), repeat=said(ended(FLIPPED))),
        Kind.INCONCLUSIVE,
        Reason.NOT_REPEATABLE,
        f"first at position {AT}",
    ),
    Case(
        "the second run ends otherwise",
        _with(same(), repeat=said(ended(LONG), Finish("stop", "g"))),
        Kind.INCONCLUSIVE,
        Reason.NOT_REPEATABLE,
        "the end (finish reason)",
    ),
    *(
        Case(
            f"failed control: {reason}",
            _with(same(), failures=(Failure(reason, "planted"),)),
            Kind.INCONCLUSIVE,
            reason,
            "planted",
        )
        for reason in (Reason.NOT_A_PAIR, Reason.NO_SPECULATION, Reason.MISSING, Reason.NOT_REPEATABLE)
    ),
    Case("no epsilon", _with(flip(0.0), epsilon=NO_EPSILON), Kind.INCONCLUSIVE, Reason.NO_EPSILON, "on 3 tokens"),
    Case("equal, and no epsilon", lambda: same(epsilon=NO_EPSILON), Kind.IDENTICAL, None, "tokens equal"),
    Case("one score missing", lambda: _scores_without(3), Kind.INCONCLUSIVE, Reason.UNSCORED, "lacks logprobs"),
    Case("the flip's score missing", lambda: _scores_without(AT), Kind.INCONCLUSIVE, Reason.UNSCORED, "lacks logprobs"),
    Case("all scores zero", _all_zero_scores, Kind.INCONCLUSIVE, Reason.UNSCORED, "lacks logprobs"),
    Case("scores shifted by one", _shifted_scores, Kind.INCONCLUSIVE, Reason.UNSCORED, "lacks logprobs"),
    Case(
        "scores of another output",
        _with(flip(0.0), scores=scores(ended(LONG))),
        Kind.INCONCLUSIVE,
        Reason.UNSCORED,
        "not the variant's output",
    ),
    Case(
        "scores that should be there",
        _with(flip(0.0), scores=None, unscored="the baseline died"),
        Kind.INCONCLUSIVE,
        Reason.UNSCORED,
        "the baseline died",
    ),
    Case(
        "the baseline disowns its token",
        lambda: _disowned(True),
        Kind.INCONCLUSIVE,
        Reason.CONTRADICTION,
        "own token 8 nats below",
    ),
    Case(
        "the baseline does not know its token",
        lambda: _disowned(False),
        Kind.INCONCLUSIVE,
        Reason.CONTRADICTION,
        "not among the 2 best",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name.replace(" ", "-"))
def test_verdict(case: Case) -> None:
    verdict = judge(case.make())
    assert (verdict.kind, verdict.reason) == (case.kind, case.reason), verdict.detail
    assert case.says in verdict.detail


def test_every_kind_and_reason_is_planted() -> None:
    """LOGPROBS is no verdict of its own: see test_verdict_logprobs.py, and the rules in test_analysis_rules.py."""
    assert {c.kind for c in CASES} == set(Kind)
    assert {c.reason for c in CASES} == {*Reason, None} - {Reason.LOGPROBS}
    assert misaligned((5,), 1, None) is not None


def test_what_a_near_tie_tells() -> None:
    verdict = judge(flip(0.0625))
    (difference,) = verdict.differences
    assert (difference.baseline_start, difference.variant_end) == (AT, AT + 1)
    assert difference.gap == difference.top2_gap == 0.0625
    assert (difference.rank, difference.ties) == (2, 1)
    assert difference.baseline_token is not None
    assert difference.variant_token is not None
    assert (difference.baseline_token.token_id, difference.baseline_token.logprob) == (ord("q"), BEST)
    assert (difference.variant_token.token_id, difference.variant_token.logprob) == (ord("Q"), BEST - 0.0625)
    assert difference.argmax == difference.baseline_token
    assert (difference.reconverged_for, difference.to_end) == (len(LONG) - AT, True)
    assert verdict.regret is not None
    assert (verdict.regret.count, verdict.regret.largest_at, verdict.regret.total) == (1, AT, 0.0625)
    assert verdict.label == "near-tie (reconverged)"
    assert verdict.passed(strict=True)
    assert (verdict.baseline_tokens, verdict.variant_tokens) == (len(LONG) + 1, len(LONG) + 1)


def test_a_fork_passes_unless_strict() -> None:
    verdict = judge(flip(0.0625, text=FORKED))
    assert verdict.label == "near-tie (forked)"
    assert verdict.passed()
    assert not verdict.passed(strict=True)


def test_a_tie_that_the_baselines_token_is_not_part_of_is_not_called_one() -> None:
    """The variant's token ties with a third one; the baseline's own lies a sixteenth below both."""
    case = flip(0.0)
    assert case.scores is not None
    assert case.baseline is not None
    top = list(case.scores.top)
    top[AT] = (Candidate(ord("Q"), -2.0), Candidate(7, -2.0), Candidate(ord("q"), -2.0625))
    logprobs = (*case.scores.logprobs[:AT], -2.0, *case.scores.logprobs[AT + 1 :])
    verdict = judge(replace(case, scores=OutputScores(case.scores.ids, logprobs, tuple(top))))
    assert "gap 0.0625 nats the other way round" in verdict.detail
    assert verdict.kind is Kind.NEAR_TIE


def test_a_three_way_tie_is_named() -> None:
    case = flip(0.0)
    assert case.scores is not None
    top = list(case.scores.top)
    top[AT] = (Candidate(7, -2.0), Candidate(ord("q"), -2.0), Candidate(ord("Q"), -2.0))
    logprobs = (*case.scores.logprobs[:AT], -2.0, *case.scores.logprobs[AT + 1 :])
    verdict = judge(replace(case, scores=OutputScores(case.scores.ids, logprobs, tuple(top))))
    assert "an exact 3-way tie" in verdict.detail
    assert verdict.differences[0].ties == 3


def test_both_servers_breaking_a_rule_alike_is_not_speculation() -> None:
    """A length finish at EOS, as SGLang 0.5.17 has it, on both sides."""
    odd = said((*b"a" * 63, EOS), Finish("length"))
    assert judge(evidence(odd, odd)).kind is Kind.IDENTICAL
    worse = replace(odd, completion_tokens=65)
    assert judge(evidence(odd, worse)).reason is Reason.LENGTH


def test_where_the_baselines_text_is_no_detokenized_ids_either_a_flip_is_no_text_fault() -> None:
    """Then our detokenizer is not the server's (one that cleans up spaces, say); only tokens can be compared."""
    case = flip(0.0)
    assert case.baseline is not None
    assert case.variant is not None
    cleaned = replace(case, baseline=replace(case.baseline, text="x"), variant=replace(case.variant, text="y"))
    assert judge(cleaned).kind is Kind.NEAR_TIE
    assert judge(replace(case, variant=replace(case.variant, text="y"))).reason is Reason.TEXT


def test_a_stop_fault_still_shows_where_the_tokens_part() -> None:
    verdict = judge(evidence(said(ended(LONG)), said((*ended(LONG), 97), Finish("stop", 97))))
    assert verdict.reason is Reason.STOP
    (difference,) = verdict.differences
    assert (difference.variant_start, difference.variant_end) == (len(LONG) + 1, len(LONG) + 2)
    assert difference.baseline_token is None


def test_names_appear_in_sentences() -> None:
    case = replace(evidence(said(ended("abc")), said(ended("abcd"))), names=("alone", "at once"))
    assert judge(replace(case, baseline=None)).detail == "the alone gave no answer"
    cut = evidence(said(ended("abc")), said(b"abc", Finish("stop", "c")), detokenize=None)
    assert "the at once ends after 3 tokens" in judge(replace(cut, names=("alone", "at once"))).detail


def test_a_given_epsilon_replaces_a_floor_that_could_not_be_measured() -> None:
    assert judge(replace(flip(0.4), epsilon=given(0.5))).kind is Kind.NEAR_TIE
