"""The history of nightly runs, and what it says about when something broke.

A history is a JSON Lines file, one line a night. Only nights that proved or disproved something count: an inconclusive
night is neither green nor red, and a missing night says nothing. What failed is followed item by item (an answer of a
variant to a prompt, or a golden): an item's suspects lie between the last night that tested it and saw it pass and the
first night after that saw it fail.
"""

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from filelock import FileLock

from lossless.errors import UsageError

SCHEMA = 1
Color = Literal["green", "red", "unknown"]
_COMMIT = re.compile(r"\+g([0-9a-f]{7,40})\b")


@dataclass(frozen=True, slots=True)
class Night:
    """One recorded night. ``date`` is when recording began (ISO 8601, UTC), ``version`` the baseline's own word,
    ``failing`` the items that failed and ``untested`` those that were inconclusive, both as ``variant/prompt`` (or
    ``golden/prompt``). ``plan`` is the prompt set's digest: an item that another set does not hold was not tested."""

    date: str
    run: str
    profile: str
    prompt_set: str
    plan: str
    status: str
    version: str | None
    commit: str | None
    gpu: str | None
    tool_version: str
    failing: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()
    schema: int = SCHEMA

    @property
    def color(self) -> Color:
        if self.failing or self.status == "divergent":
            return "red"
        return "green" if self.status == "proven" else "unknown"

    @property
    def build(self) -> str:
        """The version, and the commit where it is known: what can be suspected."""
        version = self.version or "unknown version"
        return version if self.commit is None or self.commit[:7] in version else f"{version} ({self.commit})"

    def saw_pass(self, item: str) -> bool:
        return self.color != "unknown" and item not in self.failing and item not in self.untested


@dataclass(frozen=True, slots=True)
class Suspects:
    """Where some items broke. ``good`` is the last night that saw all of them pass, None where none did; ``bad`` the
    first that saw them fail; ``between`` the nights of the same series that told nothing about them."""

    items: tuple[str, ...]
    good: Night | None
    bad: Night
    between: tuple[Night, ...]

    @property
    def same_build(self) -> bool:
        """Both ends ran the same SGLang: it is not what changed."""
        return self.good is not None and self.good.build == self.bad.build


@dataclass(frozen=True, slots=True)
class Series:
    """The nights of one profile, prompt set and card, oldest first, and what they say.

    ``color`` is that of the latest night that told anything. ``flapping`` lists builds with green and red nights:
    a range that rests on them cannot be trusted.
    """

    profile: str
    prompt_set: str
    gpu: str | None
    nights: tuple[Night, ...]
    color: Color
    suspects: tuple[Suspects, ...]
    flapping: tuple[str, ...]

    @property
    def first_red(self) -> bool:
        """Whether the latest night is the first red one after a green one, inconclusive nights aside."""
        told = [n for n in self.nights if n.color != "unknown"]
        return len(told) > 1 and (told[-2].color, told[-1].color) == ("green", "red") and told[-1] is self.nights[-1]


def night(
    evidence: dict[str, Any], *, version: str | None = None, commit: str | None = None, gpu: str | None = None
) -> Night:
    """A night from a run's evidence. ``version`` replaces the baseline's own word; a commit is also read from a
    version such as ``0.5.20.dev3+g1a2b3c4d``. Divergences that known issues explain do not count."""
    version = version or evidence["versions"].get("baseline")
    known = {(v, p) for v, issues in evidence["known_issues"].items() for issue in issues for p in issue["prompts"]}
    found: dict[str, list[str]] = {"divergent": [], "inconclusive": []}
    for entry in evidence["verdicts"]:
        if entry["verdict"] in found and (entry["variant"], entry["prompt"]) not in known:
            found[entry["verdict"]].append(f"{entry['variant']}/{entry['prompt']}")
    failing = [*found["divergent"], *(f"{b['variant']}/{b['prompt']}" for b in evidence["broken_rules"])]
    if evidence["status"] != "inconclusive":  # else the baseline may be to blame
        failing += [f"golden/{g['prompt']}" for g in evidence["golden"] if g["verdict"] == "divergent"]
    failing += [
        f"{s['server']}/stress"
        for s in evidence.get("survival", ())
        if any(label.startswith("divergent") for counts in s["answers"].values() for label in counts)
    ]
    built = _COMMIT.search(version or "")
    return Night(
        date=evidence["created"],
        run=evidence["run"],
        profile=evidence["profile"],
        prompt_set=evidence["prompt_set"]["name"],
        plan=evidence["prompt_set"]["digest"],
        status=evidence["status"],
        version=version,
        commit=commit or (built[1] if built else None),
        gpu=gpu,
        tool_version=evidence["tool_version"],
        failing=tuple(dict.fromkeys(failing)),
        untested=tuple(dict.fromkeys(i for i in found["inconclusive"] if i not in failing)),
    )


def read(path: Path) -> tuple[Night, ...]:
    """All nights of a history, oldest first; none where there is no file yet.

    Raises:
        UsageError: a line is not a night.
    """
    nights: list[Night] = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.is_file() else (), start=1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line, type=Night)
        except msgspec.DecodeError as problem:
            raise UsageError(
                f"{path}, line {number} is not a night: {problem}", hint="mend or remove that line; the others are kept"
            ) from None
        if found.schema != SCHEMA:
            raise UsageError(f"{path}, line {number} has format {found.schema}, this version reads {SCHEMA}")
        nights.append(found)
    return tuple(sorted(nights, key=lambda n: (n.date, n.run)))


def record(path: Path, new: Night) -> None:
    """Add a night. The same run again (resumed, or judged again) replaces its line. Safe for several processes; a
    reader sees the old file or the new one.

    Raises:
        UsageError: the file holds something else.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        nights = [n for n in read(path) if (n.run, n.profile) != (new.run, new.profile)]
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        lines = (json.dumps(asdict(n), ensure_ascii=False) + "\n" for n in sorted([*nights, new], key=lambda n: n.date))
        temporary.write_text("".join(lines), encoding="utf-8")
        temporary.replace(path)


def series(nights: Iterable[Night]) -> tuple[Series, ...]:
    """One series a profile, prompt set and card: nights of different cards or prompts say nothing of one another."""
    found: dict[tuple[str, str, str | None], list[Night]] = defaultdict(list)
    for n in sorted(nights, key=lambda n: (n.date, n.run)):
        found[n.profile, n.prompt_set, n.gpu].append(n)
    return tuple(_series(tuple(own)) for own in found.values())


def _series(nights: Sequence[Night]) -> Series:
    last = next((n for n in reversed(nights) if n.color != "unknown"), None)
    first = nights[0]
    colors: dict[str, set[Color]] = defaultdict(set)
    for n in nights:
        if n.color != "unknown":
            colors[n.build].add(n.color)
    return Series(
        profile=first.profile,
        prompt_set=first.prompt_set,
        gpu=first.gpu,
        nights=tuple(nights),
        color="unknown" if last is None else last.color,
        suspects=() if last is None or last.color != "red" else _suspects(nights, last),
        flapping=tuple(build for build, seen in colors.items() if len(seen) > 1),
    )


def _suspects(nights: Sequence[Night], last: Night) -> tuple[Suspects, ...]:
    """The range of every item that fails in the last night, items of the same range together, oldest range first."""
    until = nights[: nights.index(last) + 1]
    ranges: dict[tuple[int, int], list[str]] = defaultdict(list)
    for item in last.failing:
        bad = len(until) - 1
        good = -1
        for i in range(len(until) - 2, -1, -1):
            n = until[i]
            if item in n.failing:
                bad = i
            elif n.saw_pass(item) and n.plan == last.plan:
                good = i
                break
        ranges[good, bad].append(item)
    return tuple(
        Suspects(tuple(items), until[good] if good >= 0 else None, until[bad], tuple(until[good + 1 : bad]))
        for (good, bad), items in sorted(ranges.items(), key=lambda pair: pair[0][1])
    )
