"""The rotary embedding that a config.json describes, in its old and its new spelling."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lossless.profiles.checks.model_folder import ModelFolder


@dataclass(frozen=True, slots=True)
class Rotary:
    """``theta`` is the base, ``factor`` the scaling of positions (1: none), ``partial`` the share of a head that is
    rotated, ``positions`` max_position_embeddings in tokens. ``conflicts`` names keys given twice with other values.
    """

    theta: float | None
    kind: str
    factor: float
    partial: float
    positions: int | None
    conflicts: tuple[str, ...]

    @property
    def scaled_positions(self) -> int | None:
        """Positions that the embedding covers: with yarn and the like, max_position_embeddings may be unscaled."""
        return None if self.positions is None else int(self.positions * max(1.0, self.factor))


def rotary_of(folder: ModelFolder) -> Rotary:
    """Read ``rope_theta``, ``rope_scaling`` and ``partial_rotary_factor``, and transformers 5's ``rope_parameters``."""
    text = folder.text
    new, old = _table(text.get("rope_parameters")), _table(text.get("rope_scaling"))
    pairs = {
        "rope_theta": (text.get("rope_theta"), new.get("rope_theta")),
        "partial_rotary_factor": (text.get("partial_rotary_factor"), new.get("partial_rotary_factor")),
        "factor": (old.get("factor"), new.get("factor")),
    }
    conflicts = tuple(
        f"{key} {a} and, in rope_parameters, {b}"
        for key, (a, b) in pairs.items()
        if a is not None and b is not None and a != b
    )
    value = {key: b if b is not None else a for key, (a, b) in pairs.items()}
    kind = new.get("rope_type") or old.get("rope_type") or old.get("type") or "default"
    return Rotary(
        theta=_number(value["rope_theta"]),
        kind=str(kind),
        factor=_number(value["factor"]) or 1.0,
        partial=_number(value["partial_rotary_factor"]) or 1.0,
        positions=folder.number("max_position_embeddings"),
        conflicts=conflicts,
    )


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
