"""What became of a server under stress: plain facts, kept with the run."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Survival:
    """One server's stress test. Counts are requests.

    ``pair`` requests of ``longest_tokens`` prompt tokens ran at once, then ``burst`` short ones at once; ``aborts`` and
    ``disconnects`` were ended at their first token, by ``/abort_request`` and by closing the connection, and
    ``aborted`` of the former say that they were. ``retractions`` is the server's own count over all answers;
    ``retraction_note`` says why none was provoked. ``failed`` holds what went wrong with requests that nobody ended,
    ``leaks`` what the server shows of lost memory or slots. ``problem`` is the diagnosis of a server that died; what
    comes after it was not asked. ``drain_s`` is how many seconds it took until nothing ran any more, and ``ran_on`` how
    many of the abandoned requests the server went on with, by its log.
    """

    longest_tokens: int = 0
    pair: int = 0
    burst: int = 0
    aborts: int = 0
    aborted: int = 0
    disconnects: int = 0
    retractions: int = 0
    retraction_note: str | None = None
    failed: tuple[str, ...] = ()
    healthy: bool = False
    flushed: bool = False
    leaks: tuple[str, ...] = ()
    problem: str | None = None
    drain_s: float = 0.0
    ran_on: int = 0


def joined(found: Sequence[Survival]) -> Survival | None:
    """The stress tests of one server in several runs as one: counts are summed, and one that failed is not hidden."""
    if not found:
        return None
    return Survival(
        longest_tokens=max(s.longest_tokens for s in found),
        pair=max(s.pair for s in found),
        burst=sum(s.burst for s in found),
        aborts=sum(s.aborts for s in found),
        aborted=sum(s.aborted for s in found),
        disconnects=sum(s.disconnects for s in found),
        retractions=sum(s.retractions for s in found),
        retraction_note=next((s.retraction_note for s in found if s.retraction_note), None),
        failed=tuple(text for s in found for text in s.failed),
        healthy=all(s.healthy for s in found),
        flushed=all(s.flushed for s in found),
        leaks=tuple(text for s in found for text in s.leaks),
        drain_s=max(s.drain_s for s in found),
        ran_on=sum(s.ran_on for s in found),
        problem="; ".join(s.problem for s in found if s.problem is not None) or None,
    )
