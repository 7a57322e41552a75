"""Golden changes for a reviewer: one line a prompt, tokens on demand; on a terminal, as Markdown, as JSON."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lossless.golden.diff import BandChange, Change, GoldenChange, GoldenDiff
from lossless.report.excerpt import excerpt
from lossless.report.sections import Section

SCHEMA = 1
MAX_HUNKS = 12
MAX_TOKENS = 8
AROUND = 48  # characters of text shown around the first difference
QUIET = (Change.UNCHANGED, Change.PROVENANCE)
Decode = Callable[[Sequence[int]], str]


def sections(found: GoldenDiff, old: str, new: str, *, every: bool = False) -> Iterator[Section]:
    """A summary, then a table a profile. ``every``: also what did not change."""
    counts = ", ".join(f"{n} {change}" for change, n in found.counts.items())
    lines = [counts or "no goldens", *found.notes]
    if not found.changed:
        lines.append("nothing that is compared changed")
    yield Section(f"goldens: {old} → {new}", lines=(*lines, *_provenance(found.prompts)))
    for profile in dict.fromkeys(p.profile for p in found.prompts):
        rows = [p for p in found.prompts if p.profile == profile and (every or p.change not in QUIET)]
        rows.sort(key=lambda p: -list(Change).index(p.change))
        if rows:
            yield Section(
                profile,
                columns=("prompt", "change", "written by", "detail"),
                rows=tuple((p.prompt, str(p.change), _writers(p), p.detail) for p in rows),
                limit=len(rows),
            )
    if found.bands:
        yield _bands(found.bands)


def _provenance(prompts: Iterable[GoldenChange]) -> Iterator[str]:
    """Which fields changed beside the output, counted, so that one cause is one line."""
    changes = Counter(field for p in prompts for field in p.fields if field[0] not in ("input", "prompt"))
    for (name, a, b), count in changes.most_common(12):
        yield f"{name}: {a} → {b} in {count} golden{'s' * (count != 1)}"


def _writers(change: GoldenChange) -> str:
    found = [f"{g.provenance.engine} {g.provenance.version}" for g in (change.old, change.new) if g is not None]
    return " → ".join(dict.fromkeys(found))


def _bands(bands: Sequence[BandChange]) -> Section:
    return Section(
        "golden accept lengths (tokens a verify step)",
        columns=("profile", "variant", "category", "old", "new", "old band", ""),
        rows=tuple(
            (
                b.profile,
                b.variant,
                b.category,
                _length(b.old),
                _length(b.new),
                f"{b.band[0]:.2f} to {b.band[1]:.2f}" if b.band else "-",
                _moved(b),
            )
            for b in sorted(bands, key=lambda b: b.inside)
        ),
        right=frozenset((3, 4, 5)),
        limit=len(bands),
    )


def _length(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _moved(band: BandChange) -> str:
    if band.old is None or band.new is None:
        return "added" if band.old is None else "removed"
    return "in the band" if band.inside else "fell" if band.new < band.old else "rose"


# --------------------------------------------------------------------------------------------------------------- tokens
def tokens(change: GoldenChange, decode: Decode | None) -> Section:
    """Every difference of one prompt. ``decode`` turns token ids into text; without it ids are shown, and the text
    around the first difference."""
    title = f"{change.profile}/{change.prompt}: {change.change}"
    lines = [change.detail, *(f"{name}: {a} → {b}" for name, a, b in change.fields)]
    if change.old is None or change.new is None or change.alignment is None:
        one = change.new or change.old
        text = () if one is None else (("", _cut(one.output.text, 0)),)
        return Section(title, lines=tuple(lines), columns=("", "text"), rows=text, quoted=frozenset((1,)))
    old, new, hunks = change.old.output, change.new.output, change.alignment.hunks
    rows: list[tuple[str, ...]] = []
    for hunk in hunks[:MAX_HUNKS]:
        rows.append(_side("old", old.token_ids, hunk.baseline_start, hunk.baseline_end, decode))
        rows.append(_side("new", new.token_ids, hunk.variant_start, hunk.variant_end, decode))
    if old.text != new.text and (decode is None or not hunks):
        at = _first_difference(old.text, new.text)
        lines.append(f"the texts differ from character {at} on")
        rows += [("old text", "", "", "", _cut(old.text, at)), ("new text", "", "", "", _cut(new.text, at))]
    if decode is None and hunks:
        lines.append("no tokenizer, so tokens are shown as ids (--tokenizer DIR)")
    if len(hunks) > MAX_HUNKS:
        lines.append(f"{len(hunks)} differences, the first {MAX_HUNKS} are shown")
    return Section(
        title,
        lines=tuple(lines),
        columns=("side", "position", "tokens", "ids", "text"),
        rows=tuple(rows),
        right=frozenset((1, 2)),
        quoted=frozenset((3, 4)),
    )


def _side(name: str, ids: Sequence[int], start: int, end: int, decode: Decode | None) -> tuple[str, ...]:
    shown = ", ".join(map(str, ids[start : min(end, start + MAX_TOKENS)]))
    text = str(excerpt(ids, start, end, decode)) if decode else ""
    return name, str(start), str(end - start), shown + (" …" if end - start > MAX_TOKENS else ""), text


def _first_difference(a: str, b: str) -> int:
    """Index of the first unequal character, or the shorter text's end."""
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _cut(text: str, at: int) -> str:
    start, end = max(0, at - AROUND), at + 2 * AROUND
    shown = text[start:end].replace("\n", "⏎").replace("\t", "⇥")
    return f"{'…' if start else ''}{shown}{'…' if end < len(text) else ''}"


# ----------------------------------------------------------------------------------------------------------------- JSON
def diff_json(found: GoldenDiff, old: str, new: str) -> dict[str, Any]:
    """Everything, unchanged goldens too, as plain values."""
    return {
        "schema": SCHEMA,
        "kind": "golden-diff",
        "old": old,
        "new": new,
        "changed": found.changed,
        "counts": {str(change): n for change, n in found.counts.items()},
        "prompts": [_prompt_json(p) for p in found.prompts],
        "accept_length": [
            {
                "profile": b.profile,
                "variant": b.variant,
                "category": b.category,
                "old": b.old,
                "new": b.new,
                "band": b.band,
                "inside": b.inside,
            }
            for b in found.bands
        ],
        "notes": list(found.notes),
    }


def _prompt_json(change: GoldenChange) -> dict[str, Any]:
    hunks = change.alignment.hunks if change.alignment else ()
    return {
        "profile": change.profile,
        "prompt": change.prompt,
        "change": str(change.change),
        "detail": change.detail,
        "position": change.position,
        "fields": [{"name": name, "old": a, "new": b} for name, a, b in change.fields],
        "differences": [
            {
                "old_start": h.baseline_start,
                "new_start": h.variant_start,
                "old_ids": list(change.old.output.token_ids[h.baseline_start : h.baseline_end]) if change.old else [],
                "new_ids": list(change.new.output.token_ids[h.variant_start : h.variant_end]) if change.new else [],
            }
            for h in hunks
        ],
    }
