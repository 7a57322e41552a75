"""Shortening a failing request: properties that hold whatever failing means."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.analysis.reduce import shorten

IDS = st.lists(st.integers(0, 9), min_size=1, max_size=40).map(tuple)


def is_subsequence(short: tuple[int, ...], long: tuple[int, ...]) -> bool:
    rest = iter(long)
    return all(any(x == y for y in rest) for x in short)


def whim(seed: int, ids: tuple[int, ...], cap: int) -> bool:
    """A callback that follows no rule, but says the same each time."""
    return zlib.crc32(f"{seed}:{cap}:{ids}".encode()) % 3 == 0


@given(IDS, st.integers(1, 64), st.integers(0, 1000), st.integers(0, 80))
def test_the_result_was_seen_to_fail_and_is_part_of_the_original(
    ids: tuple[int, ...], cap: int, seed: int, tries: int
) -> None:
    asked = []

    def still_fails(some: tuple[int, ...], at_most: int) -> bool:
        asked.append((some, at_most))
        return whim(seed, some, at_most)

    found = shorten(ids, cap, still_fails, tries=tries)
    assert (found.ids, found.cap) == (ids, cap) or whim(seed, found.ids, found.cap)
    assert found.ids
    assert is_subsequence(found.ids, ids)
    assert 1 <= found.cap <= cap
    assert found.tried == len(asked) <= tries
    assert len(set(asked)) == len(asked), "nothing is asked twice"
    assert all(some and 1 <= at_most <= cap for some, at_most in asked), "only valid requests are sent"


@given(IDS, st.integers(1, 200), st.data())
def test_what_matters_is_found_exactly(ids: tuple[int, ...], cap: int, data: st.DataObject) -> None:
    """Failing needs some tokens and an output of some length: nothing else is left."""
    needed = data.draw(st.sets(st.sampled_from(ids), min_size=1, max_size=3))
    enough = data.draw(st.integers(1, cap))

    def still_fails(some: tuple[int, ...], at_most: int) -> bool:
        return needed <= set(some) and at_most >= enough

    found = shorten(ids, cap, still_fails, tries=10_000)
    assert found.finished
    assert sorted(found.ids) == sorted(needed)
    assert found.cap == enough


@given(IDS, st.integers(1, 64), st.integers(1, 64))
def test_the_least_cap_is_kept(ids: tuple[int, ...], least: int, more: int) -> None:
    found = shorten(ids, least + more, lambda _ids, _cap: True, least_cap=least, tries=10_000)
    assert found.cap == least
    assert len(found.ids) == 1


def test_a_long_prompt_leaves_tries_for_the_cap() -> None:
    found = shorten(range(5000), 100, lambda ids, cap: 4321 in ids and cap > 70, tries=20)
    assert not found.finished
    assert found.cap == 71
    assert len(found.ids) < 5000
    assert found.tried <= 20


def test_a_request_that_cannot_be_shortened_stays() -> None:
    found = shorten((1, 2, 3), 4, lambda _ids, _cap: False)
    assert (found.ids, found.cap, found.finished) == ((1, 2, 3), 4, True)


@pytest.mark.parametrize(("ids", "cap", "least"), [((), 4, 1), ((1,), 0, 1), ((1,), 3, 4)])
def test_nothing_to_shorten_is_an_error(ids: tuple[int, ...], cap: int, least: int) -> None:
    with pytest.raises(ValueError, match="nothing to shorten"):
        shorten(ids, cap, lambda _ids, _cap: True, least_cap=least)
