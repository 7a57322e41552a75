"""The words around a difference, for a person: both texts side by side in tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

BEFORE, AFTER = 12, 16


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Text of one side around a difference: what comes before it, the differing tokens, and what follows."""

    before: str
    differing: str
    after: str
    starts: bool
    ends: bool

    def __str__(self) -> str:
        marked = f"⟦{self.differing}⟧" if self.differing else "⟦⟧"
        return f"{'' if self.starts else '…'}{self.before}{marked}{self.after}{'' if self.ends else '…'}"


def excerpt(ids: Sequence[int], start: int, end: int, detokenize: Callable[[Sequence[int]], str]) -> Excerpt:
    """The tokens ``start:end`` of an output with their surroundings, on one line."""
    low, high = max(0, start - BEFORE), min(len(ids), end + AFTER)
    shown_end = min(end, start + AFTER)
    cut = shown_end < end
    return Excerpt(
        before=_line(detokenize(ids[low:start])),
        differing=_line(detokenize(ids[start:shown_end])) + (" …" if cut else ""),
        after="" if cut else _line(detokenize(ids[end:high])),
        starts=low == 0,
        ends=not cut and high == len(ids),
    )


def _line(text: str) -> str:
    return text.replace("\r", "␍").replace("\n", "⏎").replace("\t", "⇥")
