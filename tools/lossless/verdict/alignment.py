"""Where two token sequences differ: hunks between matching blocks, in time close to linear.

Common ends are trimmed, what lies between is matched by ``difflib.SequenceMatcher`` without autojunk, which knows
nothing of text and so never treats a frequent token as noise. Its cost grows with the number of equal pairs, so long
inputs are first cut at *anchors*: k-grams that occur exactly once in both sequences and keep their order (the idea of
patience diff). Work on what has no anchors is bounded by a fixed count of steps, not by time, so a result never
depends on the machine; beyond the bound the rest is one replaced hunk, which is always a correct alignment.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

import numpy as np
import numpy.typing as npt

DIRECT_PAIRS = 1 << 20  # at most this many equal pairs,
DIRECT_LENGTH = 1 << 13  # and at most this many tokens, go straight to difflib
WORK_LIMIT = 1 << 23  # pairs that difflib may visit in one alignment, a few seconds at worst
ANCHOR_SIZES = (24, 12, 6)

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hunk:
    """``baseline[baseline_start:baseline_end]`` was replaced by ``variant[variant_start:variant_end]`` (tokens)."""

    baseline_start: int
    baseline_end: int
    variant_start: int
    variant_end: int


@dataclass(frozen=True, slots=True)
class Alignment:
    """All differences of two sequences, in order; between them the tokens are equal."""

    hunks: tuple[Hunk, ...]
    baseline_length: int
    variant_length: int

    @property
    def equal(self) -> bool:
        return not self.hunks

    def matched_after(self, index: int) -> int:
        """Number of equal tokens between hunk ``index`` and the next hunk, or the end."""
        end = self.hunks[index].variant_end
        return (self.hunks[index + 1].variant_start if index + 1 < len(self.hunks) else self.variant_length) - end


@dataclass(frozen=True, slots=True)
class _Box:
    """A rectangle still to be aligned: ``a[a0:a1]`` against ``b[b0:b1]``."""

    a0: int
    a1: int
    b0: int
    b1: int


def align(baseline: Sequence[int], variant: Sequence[int]) -> Alignment:
    """Align two sequences of token ids."""
    a, b = np.asarray(baseline, dtype=np.int64), np.asarray(variant, dtype=np.int64)
    blocks: list[tuple[int, int, int]] = []
    _match(a, b, _Box(0, len(a), 0, len(b)), list(ANCHOR_SIZES), blocks, _Work(WORK_LIMIT))
    blocks.append((len(a), len(b), 0))
    hunks: list[Hunk] = []
    ai = bi = 0
    for start_a, start_b, size in blocks:
        if ai < start_a or bi < start_b:
            hunks.append(Hunk(ai, start_a, bi, start_b))
        ai, bi = start_a + size, start_b + size
    return Alignment(tuple(hunks), len(a), len(b))


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix, in tokens."""
    n = min(len(a), len(b))
    return _first_difference(np.asarray(a[:n], dtype=np.int64), np.asarray(b[:n], dtype=np.int64))


class _Work:
    """Steps left. Once spent, the remaining boxes stay unmatched."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def take(self, amount: int) -> bool:
        if amount > self.left:
            return False
        self.left -= amount
        return True


def _first_difference(a: Ids, b: Ids) -> int:
    """Index of the first unequal entry of two arrays of the same length, or their length."""
    unequal = a != b
    return int(unequal.argmax()) if unequal.any() else len(a)


def _match(a: Ids, b: Ids, box: _Box, sizes: list[int], out: list[tuple[int, int, int]], work: _Work) -> None:
    """Append the matching blocks of ``box`` to ``out``, in order."""
    n = min(box.a1 - box.a0, box.b1 - box.b0)
    head = _first_difference(a[box.a0 : box.a0 + n], b[box.b0 : box.b0 + n])
    if head:
        out.append((box.a0, box.b0, head))
    n -= head
    tail = _first_difference(a[box.a1 - n : box.a1][::-1], b[box.b1 - n : box.b1][::-1])
    inner = _Box(box.a0 + head, box.a1 - tail, box.b0 + head, box.b1 - tail)
    if inner.a0 < inner.a1 and inner.b0 < inner.b1:
        pairs = _equal_pairs(a[inner.a0 : inner.a1], b[inner.b0 : inner.b1])
        long = max(inner.a1 - inner.a0, inner.b1 - inner.b0) > DIRECT_LENGTH
        if (long or pairs > DIRECT_PAIRS) and sizes:
            _match_by_anchors(a, b, inner, sizes, out, work)
        elif pairs:
            _match_by_difflib(a, b, inner, out, work)
    if tail:
        out.append((box.a1 - tail, box.b1 - tail, tail))


def _equal_pairs(a: Ids, b: Ids) -> int:
    """Number of (i, j) with a[i] == b[j]: what difflib visits in its first pass."""
    if len(a) * len(b) <= 4096:
        return len(a) * len(b)
    values, counts = np.unique(a, return_counts=True)
    others, other_counts = np.unique(b, return_counts=True)
    _, ia, ib = np.intersect1d(values, others, assume_unique=True, return_indices=True)
    return int((counts[ia] * other_counts[ib]).sum())


def _match_by_anchors(
    a: Ids, b: Ids, box: _Box, sizes: list[int], out: list[tuple[int, int, int]], work: _Work
) -> None:
    size, smaller = sizes[0], sizes[1:]
    at_a, at_b = box.a0, box.b0
    for start_a, start_b, length in _anchor_runs(a[box.a0 : box.a1], b[box.b0 : box.b1], size):
        overlap = max(0, at_a - box.a0 - start_a, at_b - box.b0 - start_b)
        if overlap >= length:
            continue
        i, j = box.a0 + start_a + overlap, box.b0 + start_b + overlap
        _match(a, b, _Box(at_a, i, at_b, j), smaller, out, work)
        out.append((i, j, length - overlap))
        at_a, at_b = i + length - overlap, j + length - overlap
    _match(a, b, _Box(at_a, box.a1, at_b, box.b1), smaller, out, work)


def _anchor_runs(a: Ids, b: Ids, size: int) -> list[tuple[int, int, int]]:
    """Runs (start in a, start in b, length) of k-grams that are unique in both and keep their order."""
    if len(a) < size or len(b) < size:
        return []
    hash_a, hash_b = _gram_hashes(a, size), _gram_hashes(b, size)
    unique_a, index_a, count_a = np.unique(hash_a, return_index=True, return_counts=True)
    unique_b, index_b, count_b = np.unique(hash_b, return_index=True, return_counts=True)
    _, ia, ib = np.intersect1d(unique_a, unique_b, assume_unique=True, return_indices=True)
    once = (count_a[ia] == 1) & (count_b[ib] == 1)
    pos_a, pos_b = index_a[ia[once]], index_b[ib[once]]
    same = np.ones(len(pos_a), dtype=bool)  # a hash is no proof
    for offset in range(size):
        same &= a[pos_a + offset] == b[pos_b + offset]
    order = np.argsort(pos_a[same], kind="stable")
    pos_a, pos_b = pos_a[same][order], pos_b[same][order]
    keep = _increasing(pos_b.tolist())
    pos_a, pos_b = pos_a[keep], pos_b[keep]
    if not len(pos_a):
        return []
    breaks = np.flatnonzero((np.diff(pos_a) != 1) | (np.diff(pos_b) != 1)) + 1
    starts = np.concatenate(([0], breaks))
    lengths = np.diff(np.concatenate((starts, [len(pos_a)]))) + size - 1
    return [(int(pos_a[s]), int(pos_b[s]), int(n)) for s, n in zip(starts, lengths, strict=True)]


def _gram_hashes(ids: Ids, size: int) -> npt.NDArray[np.uint64]:
    """Hash of every k-gram, wrapping around 2**64."""
    values = ids.astype(np.uint64)
    count = len(values) - size + 1
    out = np.zeros(count, dtype=np.uint64)
    for offset in range(size):
        out = (out * np.uint64(0x9E3779B97F4A7C15)) ^ (values[offset : offset + count] + np.uint64(0x632BE59B))
        out ^= out >> np.uint64(29)
    return out


def _increasing(values: list[int]) -> list[int]:
    """Indices of a longest increasing subsequence."""
    tails: list[int] = []
    tail_index: list[int] = []
    before: list[int] = []
    for index, value in enumerate(values):
        place = bisect_left(tails, value)
        before.append(tail_index[place - 1] if place else -1)
        if place == len(tails):
            tails.append(value)
            tail_index.append(index)
        else:
            tails[place] = value
            tail_index[place] = index
    chain: list[int] = []
    at = tail_index[-1] if tail_index else -1
    while at >= 0:
        chain.append(at)
        at = before[at]
    return chain[::-1]


def _match_by_difflib(a: Ids, b: Ids, box: _Box, out: list[tuple[int, int, int]], work: _Work) -> None:
    """difflib's own recursion, with a bound on the pairs it visits."""
    left, right = a[box.a0 : box.a1].tolist(), b[box.b0 : box.b1].tolist()
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    occurrences = Counter(right)
    visits = np.concatenate(([0], np.cumsum([1 + occurrences[token] for token in left])))
    found: list[tuple[int, int, int]] = []
    boxes = [_Box(0, len(left), 0, len(right))]
    while boxes:
        box_ = boxes.pop()
        if not work.take(int(visits[box_.a1] - visits[box_.a0])):
            break
        i, j, size = matcher.find_longest_match(box_.a0, box_.a1, box_.b0, box_.b1)
        if not size:
            continue
        found.append((i, j, size))
        if box_.a0 < i and box_.b0 < j:
            boxes.append(_Box(box_.a0, i, box_.b0, j))
        if i + size < box_.a1 and j + size < box_.b1:
            boxes.append(_Box(i + size, box_.a1, j + size, box_.b1))
    found.sort()
    merged: list[tuple[int, int, int]] = []
    for i, j, size in found:
        if merged and merged[-1][0] + merged[-1][2] == i and merged[-1][1] + merged[-1][2] == j:
            merged[-1] = (merged[-1][0], merged[-1][1], merged[-1][2] + size)
        else:
            merged.append((i, j, size))
    assert all(x[0] + x[2] <= y[0] and x[1] + x[2] <= y[1] for x, y in pairwise(merged))
    out.extend((box.a0 + i, box.b0 + j, size) for i, j, size in merged)
