"""Alignment: always a correct one, the first hunk at the first difference, and difflib's own where nothing is cut."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from difflib import SequenceMatcher
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossless.verdict import Alignment, Hunk, align, alignment, common_prefix

TOKENS = st.lists(st.integers(0, 4), max_size=40)
"""Few distinct tokens: many repeats, many equal pairs."""


@st.composite
def edited(draw: st.DrawFn, size: int = 120, vocabulary: int = 50) -> tuple[list[int], list[int]]:
    """A sequence and a copy with a few replaced, dropped, doubled or moved runs."""
    a = draw(st.lists(st.integers(0, vocabulary), min_size=1, max_size=size))
    b = list(a)
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(b)))
        length = draw(st.integers(0, 6))
        b[at : at + length] = draw(st.lists(st.integers(0, vocabulary), max_size=6))
    return a, b


@contextmanager
def small_anchors(work: int = 1 << 23) -> Iterator[None]:
    """Make even short inputs go through anchors, and bound the work."""
    with mock.patch.multiple(alignment, DIRECT_PAIRS=0, DIRECT_LENGTH=0, ANCHOR_SIZES=(5, 2), WORK_LIMIT=work):
        yield


def check(a: Sequence[int], b: Sequence[int], found: Alignment) -> None:
    """The hunks tile both sequences, none is empty, and between them the tokens are equal."""
    assert (found.baseline_length, found.variant_length) == (len(a), len(b))
    assert found.equal == (list(a) == list(b))
    i = j = 0
    for k, hunk in enumerate(found.hunks):
        assert list(a[i : hunk.baseline_start]) == list(b[j : hunk.variant_start])
        assert hunk.baseline_start <= hunk.baseline_end
        assert hunk.variant_start <= hunk.variant_end
        assert (hunk.baseline_end - hunk.baseline_start) + (hunk.variant_end - hunk.variant_start) > 0
        if k:
            assert hunk.variant_start > j, "two hunks that touch are one"
        i, j = hunk.baseline_end, hunk.variant_end
        after = found.hunks[k + 1].variant_start if k + 1 < len(found.hunks) else len(b)
        assert found.matched_after(k) == after - j
    assert list(a[i:]) == list(b[j:])
    if found.hunks:
        first = common_prefix(a, b)
        assert (found.hunks[0].baseline_start, found.hunks[0].variant_start) == (first, first)


def difflib_hunks(a: Sequence[int], b: Sequence[int]) -> tuple[Hunk, ...]:
    """difflib's own answer for what lies between the common ends."""
    head = common_prefix(a, b)
    left, right = list(a[head:]), list(b[head:])
    tail = common_prefix(left[::-1], right[::-1])
    left, right = left[: len(left) - tail], right[: len(right) - tail]
    codes = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    return tuple(Hunk(head + i1, head + i2, head + j1, head + j2) for tag, i1, i2, j1, j2 in codes if tag != "equal")


@given(TOKENS, TOKENS)
@settings(deadline=None, max_examples=60)
def test_any_two_sequences(a: list[int], b: list[int]) -> None:
    check(a, b, align(a, b))


@given(edited())
@settings(deadline=None, max_examples=60)
def test_edited_copies(pair: tuple[list[int], list[int]]) -> None:
    check(*pair, align(*pair))


@given(st.one_of(st.tuples(TOKENS, TOKENS), edited()))
@settings(deadline=None, max_examples=60)
def test_without_anchors_it_is_difflib(pair: tuple[list[int], list[int]]) -> None:
    assert align(*pair).hunks == difflib_hunks(*pair)


@given(st.one_of(st.tuples(TOKENS, TOKENS), edited(), edited(vocabulary=3)), st.sampled_from([0, 5, 40, 1 << 23]))
@settings(deadline=None, max_examples=60)
def test_with_anchors_and_any_bound_on_work_it_is_correct(pair: tuple[list[int], list[int]], work: int) -> None:
    with small_anchors(work):
        check(*pair, align(*pair))


@given(edited(vocabulary=10_000))
@settings(deadline=None, max_examples=60)
def test_anchors_cost_no_matches_where_tokens_are_rarely_repeated(pair: tuple[list[int], list[int]]) -> None:
    """On a copy with few edits the anchored alignment matches about as much as difflib's."""
    with small_anchors():
        found = align(*pair)
    plain = sum(h.variant_end - h.variant_start for h in difflib_hunks(*pair))
    assert sum(h.variant_end - h.variant_start for h in found.hunks) <= plain + 12


@given(TOKENS, TOKENS, TOKENS)
@settings(deadline=None, max_examples=60)
def test_a_common_prefix_only_shifts_the_hunks(prefix: list[int], a: list[int], b: list[int]) -> None:
    n = len(prefix)
    shifted = tuple(
        Hunk(h.baseline_start + n, h.baseline_end + n, h.variant_start + n, h.variant_end + n)
        for h in align(a, b).hunks
    )
    assert align(prefix + a, prefix + b).hunks == shifted


@given(TOKENS, TOKENS, TOKENS)
@settings(deadline=None, max_examples=60)
def test_a_common_suffix_changes_nothing(a: list[int], b: list[int], suffix: list[int]) -> None:
    """99 in front of it: without that, the suffix of the shorter sequence may continue the common prefix."""
    ending = [99, *suffix]
    assert align(a + ending, b + ending).hunks == align(a, b).hunks


@given(st.one_of(st.tuples(TOKENS, TOKENS), edited()), st.booleans())
@settings(deadline=None, max_examples=60)
def test_the_sides_may_be_swapped(pair: tuple[list[int], list[int]], anchors: bool) -> None:
    a, b = pair
    with small_anchors() if anchors else nullcontext():
        there, back = align(a, b), align(b, a)
    check(b, a, back)
    turned = Alignment(
        tuple(Hunk(h.variant_start, h.variant_end, h.baseline_start, h.baseline_end) for h in back.hunks),
        back.variant_length,
        back.baseline_length,
    )
    check(a, b, turned)
    assert there.equal == back.equal
    if there.hunks:
        assert there.hunks[0].variant_start == turned.hunks[0].variant_start


@given(TOKENS)
def test_a_sequence_equals_itself(a: list[int]) -> None:
    assert align(a, a).equal
    assert common_prefix(a, a) == len(a)


@pytest.mark.parametrize(
    ("a", "b", "hunks"),
    [
        ([], [], []),
        ([], [1], [Hunk(0, 0, 0, 1)]),
        ([1], [], [Hunk(0, 1, 0, 0)]),
        ([1], [1], []),
        ([1], [2], [Hunk(0, 1, 0, 1)]),
        ([1, 2, 3], [1, 9, 3], [Hunk(1, 2, 1, 2)]),
        ([1, 2, 3], [1, 3], [Hunk(1, 2, 1, 1)]),
        ([1, 1], [1, 1, 1], [Hunk(2, 2, 2, 3)]),
    ],
)
def test_the_smallest_cases(a: list[int], b: list[int], hunks: list[Hunk]) -> None:
    assert list(align(a, b).hunks) == hunks
    check(a, b, align(a, b))


def test_a_hash_is_no_proof() -> None:
    """k-grams with the same hash are compared before they become an anchor."""
    with small_anchors(), mock.patch.object(alignment, "_gram_hashes") as hashes:
        hashes.side_effect = lambda ids, size: np.zeros(len(ids) - size + 1, dtype=np.uint64)
        a, b = [1, 2, 3, 4, 5, 6], [9, 8, 7, 3, 5, 2]
        check(a, b, align(a, b))


@given(st.lists(st.integers(0, 100), max_size=60))
def test_the_longest_increasing_subsequence(values: list[int]) -> None:
    chain = alignment._increasing(values)
    assert all(i < j and values[i] < values[j] for i, j in pairwise(chain))
    longest: list[int] = []  # length of the longest increasing subsequence ending at each place
    for i, value in enumerate(values):
        longest.append(1 + max((longest[j] for j in range(i) if values[j] < value), default=0))
    assert len(chain) == max(longest, default=0)


def test_long_sequences_keep_every_edit_apart() -> None:
    """20,000 tokens with 50 single-token edits far from each other: 50 hunks of one token."""
    rng = np.random.default_rng(5)
    a = rng.integers(0, 4096, 20_000)
    b = a.copy()
    places = np.arange(200, 20_000, 400)[:50]
    b[places] = 5000
    found = align(a.tolist(), b.tolist())
    assert found.hunks == tuple(Hunk(int(p), int(p) + 1, int(p), int(p) + 1) for p in places)


def test_long_repetitive_sequences_end_within_the_bound_on_work() -> None:
    """Two loops of few distinct tokens have no anchors and billions of equal pairs; the result is still correct."""
    a = [k % 7 for k in range(60_000)]
    b = [k % 5 for k in range(60_000)]
    with mock.patch.object(alignment, "WORK_LIMIT", 1 << 18):
        check(a, b, align(a, b))
