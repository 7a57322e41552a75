"""What one check found."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail", "skipped"]

_ORDER: dict[Status, int] = {"fail": 0, "warn": 1, "skipped": 2, "ok": 3}
_WORDS: dict[Status, tuple[str, str]] = {
    "fail": ("failed", "failed"),
    "warn": ("warning", "warnings"),
    "skipped": ("skipped", "skipped"),
    "ok": ("ok", "ok"),
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check of one part of a profile.

    ``subject`` is what was looked at: ``target``, ``baseline`` or a variant's name. ``name`` is the check's slug.
    ``fail`` means that a server will not start or that its results would mean nothing, ``warn`` that something is
    likely not as intended, ``skipped`` that it could not be looked at (``detail`` says why). ``remedy`` is set for
    ``fail`` and ``warn``.
    """

    subject: str
    name: str
    status: Status
    detail: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """Makes the results about one part of a profile."""

    name: str

    def ok(self, check: str, detail: str) -> CheckResult:
        """In order."""
        return CheckResult(self.name, check, "ok", detail)

    def warn(self, check: str, detail: str, remedy: str) -> CheckResult:
        """Likely not as intended."""
        return CheckResult(self.name, check, "warn", detail, remedy)

    def fail(self, check: str, detail: str, remedy: str) -> CheckResult:
        """A server will not start, or its results mean nothing."""
        return CheckResult(self.name, check, "fail", detail, remedy)

    def skip(self, check: str, why: str) -> CheckResult:
        """Could not be looked at."""
        return CheckResult(self.name, check, "skipped", why)


def by_severity(results: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
    """Failures first, then warnings, what was skipped, and what is in order; otherwise in the given order."""
    return tuple(sorted(results, key=lambda result: _ORDER[result.status]))


def summary(results: Iterable[CheckResult]) -> str:
    """One line: ``1 failed, 2 warnings, 3 skipped, 14 ok``."""
    counts = Counter(result.status for result in results)
    parts = [f"{counts[s]} {_WORDS[s][counts[s] != 1]}" for s in sorted(_ORDER, key=lambda s: _ORDER[s]) if counts[s]]
    return ", ".join(parts) or "nothing to check"
