"""Golden accept lengths: bands by the number of verify steps, and what left them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossless.errors import UsageError
from lossless.golden.acceptance import BAND, GoldenAcceptance, dumps, loads, outside
from lossless.golden.files import acceptance_stem

GOLDEN = {"list": GoldenAcceptance(3.0, 10_000), "copy": GoldenAcceptance(5.0, 100)}


def test_bands() -> None:
    low, high = GOLDEN["list"].band
    assert (low, high) == (pytest.approx(3 * (1 - BAND - 0.01)), pytest.approx(3 * (1 + BAND + 0.01)))
    low, high = GOLDEN["copy"].band
    assert (low, high) == (pytest.approx(5 * (1 - BAND - 0.1)), pytest.approx(5 * (1 + BAND + 0.1)))
    assert GoldenAcceptance(3.0, 0).band == GoldenAcceptance(3.0, 1).band


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_more_steps_never_widen_a_band(few: int, more: int) -> None:
    few, more = sorted((few, more))
    wide, narrow = GoldenAcceptance(3.0, few).band, GoldenAcceptance(3.0, more).band
    assert wide[0] <= narrow[0] < 3.0 < narrow[1] <= wide[1]


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ({}, []),
        ({"list": GoldenAcceptance(2.6, 50)}, []),
        ({"list": GoldenAcceptance(3.4, 50)}, []),
        ({"list": GoldenAcceptance(2.5, 50)}, ["list: fell to 2.50 from 3.00 (band 2.52 to 3.48)"]),
        ({"list": GoldenAcceptance(3.5, 50)}, ["list: rose to 3.50 from 3.00 (band 2.52 to 3.48)"]),
        ({"json": GoldenAcceptance(2.0, 9)}, ["json: 2.00, but the golden file does not know this category"]),
    ],
)
def test_what_left_its_band(now: dict[str, GoldenAcceptance], says: list[str]) -> None:
    assert list(outside({**GOLDEN, **now}, GOLDEN)) == says


def test_a_category_that_was_not_measured() -> None:
    assert outside({"list": GOLDEN["list"]}, GOLDEN) == ("copy: golden 5.00, but nothing was measured",)


@given(
    st.dictionaries(
        st.text(max_size=5), st.builds(GoldenAcceptance, st.floats(1, 16), st.integers(1, 10**6)), max_size=4
    )
)
@settings(deadline=None)
def test_the_file_is_stable_and_holds_its_own_band(value: dict[str, GoldenAcceptance]) -> None:
    try:
        text = dumps(value)
        text.encode()
    except UnicodeEncodeError:
        return
    again = loads(text.encode(), where="here")
    assert dumps(again) == text
    assert outside(value, again) == ()


@pytest.mark.parametrize("content", ["", "{", '{"list": 3}', '{"list": {"accept_length": "3", "verify_steps": 1}}'])
def test_damage_names_the_file(content: str) -> None:
    with pytest.raises(UsageError, match="the golden file here is damaged"):
        loads(content, where="here")


@pytest.mark.parametrize(
    ("prompt_set", "stem"),
    [
        ("standard", "_acceptance-nextn"),
        ("quick", "_acceptance-nextn.quick"),
        ("my prompts/../of mine.toml", "_acceptance-nextn.of-mine"),
    ],
)
def test_each_prompt_set_has_its_own_file(prompt_set: str, stem: str) -> None:
    assert acceptance_stem("nextn", prompt_set) == stem
