# ruff: noqa: ARG002  (a hook's arguments are there for the faults that need them)
"""Faults in ending a request and in penalties."""

from typing import TYPE_CHECKING

from lossless.reference.faults.base import Fault, FaultSpec, register
from lossless.reference.stops import Finish

if TYPE_CHECKING:
    from lossless.reference.generation import Generation

STOP = "stop inside an accepted run"
PENALTIES = "penalties"


class StopTokenInBlockIgnored(Fault):
    """Looks only at the last token of a step for a stop token."""

    def token_window(self, g: "Generation", new: int) -> int:
        return min(new, 1)


class StopStringInBlockIgnored(Fault):
    """Looks for a stop string in a window that fits one new token a step."""

    def text_window(self, g: "Generation", new: int) -> int:
        return min(new, 1)


class LengthBeforeStop(Fault):
    """Checks the length first, so a step that holds a stop and crosses the cap ends as ``length``, uncut (0.5.17)."""

    def ended(self, g: "Generation", finish: Finish) -> Finish:
        return Finish("length", g.limit) if len(g.output) >= g.limit else finish


class OneTokenTooMany(Fault):
    """Lets one token more than max_new_tokens out."""

    def max_new_tokens(self, g: "Generation", limit: int) -> int:
        return limit + 1 if limit else limit


class MinNewTokensIgnored(Fault):
    """Never holds back a stop token."""

    def started(self, g: "Generation") -> None:
        g.penalties.produced = 1 << 30


class MinNewTokensPerStep(Fault):
    """Counts a verified block as one token towards min_new_tokens."""

    def started(self, g: "Generation") -> None:
        g.penalties.row_by_row = False

    def produced(self, g: "Generation", count: int) -> int:
        return min(count, 1)


class PenaltiesIgnored(Fault):
    """Penalties never see an output token."""

    def started(self, g: "Generation") -> None:
        g.penalties.row_by_row = False

    def counted(self, g: "Generation", tokens: list[int]) -> list[int]:
        return []


class PenaltiesPerStep(Fault):
    """Penalties see only the last token of a verified block."""

    def started(self, g: "Generation") -> None:
        g.penalties.row_by_row = False

    def counted(self, g: "Generation", tokens: list[int]) -> list[int]:
        return tokens[-1:]


for spec in (
    FaultSpec(
        "stop-token-in-block-ignored",
        STOP,
        "A stop token counts only as the last token of an accepted run.",
        StopTokenInBlockIgnored,
    ),
    FaultSpec(
        "stop-string-in-block-ignored",
        STOP,
        "The stop-string window fits one new token, not an accepted run.",
        StopStringInBlockIgnored,
        needs="speculation, stop strings",
    ),
    FaultSpec(
        "length-before-stop",
        STOP,
        "A stop in the step that reaches the cap ends as 'length', with what follows it.",
        LengthBeforeStop,
    ),
    FaultSpec(
        "one-token-too-many",
        STOP,
        "One token more than max_new_tokens is put out.",
        OneTokenTooMany,
        needs="any",
    ),
    FaultSpec(
        "min-new-tokens-ignored",
        PENALTIES,
        "min_new_tokens has no effect.",
        MinNewTokensIgnored,
        needs="min_new_tokens",
    ),
    FaultSpec(
        "min-new-tokens-per-step",
        PENALTIES,
        "min_new_tokens counts steps, so EOS is held back too long.",
        MinNewTokensPerStep,
        needs="speculation, min_new_tokens",
    ),
    FaultSpec(
        "penalties-ignored",
        PENALTIES,
        "Frequency, presence and repetition penalties have no effect.",
        PenaltiesIgnored,
        needs="penalties",
    ),
    FaultSpec(
        "penalties-per-step",
        PENALTIES,
        "Penalties count one token of each verified block.",
        PenaltiesPerStep,
        needs="speculation, penalties",
    ),
):
    register(spec)
