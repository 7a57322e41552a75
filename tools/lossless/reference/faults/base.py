# ruff: noqa: ARG002  (a hook's arguments are there for the faults that need them)
"""The places where a planted fault may act, and the registry of faults.

Every hook does nothing here; a fault overrides the one or two it needs. Nothing depends on the clock: whether a fault
strikes is a function of the seed, the prompt's token ids and the step, so a faulty server is as repeatable as an honest
one.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lossless.errors import UsageError

if TYPE_CHECKING:
    from lossless.reference.generation import Generation
    from lossless.reference.stops import Finish


@dataclass(frozen=True, slots=True)
class Commit:
    """How many tokens of a block each kind of state keeps; all equal in an honest engine."""

    kv: int
    recurrent: int
    conv: int
    position: int


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """What a fault is.

    ``kind`` is a row of the table of fault kinds; ``needs`` says what must be on for it to show; ``rate`` is the
    default number after the colon of ``--fault NAME:RATE``, and ``rate_means`` says what that number is (empty: it
    takes none).
    """

    name: str
    kind: str
    doc: str
    make: Callable[["FaultSpec", float, int], "Fault"]
    rate: float = 1.0
    rate_means: str = ""
    needs: str = "speculation"


class Fault:
    """An honest engine's hooks; base of every planted fault."""

    def __init__(self, spec: FaultSpec | None = None, rate: float = 1.0, seed: int = 0) -> None:
        self.spec, self.rate, self.seed = spec, rate, seed

    def strikes(self, g: "Generation", step: int) -> bool:
        """Deterministic coin with probability ``rate`` for one step of one request."""
        if self.rate >= 1.0:
            return True
        text = f"{self.seed}:{step}:{','.join(map(str, g.request.ids))}"
        return zlib.crc32(text.encode()) / 2**32 < self.rate

    # -- the server -------------------------------------------------------------------------------------------------
    def arriving(self, number: int) -> str:
        """Called for the ``number``-th ``/generate`` (from 1) before anything else. Returns what the HTTP layer shall
        do: ``""`` (nothing), ``"error"`` (500), ``"garbage"`` (cut JSON), ``"hang"`` or ``"trickle"``."""
        return ""

    # -- one request ------------------------------------------------------------------------------------------------
    def started(self, g: "Generation") -> None:
        """The request's empty state was made, and filled from the prefix cache on a hit (``g.cached`` tokens)."""

    def finished(self, g: "Generation") -> None:
        """The request ended."""

    def speculates(self, g: "Generation") -> bool:
        """Use the draft for the coming step?"""
        return True

    def prefilled(self, g: "Generation", start: int, end: int) -> None:
        """Prompt tokens [start, end) were committed."""

    def drafts(self, g: "Generation", drafts: list[int]) -> list[int]:
        """What the draft proposed."""
        return drafts

    def accepted(self, g: "Generation", drafts: list[int], picks: list[int], count: int) -> int:
        """How many of ``drafts`` are accepted; ``picks`` are the target's choices, one more than drafts."""
        return count

    def shown(self, g: "Generation", tokens: list[int], accepted: int) -> list[int]:
        """What of a step's tokens goes out; the engine itself goes on with ``tokens``."""
        return tokens

    def commit(self, g: "Generation", width: int, count: int) -> Commit:
        """How much of a verified block of ``width`` tokens, ``count`` of them right, becomes permanent."""
        return Commit(count, count, count, count)

    def committed(self, g: "Generation", before: int) -> None:
        """A decoding step was committed; ``before`` is the length before it."""

    def rope_shift(self, g: "Generation") -> int:
        """Added to the rotary positions of the next block."""
        return 0

    # -- stopping and penalties -------------------------------------------------------------------------------------
    def token_window(self, g: "Generation", new: int) -> int:
        """How many of ``new`` fresh tokens are looked at for stop tokens."""
        return new

    def text_window(self, g: "Generation", new: int) -> int:
        """How many of ``new`` fresh tokens are looked at for stop strings."""
        return new

    def max_new_tokens(self, g: "Generation", limit: int) -> int:
        """The cap on output tokens."""
        return limit

    def counted(self, g: "Generation", tokens: list[int]) -> list[int]:
        """Which of a step's tokens the penalties count."""
        return tokens

    def produced(self, g: "Generation", count: int) -> int:
        """How many of a step's tokens count towards min_new_tokens."""
        return count

    def ended(self, g: "Generation", finish: "Finish") -> "Finish":
        """The request's end; ``g.output`` still holds everything that was computed."""
        return finish

    # -- the answer -------------------------------------------------------------------------------------------------
    def answer(self, g: "Generation", body: dict[str, Any]) -> dict[str, Any]:
        """The finished answer, before it is written as JSON."""
        return body


_REGISTRY: dict[str, FaultSpec] = {}


def register(spec: FaultSpec) -> FaultSpec:
    """Add a fault; its name must be new."""
    assert spec.name not in _REGISTRY, spec.name
    _REGISTRY[spec.name] = spec
    return spec


def all_faults() -> tuple[FaultSpec, ...]:
    """Every planted fault, by name."""
    return tuple(spec for _, spec in sorted(_REGISTRY.items()))


def make_fault(text: str | None, seed: int) -> Fault:
    """Build the fault that ``--fault NAME[:RATE]`` asks for; the honest hooks for None.

    Raises:
        UsageError: unknown name (all names are listed), or a rate that is no positive number.
    """
    if not text:
        return Fault(seed=seed)
    name, _, number = text.partition(":")
    spec = _REGISTRY.get(name)
    if spec is None:
        raise UsageError(f"unknown fault {name!r}: choose one of {', '.join(s.name for s in all_faults())}")
    try:
        rate = float(number) if number else spec.rate
    except ValueError:
        rate = 0.0
    if not rate > 0 or (number and not spec.rate_means):
        allowed = f"a positive number, {spec.rate_means}" if spec.rate_means else "no number"
        raise UsageError(f"fault {name!r} takes {allowed}; got {number!r}")
    return spec.make(spec, rate, seed)
