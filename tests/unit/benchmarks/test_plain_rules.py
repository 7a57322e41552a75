"""The plain rules of the detection benchmark, and the bound on a rate of false alarms."""

from collections.abc import Sequence

import pytest
from benchmarks.detection.rules import RULES, Pair, upper_95

from lossless.verdict import (
    Candidate,
    Evidence,
    Finish,
    OutputScores,
    StopRules,
    Transcript,
    given,
    judge,
)

EPSILON = 0.125
HONEST = (10, 11, 12, 13, 14, 15, 16, 17, 18, 19)


def pair(ids: Sequence[int], regrets: dict[int, float] | None = None, better: int = 1) -> Pair:
    """An output against HONEST; ``regrets`` in nats by position, with ``better`` candidates above the token there."""
    said = tuple(ids)
    top = []
    for t, token in enumerate(said):
        regret = (regrets or {}).get(t, 0.0)
        own = HONEST[t] if t < len(HONEST) else 90
        rows = [Candidate(token, -1.0 - regret)]
        if regret:
            rows += [Candidate(own, -1.0), *(Candidate(60 + n, -1.5 - n) for n in range(better - 1))]
        top.append(tuple(sorted(rows, key=lambda c: -c.logprob)[:5]))
    scores = OutputScores(said, tuple(-1.0 - (regrets or {}).get(t, 0.0) for t in range(len(said))), tuple(top))
    baseline, variant = (Transcript(x, str(x), Finish("length"), len(x)) for x in (HONEST, said))
    verdict = judge(Evidence(baseline, variant, StopRules(len(said)), given(EPSILON), scores))
    return Pair(baseline, variant, scores, verdict)


def flags(pairs: Sequence[Pair]) -> set[str]:
    return {name for name, rule in RULES.items() if rule(pairs)}


def test_equal_outputs_fail_no_rule() -> None:
    assert flags([pair(HONEST)] * 10) == set()


def test_a_harmless_flip_fails_text_equality_only() -> None:
    flipped = pair([10, 11, 50, *HONEST[3:]], {2: 0.0625})
    assert flags([pair(HONEST)] * 9 + [flipped]) == {"text equality"}


def test_one_wrong_token_slips_through_a_match_rate_and_a_top_5() -> None:
    wrong = pair([10, 11, 50, *HONEST[3:]], {2: 2.0})
    assert flags([pair(HONEST)] * 9 + [wrong]) == {"ours", "text equality"}
    assert "greedy gap 0.25, budget 1%" in flags([wrong])


def test_a_match_rate_needs_more_than_six_of_ten() -> None:
    wrong = pair([10, 11, 50, *HONEST[3:]], {2: 2.0})
    assert "match rate over 60%" not in flags([pair(HONEST)] * 7 + [wrong] * 3)
    assert "match rate over 60%" in flags([pair(HONEST)] * 6 + [wrong] * 4)


def test_top_5_looks_at_the_first_mismatch_only() -> None:
    first = pair([10, 11, 50, *HONEST[3:]], {2: 20.0}, better=6)
    later = pair([10, 11, 50, 51, *HONEST[4:]], {2: 0.0625, 3: 20.0})
    assert "top-5 at first mismatch" in flags([first])
    assert "top-5 at first mismatch" not in flags([later])
    assert "ours" in flags([later])


def test_many_small_errors_pass_a_greedy_gap_but_not_our_budget() -> None:
    ids = [50 + t if t % 2 else token for t, token in enumerate(HONEST)]
    small = pair(ids, dict.fromkeys(range(1, 10, 2), 0.1))
    assert str(small.ours.reason) == "budget"
    assert flags([small]) == {"ours", "text equality", "match rate over 60%"}


@pytest.mark.parametrize(
    ("failures", "trials", "bound"), [(0, 2000, 0.0015), (0, 1, 1.0), (0, 0, 1.0), (1, 100, 0.0466), (5, 100, 0.1023)]
)
def test_the_bound_on_a_rate(failures: int, trials: int, bound: float) -> None:
    assert upper_95(failures, trials) == pytest.approx(bound, abs=2e-4)
