"""What one rule found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "wrong", "suspicious", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule's word on one variant.

    ``wrong`` explains a low accept length or is one, ``suspicious`` may explain it, ``unknown`` could not be looked at
    (``detail`` says why). ``remedy`` is what to do next. ``numbers`` holds the figures behind it, as JSON values.
    """

    rule: str
    status: Status
    detail: str
    remedy: str | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
