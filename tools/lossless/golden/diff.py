"""What changed between two sets of golden files, prompt by prompt. Pure: it knows tokens, and no server.

Without a server nobody can say whether a change is a near-tie. ``lossless upgrade`` and the golden tests say that; this
says how far two snapshots are apart, for a person who reviews the change.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from lossless.errors import UsageError
from lossless.golden.acceptance import GoldenAcceptance, loads
from lossless.golden.files import MANIFEST, GoldenFile, parse_golden
from lossless.verdict.alignment import Alignment, align
from lossless.verdict.judge import RECONVERGENCE


class Change(StrEnum):
    """What happened to one golden, mildest first."""

    UNCHANGED = "unchanged"  # not a byte
    PROVENANCE = "provenance only"  # the output is the same; who wrote it, or how it is written down, is not
    RETOKENIZED = "other tokens, same text"
    RECONVERGES = "reconverges"  # tokens differ, and the ends agree again
    TEXT = "text only"  # same tokens, another text
    FINISH = "finish reason"  # same tokens, another finish reason
    LENGTH = "length"  # one output is the start of the other
    FORKED = "forked"  # tokens differ from a position on
    REQUEST = "another request"  # the prompt's tokens or its sampling changed
    ADDED = "added"
    REMOVED = "removed"
    DAMAGED = "damaged"  # a side cannot be read


@dataclass(frozen=True, slots=True)
class GoldenChange:
    """One prompt. ``detail`` is in words, ``position`` the first differing token, ``fields`` what else changed: name,
    old value, new value (both as text)."""

    profile: str
    prompt: str
    change: Change
    detail: str
    old: GoldenFile | None = None
    new: GoldenFile | None = None
    alignment: Alignment | None = None
    position: int | None = None
    fields: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class BandChange:
    """Golden accept length of one category (tokens a verify step); None where a side does not know it. ``inside``:
    whether the new value is in the old one's band."""

    profile: str
    variant: str
    category: str
    old: float | None
    new: float | None
    band: tuple[float, float] | None
    inside: bool


@dataclass(frozen=True, slots=True)
class GoldenDiff:
    """All prompts of both sides, by profile and name, and the accept lengths that are not the same. ``notes`` says of
    which variant only one side has accept lengths, and what of them cannot be read."""

    prompts: tuple[GoldenChange, ...]
    bands: tuple[BandChange, ...]
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[Change, int]:
        return {c: n for c in Change if (n := sum(p.change is c for p in self.prompts))}

    @property
    def changed(self) -> bool:
        """Whether anything that is compared changed: provenance is not."""
        quiet = (Change.UNCHANGED, Change.PROVENANCE)
        return bool(self.bands or self.notes) or any(p.change not in quiet for p in self.prompts)


def diff(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> GoldenDiff:
    """Compare two sets of files by ``profile/name.json``."""
    prompts, bands, notes = [], [], []
    for path in sorted({*old, *new}):
        profile, _, file = path.rpartition("/")
        name = file.removesuffix(".json")
        a, b = old.get(path), new.get(path)
        if name.startswith(f"{MANIFEST}-"):
            variant = name.removeprefix(f"{MANIFEST}-")
            if a is None or b is None:
                notes.append(f"accept lengths of {profile}/{variant}: {'added' if a is None else 'removed'}")
                continue
            try:
                bands += _bands(profile, variant, loads(a, where=path), loads(b, where=path))
            except UsageError as problem:
                notes.append(problem.message)
        elif not name.startswith("_"):
            prompts.append(_prompt(profile, name, a, b, path))
    return GoldenDiff(tuple(prompts), tuple(bands), tuple(notes))


def _prompt(profile: str, name: str, a: bytes | None, b: bytes | None, path: str) -> GoldenChange:
    sides: list[GoldenFile | None] = []
    for word, content in (("old", a), ("new", b)):
        try:
            golden = None if content is None else parse_golden(content, where=path)
        except UsageError as problem:
            return GoldenChange(profile, name, Change.DAMAGED, f"{word}: {problem.message}")
        if golden is not None and golden.prompt != name:
            detail = f"{word}: {path} says it belongs to prompt {golden.prompt!r}"
            return GoldenChange(profile, name, Change.DAMAGED, detail)
        sides.append(golden)
    left, right = sides
    if left is None or right is None:
        one = left or right
        assert one is not None
        change = Change.ADDED if left is None else Change.REMOVED
        return GoldenChange(profile, name, change, _size(one), left, right)
    if a == b:
        return GoldenChange(profile, name, Change.UNCHANGED, _size(right), left, right)
    return _changed(profile, name, left, right)


def _changed(profile: str, name: str, left: GoldenFile, right: GoldenFile) -> GoldenChange:
    fields = _fields(left, right)
    alignment = align(left.output.token_ids, right.output.token_ids)
    position = alignment.hunks[0].baseline_start if alignment.hunks else None
    change, detail = _classify(left, right, alignment, fields)
    if left.provenance.prompt != right.provenance.prompt:
        same = left.output == right.output
        detail = "recorded for other prompt tokens or sampling; " + ("the output is the same" if same else detail)
        change = Change.REQUEST
    return GoldenChange(profile, name, change, detail, left, right, alignment, position, fields)


def _classify(
    left: GoldenFile, right: GoldenFile, alignment: Alignment, fields: tuple[tuple[str, str, str], ...]
) -> tuple[Change, str]:
    a, b = left.output, right.output
    if a == b:
        return Change.PROVENANCE, ", ".join(name for name, _, _ in fields) or "only how the file is written"
    finish = ""
    if (a.finish_reason, a.finish_matched) != (b.finish_reason, b.finish_matched):
        finish = f"finish {_finish(left)} became {_finish(right)}"
    if alignment.equal:
        if finish:
            return Change.FINISH, finish + ("; the text changed too" if a.text != b.text else "")
        return Change.TEXT, f"{len(a.text)} characters became {len(b.text)}, the tokens are the same"
    change, detail = _tokens(left, right, alignment)
    return change, "; ".join(part for part in (detail, finish) if part)


def _tokens(left: GoldenFile, right: GoldenFile, alignment: Alignment) -> tuple[Change, str]:
    before, after = len(left.output.token_ids), len(right.output.token_ids)
    (first, *more), last = alignment.hunks, len(alignment.hunks) - 1
    equal = alignment.matched_after(last)
    if not more and not equal and first.baseline_start == min(before, after):
        words = f"{abs(after - before)} tokens {'more' if after > before else 'fewer'}"
        return Change.LENGTH, f"{words} at the end ({before} became {after})"
    where = f"at position {first.baseline_start} of {before}"
    if left.output.text == right.output.text:
        return Change.RETOKENIZED, f"{len(alignment.hunks)} difference{'s' * bool(more)}, the first {where}"
    if equal >= max(1, min(RECONVERGENCE, min(before, after) // 2)):
        count = f"{len(alignment.hunks)} difference{'s' * bool(more)}"
        return Change.RECONVERGES, f"{count}, the first {where}; the last {equal} tokens are equal"
    return Change.FORKED, f"{where}; {before} tokens became {after}"


def _fields(left: GoldenFile, right: GoldenFile) -> tuple[tuple[str, str, str], ...]:
    """What differs apart from the output, by name."""

    def flat(golden: GoldenFile) -> dict[str, Any]:
        p = asdict(golden.provenance)
        arguments = p.pop("arguments")
        return {"category": golden.category, "input": golden.input, **p, **arguments}

    a, b = flat(left), flat(right)
    names = dict.fromkeys((*a, *b))
    return tuple((n, _value(a.get(n)), _value(b.get(n))) for n in names if a.get(n) != b.get(n))


def _bands(
    profile: str, variant: str, old: Mapping[str, GoldenAcceptance], new: Mapping[str, GoldenAcceptance]
) -> list[BandChange]:
    return [
        _band(profile, variant, category, old.get(category), new.get(category))
        for category in sorted({*old, *new})
        if old.get(category) != new.get(category)
    ]


def _band(
    profile: str, variant: str, category: str, old: GoldenAcceptance | None, new: GoldenAcceptance | None
) -> BandChange:
    was, now = (None if side is None else side.accept_length for side in (old, new))
    band = None if old is None else old.band
    inside = band is not None and now is not None and band[0] <= now <= band[1]
    return BandChange(profile, variant, category, was, now, band, inside)


def _finish(golden: GoldenFile) -> str:
    o = golden.output
    return o.finish_reason if o.finish_matched is None else f"{o.finish_reason} ({o.finish_matched!r})"


def _size(golden: GoldenFile) -> str:
    count = len(golden.output.token_ids)
    return f"{count} token{'s' * (count != 1)}"


def _value(value: Any) -> str:
    return "-" if value is None else str(value)
