"""Logprobs that do not belong to the tokens they come with, and scores that contradict themselves."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import BEST, scores

from lossless.verdict import Candidate, OutputScores, summarize
from lossless.verdict.logprobs import Entry, misaligned, shifted

IDS = tuple(range(10, 30))
VALUES = [-0.01 - 0.37 * (t % 7) for t in range(len(IDS))]
GOOD: tuple[Entry, ...] = tuple(zip(VALUES, IDS, strict=True))


def test_good_ones_are_good() -> None:
    assert misaligned(IDS, len(IDS), GOOD) is None
    assert shifted(GOOD, tuple(VALUES), epsilon=1e-6) is None


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        (None, "none came"),
        (GOOD[:-1], "19 logprobs for 20 completion tokens"),
        ((*GOOD, (-1.0, 99)), "21 logprobs for 20"),
        ((), "0 logprobs"),
        (((-0.5, 9), *GOOD[:-1]), "position 0 is of token 9, but token 10 was emitted"),
        ((*GOOD[:5], (-0.5, 11), *GOOD[6:]), "position 5 is of token 11"),
        (tuple((0.0, i) for i in IDS), "all 20 logprobs are exactly 0"),
        ((*GOOD[:5], (None, 15), *GOOD[6:]), "position 5 is None"),
        ((*GOOD[:5], (math.nan, 15), *GOOD[6:]), "position 5 is nan"),
        ((*GOOD[:5], (-math.inf, 15), *GOOD[6:]), "position 5 is -inf"),
        ((*GOOD[:5], (0.5, 15), *GOOD[6:]), "position 5 is 0.5, above 0"),
    ],
    ids=[
        "none",
        "last missing",
        "one too many",
        "empty",
        "shifted",
        "other id",
        "zero",
        "null",
        "nan",
        "inf",
        "positive",
    ],
)
def test_misaligned(entries: tuple[Entry, ...] | None, says: str) -> None:
    message = misaligned(IDS, len(IDS), entries)
    assert message is not None
    assert says in message


def test_the_count_of_ids_matters_too() -> None:
    message = misaligned(IDS[:-1], len(IDS), GOOD)
    assert message == "20 logprobs for 19 output ids"


def test_a_few_certain_tokens_are_not_all_zero() -> None:
    assert misaligned(IDS[:7], 7, tuple((0.0, i) for i in IDS[:7])) is None


def test_values_shifted_by_one_are_found() -> None:
    moved = tuple(zip([VALUES[0], *VALUES[:-1]], IDS, strict=True))
    assert misaligned(IDS, len(IDS), moved) is None, "the ids are right, only the values moved"
    message = shifted(moved, tuple(VALUES), epsilon=0.125)
    assert message is not None
    assert "position 1 is -0.01" in message


@pytest.mark.parametrize("other", [-0.6, -20.0, -math.inf])
def test_a_confident_logprob_that_the_baseline_denies_is_found(other: float) -> None:
    """However improbable the baseline finds the token: one side calling it likely is enough to compare."""
    message = shifted(((-0.01, 5),), (other,), epsilon=0.125)
    assert message is not None
    assert shifted(((other, 5),), (-0.01,), epsilon=0.125) is not None


def test_what_is_not_compared() -> None:
    assert shifted(((None, 5), (-1.0, 6), (-7.0, 7)), (-1.0, None, -9.0), epsilon=0.125) is None


@given(st.lists(st.floats(-4.9, 0), min_size=1, max_size=20), st.floats(0, 0.12))
@settings(deadline=None)
def test_rounding_within_epsilon_is_no_shift(values: list[float], noise: float) -> None:
    entries = tuple((v, t) for t, v in enumerate(values))
    assert shifted(entries, tuple(v - noise for v in values), epsilon=0.125) is None


# ------------------------------------------------------------------------------ scores
def one(logprob: float | None, *top: tuple[int, float]) -> OutputScores:
    return OutputScores((5,), (logprob,), (tuple(Candidate(i, v) for i, v in top),))


@pytest.mark.parametrize(
    ("found", "regret"),
    [
        (one(-1.0, (5, -1.0), (6, -2.0)), 0.0),
        (one(-2.0, (6, -1.0), (5, -2.0)), 1.0),
        (one(-2.0, (5, -2.0), (6, -1.0)), 1.0),  # values decide, not the order
        (one(-9.0, (6, -1.0), (7, -2.0)), 8.0),  # outside the list
        (one(-math.inf, (6, -1.0)), math.inf),
        (one(0.0, (5, 0.0), (6, -30.0)), 0.0),
        (one(None, (5, -1.0)), None),
        (one(math.nan, (5, -1.0)), None),
        (one(-1.0), None),
        (one(-1.0, (6, math.nan), (5, -1.0)), None),  # the best one may be the one that is missing
        (one(-1.0, (6, math.nan)), None),
        (one(-1.0, (6, -math.inf)), None),
        (one(math.inf, (5, -1.0)), None),
        (one(0.0, (6, -1.0), (7, -2.0)), None),  # above the best: these belong to two positions
        (one(0.0, (5, -1.0), (6, -0.5)), None),  # two logprobs of one token
        (one(0.0, (5, 0.0), (6, 0.0)), None),  # probabilities add up to 2
        (one(0.5, (5, 0.5)), None),
    ],
)
def test_regret(found: OutputScores, regret: float | None) -> None:
    assert found.regret(0) == regret
    whole = summarize(found)
    assert (None if whole is None else whole.largest) == regret


def test_two_sums_of_one_logprob_may_differ_by_rounding() -> None:
    found = one(-1.00001, (5, -1.0), (6, -2.0))
    assert found.regret(0) == pytest.approx(1e-5)
    assert one(-0.99999, (5, -1.0), (6, -2.0)).regret(0) == 0


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="2 ids, 1 logprobs, 2 top lists"):
        OutputScores((1, 2), (BEST,), ((), ()))


def test_rank_and_gap() -> None:
    found = one(-2.0, (6, -1.0), (7, -1.0), (5, -2.0))
    assert [found.rank(0, i) for i in (6, 7, 5, 99)] == [1, 1, 3, None]
    assert found.top2_gap(0) == 0
    assert found.logprob_of(0, 7) == -1.0
    assert found.logprob_of(0, 99) is None
    assert one(-1.0, (5, -1.0)).top2_gap(0) is None


def test_a_summary() -> None:
    regret = summarize(scores(range(10), {3: 0.25, 7: 0.5, 8: 0.5}))
    assert regret is not None
    assert (regret.tokens, regret.count, regret.total, regret.largest, regret.largest_at) == (10, 3, 1.25, 0.5, 7)
    nothing = summarize(scores(()))
    assert nothing is not None
    assert (nothing.tokens, nothing.count, nothing.largest_at) == (0, 0, None)
