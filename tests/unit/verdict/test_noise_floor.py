"""The noise floor: what widens it, what does not, and when there is none."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossless.verdict import NoiseSample, calibrate, measure
from lossless.verdict import given as bound
from lossless.verdict.noise import DEFAULT_CAP, DEFAULT_K, DEFAULT_MINIMUM, MIN_TOKENS, quantile

FLOOR = 1 / 16


def sample(shift: float = 0.0, regret: float = 0.0) -> NoiseSample:
    """A position whose decode and re-scored logprobs are ``shift`` apart."""
    return NoiseSample(-2.0, -2.0 - shift, regret)


def usual(n: int = 500) -> list[NoiseSample]:
    """Mostly exact, five positions at one bfloat16 step."""
    return [sample()] * (n - 5) + [sample(FLOOR)] * 3 + [sample(0.0, FLOOR)] * 2


@pytest.mark.parametrize("outliers", [0, 1, 2])
def test_two_freak_positions_do_not_widen_the_floor(outliers: int) -> None:
    floor = measure([*usual(), *[sample(9.0, 7.0)] * outliers])
    assert floor.value == FLOOR
    assert calibrate(floor).value == DEFAULT_K * FLOOR
    assert floor.tokens == 500 + outliers
    assert floor.max_shift == (9.0 if outliers else FLOOR)
    assert floor.max_regret == (7.0 if outliers else FLOOR)


def test_a_third_one_is_the_floor_and_above_the_cap_there_is_no_epsilon() -> None:
    floor = measure([*usual(), *[sample(0.0, 9.0)] * 3])
    assert floor.value == 9.0
    epsilon = calibrate(floor)
    assert epsilon.problem is not None
    assert f"above the cap of {DEFAULT_CAP:g}" in epsilon.problem
    assert epsilon.describe().startswith("no epsilon: ")
    assert epsilon.value <= DEFAULT_CAP


def test_shift_and_regret_count_alike() -> None:
    by_shift, by_regret = measure([*usual(), *[sample(0.3)] * 3]), measure([*usual(), *[sample(0.0, 0.3)] * 3])
    assert by_shift.value == pytest.approx(0.3)
    assert by_regret.value == 0.3
    assert by_regret.regret_count == 5
    assert by_regret.regret_rate == 5 / 503


@pytest.mark.parametrize("tokens", [0, 1, 2, MIN_TOKENS - 1])
def test_too_few_tokens_are_a_problem(tokens: int) -> None:
    epsilon = calibrate(measure([sample()] * tokens))
    assert epsilon.problem == f"the noise floor was measured on {tokens} tokens, at least {MIN_TOKENS} are needed"


def test_enough_tokens_are_none() -> None:
    epsilon = calibrate(measure([sample()] * MIN_TOKENS))
    assert epsilon.problem is None
    assert epsilon.value == DEFAULT_MINIMUM


@pytest.mark.parametrize(
    "missing",
    [
        NoiseSample(None, -2.0, 0.0),
        NoiseSample(-2.0, None, 0.0),
        NoiseSample(-2.0, -2.0, None),
        NoiseSample(math.nan, -2.0, 0.0),
        NoiseSample(-2.0, math.nan, 0.0),
        NoiseSample(-math.inf, -math.inf, 0.0),
    ],
)
def test_missing_evidence_is_counted_and_never_guessed(missing: NoiseSample) -> None:
    floor = measure([*usual(), *[missing] * 50])
    assert (floor.tokens, floor.missing, floor.value) == (500, 50, FLOOR)
    assert calibrate(measure([missing] * 500)).problem is not None


def test_an_infinite_disagreement_is_a_problem() -> None:
    epsilon = calibrate(measure([*usual(), *[NoiseSample(-math.inf, -1.0, 0.0)] * 3]))
    assert epsilon.problem == "the noise floor is not a number"


@given(st.floats(0, DEFAULT_CAP), st.floats(0.5, 5), st.floats(1e-4, 0.1))
@settings(deadline=None)
def test_epsilon_is_the_clamped_floor(value: float, k: float, minimum: float) -> None:
    epsilon = calibrate(measure([sample(0.0, value)] * 300), k=k, minimum=minimum)
    assert epsilon.problem is None
    assert epsilon.value == min(max(k * value, minimum), DEFAULT_CAP)
    assert minimum <= epsilon.value <= DEFAULT_CAP


@given(st.lists(st.floats(0, 3), min_size=3, max_size=40), st.lists(st.floats(0, 50), max_size=2))
@settings(deadline=None)
def test_outliers_move_the_floor_by_two_places_at_most(regrets: list[float], outliers: list[float]) -> None:
    """With one or two extra positions the floor is still no larger than the largest of the others."""
    floor = measure([sample(0.0, r) for r in [*regrets, *outliers]])
    assert floor.value <= max(regrets)


def test_what_a_reader_sees() -> None:
    text = calibrate(measure(usual()), k=2.0, cap=0.5).describe()
    assert text == (
        "epsilon 0.125 nats = clamp(2 x noise floor 0.0625, 0.001, 0.5); floor from 500 tokens of the baseline's own "
        "output: |decode - re-scored| median 0, p99 0, max 0.0625; top-2 gap p99 0, max 0; own regret above 0 at 2, "
        "max 0.0625"
    )
    assert bound(0.25).describe() == "epsilon 0.25 nats (given, not measured)"


def gap_sample(decode: float | None, rescored: float | None) -> NoiseSample:
    return NoiseSample(-0.01, -0.01, 0.0, decode, rescored)


def test_a_shift_of_the_gap_counts_where_the_logprob_stays_put() -> None:
    """Where the model is sure, the emitted token's logprob stays near 0 whatever the logits do."""
    floor = measure([*usual(), *[gap_sample(0.5, 0.25)] * 3])
    assert (floor.value, floor.max_gap_shift) == (0.25, 0.25)
    assert floor.max_shift == FLOOR


@pytest.mark.parametrize("gaps", [(None, 0.5), (0.5, None), (math.nan, 0.5), (math.inf, math.inf)])
def test_an_unknown_gap_is_no_shift_and_no_missing_position(gaps: tuple[float | None, float | None]) -> None:
    floor = measure([*usual(), *[gap_sample(*gaps)] * 3])
    assert (floor.value, floor.missing, floor.max_gap_shift) == (FLOOR, 0, 0.0)


def test_quantiles_are_members() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [quantile(values, q) for q in (0, 0.2, 0.5, 0.99, 1)] == [1, 1, 3, 5, 5]
    assert math.isnan(quantile([], 0.5))
