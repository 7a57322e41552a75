"""Golden accept lengths: by category, with a band that is wider where few steps were measured."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import msgspec

from lossless.analysis.acceptance import Acceptance
from lossless.errors import UsageError

BAND = 0.15
"""Relative half-width for a category with many verify steps; 1/sqrt(steps) is added for sampling."""


@dataclass(frozen=True, slots=True)
class GoldenAcceptance:
    """One category: accept length (tokens a verify step, SGLang's definition) over so many verify steps."""

    accept_length: float
    verify_steps: int

    @property
    def band(self) -> tuple[float, float]:
        """Lowest and highest accept length that counts as unchanged."""
        width = BAND + 1 / math.sqrt(max(1, self.verify_steps))
        return self.accept_length * (1 - width), self.accept_length * (1 + width)


def golden_lengths(measured: Mapping[str, Acceptance]) -> dict[str, GoldenAcceptance]:
    """Measured accept lengths as they would be golden; categories without a verify step are left out."""
    return {
        category: GoldenAcceptance(a.accept_length, a.verify_steps)
        for category, a in measured.items()
        if a.accept_length is not None
    }


def dumps(categories: Mapping[str, GoldenAcceptance]) -> str:
    """The file's text; lengths rounded to 2 digits so that the diff in version control stays small."""
    rows = {
        name: asdict(value) | {"accept_length": round(value.accept_length, 2)} for name, value in categories.items()
    }
    return json.dumps(rows, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def loads(text: str | bytes, *, where: str) -> dict[str, GoldenAcceptance]:
    """Read the file's text.

    Raises:
        UsageError: damaged; the message names ``where``.
    """
    try:
        return msgspec.json.decode(text, type=dict[str, GoldenAcceptance])
    except msgspec.DecodeError as problem:
        raise UsageError(f"the golden file {where} is damaged: {problem}") from None


def outside(now: Mapping[str, GoldenAcceptance], golden: Mapping[str, GoldenAcceptance]) -> tuple[str, ...]:
    """One sentence for each category that left its band, or that only one side knows."""
    found = []
    for category in sorted(set(now) | set(golden)):
        if category not in golden:
            found.append(
                f"{category}: {now[category].accept_length:.2f}, but the golden file does not know this category"
            )
        elif category not in now:
            found.append(f"{category}: golden {golden[category].accept_length:.2f}, but nothing was measured")
        else:
            low, high = golden[category].band
            value = now[category].accept_length
            if not low <= value <= high:
                how = "fell" if value < low else "rose"
                found.append(
                    f"{category}: {how} to {value:.2f} from {golden[category].accept_length:.2f} "
                    f"(band {low:.2f} to {high:.2f})"
                )
    return tuple(found)
