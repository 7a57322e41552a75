"""What is known to be wrong in published SGLang versions: data, and which prompts it covers."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from lossless.protocol import Sampling

DATA = Path(__file__).with_name("known_issues.toml")


@dataclass(frozen=True, slots=True)
class KnownIssue:
    """One public fault. ``versions`` are PEP 440 specifiers, ``algorithms`` resolved names, ``parameter`` the
    sampling parameter that does it, ``reference`` where it was reported."""

    id: str
    versions: str
    algorithms: tuple[str, ...]
    parameter: str
    what: str
    reference: str

    def covers(self, version: str, algorithm: str, sampling: Sampling) -> bool:
        """Whether a request to such a server is expected to go wrong."""
        try:
            parsed = Version(version)
        except InvalidVersion:
            return False  # the reference engine, or a build of one's own: nothing is excused there
        return (
            SpecifierSet(self.versions).contains(parsed, prereleases=True)
            and algorithm.upper() in self.algorithms
            and getattr(sampling, self.parameter) != _DEFAULTS[self.parameter]
        )

    def __str__(self) -> str:
        return f"{self.parameter} {self.what} in SGLang {self.versions} ({self.reference})"


_DEFAULTS: Mapping[str, object] = {f.name: f.default for f in fields(Sampling)}


@dataclass(frozen=True, slots=True)
class _File:
    issue: tuple[KnownIssue, ...]


@cache
def known_issues() -> tuple[KnownIssue, ...]:
    """All entries of the data file."""
    return msgspec.toml.decode(DATA.read_bytes(), type=_File).issue


def find(version: object, algorithm: object, sampling: Sampling) -> KnownIssue | None:
    """The entry that covers a request, if any."""
    if not isinstance(version, str) or not isinstance(algorithm, str):
        return None
    return next((i for i in known_issues() if i.covers(version, algorithm, sampling)), None)
