"""Making a failing request smaller while it still fails. Pure: what failing means is a callback."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lossless.analysis.judged import Judged
from lossless.record.store import RecordedPrompt


@dataclass(frozen=True, slots=True)
class Reduction:
    """The smallest failing request found: ``ids`` is what is left of the prompt, in its order, ``cap`` its
    ``max_new_tokens``. ``tried`` counts the callback's calls; ``finished`` is False where they ran out."""

    ids: tuple[int, ...]
    cap: int
    tried: int
    finished: bool


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it.

    ``smallest`` is the shortest request that still differs, sent once more at the end; None where nothing differed or
    nothing was to be shortened. ``before`` and ``beside`` are the other requests that were sent each time. ``notes`` is
    what a reader should know of the servers; ``open_stages`` names stages of the run in which the prompt differed and
    which cannot be had again this way.
    """

    stage: str
    first: Judged
    smallest: Judged | None = None
    reduction: Reduction | None = None
    before: tuple[RecordedPrompt, ...] = ()
    beside: tuple[RecordedPrompt, ...] = ()
    notes: tuple[str, ...] = ()
    open_stages: tuple[str, ...] = ()

    @property
    def shown(self) -> Judged:
        return self.smallest or self.first


class _OutOfTries(Exception):
    pass


class _Trial:
    """The callback with a memory and a limit; keeps the smallest request that failed."""

    def __init__(self, ids: tuple[int, ...], cap: int, still_fails: Callable[[tuple[int, ...], int], bool], tries: int):
        self.ids, self.cap = ids, cap
        self.tried = 0
        self.limit = tries
        self._still_fails = still_fails
        self._known: dict[tuple[tuple[int, ...], int], bool] = {(ids, cap): True}

    def accept(self, ids: tuple[int, ...], cap: int) -> bool:
        """Whether this smaller request fails too; it is then the one to go on with."""
        key = (ids, cap)
        if key not in self._known:
            if self.tried >= self.limit:
                raise _OutOfTries
            self.tried += 1
            self._known[key] = self._still_fails(ids, cap)
        if self._known[key]:
            self.ids, self.cap = ids, cap
        return self._known[key]


def shorten(
    ids: Sequence[int],
    cap: int,
    still_fails: Callable[[tuple[int, ...], int], bool],
    *,
    least_cap: int = 1,
    tries: int = 60,
) -> Reduction:
    """Shorten a failing prompt and its output cap (both in tokens), asking ``still_fails(ids, cap)`` each time.

    First the cap is halved as long as that goes, which makes all that follows cheaper. Then pieces of the prompt are
    left out, from its front to its end, half of it at first and single tokens at last (delta debugging: Zeller and
    Hildebrandt, 2002). Last, the smallest cap is found by bisection. The prompt keeps at least one token and the
    order of its tokens, the cap stays at ``least_cap`` or above, and the result is the original or was seen to fail.

    Raises:
        ValueError: the prompt is empty or ``cap`` is below ``least_cap``.
    """
    if not ids or cap < least_cap or least_cap < 0:
        raise ValueError(f"{len(ids)} prompt tokens, cap {cap}, least cap {least_cap}: there is nothing to shorten")
    trial = _Trial(tuple(ids), cap, still_fails, tries)
    finished = True
    trial.limit = tries - cap.bit_length()  # the bisection's share, or a long prompt would leave it nothing
    for step in (_halve, _leave_out, _bisect):
        if step is _bisect:
            trial.limit = tries
        try:
            step(trial, least_cap)
        except _OutOfTries:
            finished = False
    return Reduction(trial.ids, trial.cap, trial.tried, finished)


def _halve(trial: _Trial, least_cap: int) -> None:
    while (half := max(trial.cap // 2, least_cap)) < trial.cap and trial.accept(trial.ids, half):
        pass


def _leave_out(trial: _Trial, _least_cap: int) -> None:
    size = len(trial.ids) // 2
    while size >= 1:
        start = 0
        while start < len(trial.ids) and len(trial.ids) > 1:
            rest = trial.ids[:start] + trial.ids[start + size :]
            if not rest or not trial.accept(rest, trial.cap):
                start += size
        size //= 2


def _bisect(trial: _Trial, least_cap: int) -> None:
    """The smallest failing cap if failing only ever ends as the cap shrinks; some failing cap otherwise."""
    passing = least_cap - 1
    while trial.cap - passing > 1:
        middle = (trial.cap + passing) // 2
        if not trial.accept(trial.ids, middle):
            passing = middle
