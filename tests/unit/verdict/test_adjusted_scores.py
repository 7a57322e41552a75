"""Penalties applied to re-scored logprobs: against the plain formula, and never guessing beyond the list."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossless.verdict import Adjustment, Candidate, OutputScores, adjust, summarize

VOCABULARY = 8
LISTED = 5


def raw_scores(ids: tuple[int, ...], rows: list[list[float]], listed: int = LISTED) -> OutputScores:
    """Scores from whole rows of logprobs over the vocabulary, of which only the best few are listed."""
    top = tuple(
        tuple(Candidate(i, row[i]) for i in sorted(range(VOCABULARY), key=lambda i, row=row: -row[i])[:listed])
        for row in rows
    )
    return OutputScores(ids, tuple(row[i] for i, row in zip(ids, rows, strict=True)), top)


@st.composite
def outputs(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[float]]]:
    ids = tuple(draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=8)))
    rows = []
    for _ in ids:
        logits = draw(st.lists(st.floats(-6, 0), min_size=VOCABULARY, max_size=VOCABULARY))
        total = math.log(math.fsum(map(math.exp, logits)))
        rows.append([x - total for x in logits])
    return ids, rows


@given(outputs(), st.floats(0, 2), st.floats(0, 2), st.integers(0, 4), st.one_of(st.none(), st.integers(0, 7)))
@settings(deadline=None, max_examples=80)
def test_regret_is_that_of_the_whole_vocabulary_or_unknown(
    output: tuple[tuple[int, ...], list[list[float]]], frequency: float, presence: float, least: int, late: int | None
) -> None:
    ids, rows = output
    hidden = frozenset({0, 1})
    found = adjust(raw_scores(ids, rows), Adjustment(frequency, presence, least, hidden, late))
    for t, token in enumerate(ids):
        seen = Counter(ids[:t] if late is None or t == 0 else (late, *ids[: t - 1]))
        whole = [
            -math.inf if t < least and i in hidden else row - frequency * seen[i] - presence * (seen[i] > 0)
            for i, row in enumerate(rows[t])
        ]
        regret = found.regret(t)
        if regret is not None:
            assert regret == pytest.approx(max(whole) - whole[token])
        else:
            assert max(whole) < min(c.logprob for c in raw_scores(ids, rows).top[t]), "only an unlisted token may win"


def test_without_penalties_nothing_changes() -> None:
    scores = raw_scores((1, 2), [[-2.0 - 0.1 * i for i in range(VOCABULARY)]] * 2)
    assert adjust(scores, Adjustment()) == scores


def test_where_the_list_is_too_short_evidence_is_missing() -> None:
    """All listed tokens are pushed below the line: what is unlisted may be the argmax."""
    rows = [[-1.0, -1.1, *[-3.0] * (VOCABULARY - 2)]] * 3
    short = adjust(raw_scores((0, 1, 0), rows, listed=2), Adjustment(presence_penalty=2.0))
    assert [short.regret(t) for t in range(3)] == [0.0, 0.0, None]
    assert summarize(short) is None


def test_a_hidden_stop_token_is_infinitely_bad() -> None:
    rows = [[-0.1, *[-4.0] * (VOCABULARY - 1)]]
    found = adjust(raw_scores((0,), rows), Adjustment(min_new_tokens=1, hidden_ids=frozenset({0})))
    assert found.regret(0) == math.inf


def test_missing_logprobs_stay_missing() -> None:
    scores = OutputScores((1, 2), (None, -1.0), ((Candidate(1, -1.0),), (Candidate(2, -1.0), Candidate(3, math.nan))))
    found = adjust(scores, Adjustment(frequency_penalty=1.0))
    assert [found.regret(t) for t in (0, 1)] == [None, None]
