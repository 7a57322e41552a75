"""Figures from samples with known times."""

import pytest
from bench_made import sample

from lossless.bench.figures import (
    Figure,
    accept_length,
    aggregate_rate,
    decode_rate,
    figure,
    first_token,
    prefill_rate,
    ratio,
)


def test_decode_speed_leaves_out_the_first_piece() -> None:
    """21 tokens, 1 of them in the first piece: 20 tokens in 4 s are 5 a second, whatever the prefill took."""
    assert decode_rate([sample(tokens=21, decode_s=4.0)]) == 5.0
    assert decode_rate([sample(tokens=21, decode_s=4.0, first_tokens=5)]) == 4.0


def test_prompts_of_a_repeat_are_pooled_tokens_over_seconds() -> None:
    """20 tokens in 1 s and 20 in 3 s are 10 a second, not the mean of 20 and 6.7."""
    assert decode_rate([sample(decode_s=1.0), sample(decode_s=3.0)]) == 10.0


def test_an_answer_in_one_piece_has_no_speed() -> None:
    assert decode_rate([sample(tokens=1, decode_s=0.0)]) is None
    assert aggregate_rate([sample(tokens=1, decode_s=0.0)]) is None


def test_streams_together_run_from_the_first_piece_of_any_to_the_last_of_any() -> None:
    early = sample(first_s=0.5, last_s=2.5)
    late = sample(first_s=1.5, last_s=4.5)
    assert aggregate_rate([early, late]) == 40 / 4.0
    assert decode_rate([early, late]) == 40 / 5.0


def test_time_to_first_token_and_prefill() -> None:
    group = [sample(sent_s=0.0, first_s=0.5), sample(sent_s=0.25, first_s=1.75)]
    assert first_token(group) == 1.0
    assert prefill_rate(group) == 200 / 2.0


def test_accept_length_is_tokens_over_verify_steps() -> None:
    assert accept_length([sample(tokens=20, verify_steps=5), sample(tokens=10, verify_steps=5)]) == 3.0


def test_an_answer_without_verify_steps_counts_as_one_token_a_step() -> None:
    assert accept_length([sample(tokens=20, verify_steps=None)]) == 1.0
    assert accept_length([sample(tokens=20, verify_steps=0)]) == 1.0
    assert accept_length([sample(tokens=20, verify_steps=5), sample(tokens=20)]) == 40 / 25


def test_a_single_token_says_nothing_of_acceptance() -> None:
    assert accept_length([sample(tokens=1)]) is None


def test_a_figure_is_the_median_with_its_spread() -> None:
    found = figure(
        [sample(repeat=k, decode_s=s) for k, s in enumerate((2.0, 4.0, 1.0))], decode_rate, repeats=3, size=1
    )
    assert (found.median, found.low, found.high, found.missing) == (10.0, 5.0, 20.0, 0)


def test_a_repeat_with_a_failed_or_missing_request_has_no_value() -> None:
    samples = [
        sample(repeat=0, task="a"),
        sample(repeat=0, task="b", problem="refused"),
        sample(repeat=1, task="a"),
        sample(repeat=2, task="a"),
        sample(repeat=2, task="b"),
    ]
    found = figure(samples, decode_rate, repeats=3, size=2)
    assert found.values == (20.0,)
    assert found.missing == 2


def test_nothing_measured_is_missing_and_not_0() -> None:
    found = figure([], decode_rate, repeats=3, size=1)
    assert (found.median, found.low, found.high, found.missing) == (None, None, None, 3)
    assert not found.unfit


def test_no_room_is_told_apart_from_missing() -> None:
    unfit = [sample(repeat=k, problem="no room", unfit=True) for k in range(2)]
    assert figure(unfit, decode_rate, repeats=2, size=1).unfit
    assert not figure([*unfit, sample(repeat=2)], decode_rate, repeats=3, size=1).unfit


def test_a_ratio_of_medians_with_the_range_of_both_spreads() -> None:
    found = ratio(Figure((80.0, 90.0, 100.0), 3), Figure((40.0, 45.0, 50.0), 3))
    assert found is not None
    assert (found.value, found.low, found.high) == (2.0, 1.6, 2.5)
    assert found.distinguishable


@pytest.mark.parametrize(
    ("ours", "theirs", "apart"),
    [
        ((50.0, 60.0), (40.0, 49.9), True),
        ((50.0, 60.0), (40.0, 50.0), False),
        ((30.0, 60.0), (40.0, 50.0), False),
        ((30.0, 39.0), (40.0, 50.0), True),
        ((60.0,), (40.0, 50.0), False),
        ((60.0, 61.0), (40.0,), False),
    ],
)
def test_spreads_that_overlap_are_not_told_apart(
    ours: tuple[float, ...], theirs: tuple[float, ...], apart: bool
) -> None:
    found = ratio(Figure(ours, 2), Figure(theirs, 2))
    assert found is not None
    assert found.distinguishable is apart


def test_no_ratio_without_values() -> None:
    assert ratio(Figure((), 3), Figure((1.0,), 3)) is None
    assert ratio(Figure((1.0,), 3), Figure((), 3)) is None
    assert ratio(Figure((1.0,), 3), Figure((0.0,), 3)) is None
