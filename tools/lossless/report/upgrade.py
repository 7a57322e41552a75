"""The upgrade report: the same sections on a terminal and as Markdown, and everything as JSON."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from lossless.analysis.upgrade import Upgrade
from lossless.analysis.upgrade_baseline import Drift
from lossless.analysis.upgrade_figures import SPEED_MOVED, AcceptChange, FigureChange, SpeedChange, finite
from lossless.analysis.upgrade_variants import VerdictChange
from lossless.golden.plan import Action, Planned
from lossless.report.sections import Section
from lossless.verdict import Kind, Reason

SCHEMA = 1
Command = tuple[str, str]
"""What a command is good for, and the command."""
COLUMNS = ("identical", "near-tie (reconverged)", "near-tie (forked)", "divergent", "inconclusive", "known")
VALUE_WIDTH = 32
ACTIONS: dict[Action, str] = {"write": "new", "rewrite": "rewritten", "keep": "kept", "refuse": "refused"}


def sections(upgrade: Upgrade, plan: Sequence[Planned], commands: Sequence[Command]) -> Iterator[Section]:
    """Everything in the order an operator asks; the verdict last."""
    yield _facts(upgrade)
    yield _drift(upgrade)
    yield from _variants(upgrade)
    yield _acceptance(upgrade.accept)
    yield _speed(upgrade.speed)
    yield _figures(upgrade.figures)
    yield _arguments(upgrade)
    if upgrade.issues:
        yield _issues(upgrade)
    if plan:
        yield _plan(plan)
    yield Section(f"{upgrade.status}: {upgrade.sentence}", commands=tuple(commands))


def _facts(upgrade: Upgrade) -> Section:
    rows = tuple((f.name, f.old or "-", "same" if f.new == f.old else f.new or "-") for f in upgrade.facts)
    version = next(f for f in upgrade.facts if f.name == "SGLang")
    return Section(f"upgrade: SGLang {version.old} → {version.new}", columns=("", "old", "new"), rows=rows)


def _drift(upgrade: Upgrade) -> Section:
    counts = upgrade.drift_counts
    rows = sorted((d for d in upgrade.drift if d.verdict.kind is not Kind.IDENTICAL), key=_severity)
    lines = [", ".join(f"{counts[c]} {c}" for c in COLUMNS if counts.get(c)) or "no prompt to compare"]
    weak = sum(d.source in ("first flip", "none") and not d.verdict.passed() for d in rows)
    if weak:
        lines.append(f"not re-scored by the new baseline: {weak} old output{'s' * (weak != 1)}")
    return Section(
        "baseline: what the old one said, as the new one sees it",
        lines=tuple(lines),
        columns=("prompt", "verdict", "judged by", "detail"),
        rows=tuple((d.prompt, d.verdict.label, d.source, d.verdict.detail) for d in rows),
    )


def _severity(drift: Drift) -> int:
    return (Kind.DIVERGENT, Kind.INCONCLUSIVE, Kind.NEAR_TIE, Kind.IDENTICAL).index(drift.verdict.kind)


def _variants(upgrade: Upgrade) -> Iterator[Section]:
    rows, lines = [], []
    for v in upgrade.variants:
        for when, state, counts in (("old", v.old, v.old_counts), ("new", v.new, v.new_counts)):
            rows.append((v.variant, when, state, *(str(counts.get(c, 0)) for c in COLUMNS)))
        lines += [f"{v.variant}: {p}" for p in v.problems]
    yield Section(
        "variants: each against the baseline of its own run (answers compared)",
        lines=tuple(lines),
        columns=("variant", "run", "status", *COLUMNS),
        rows=tuple(rows),
        right=frozenset(range(3, 3 + len(COLUMNS))),
    )
    changes = [(v.variant, c) for v in upgrade.variants for c in v.changes]
    changes.sort(key=lambda item: not item[1].worse)
    if not changes:
        return
    yield Section(
        f"verdicts that changed: {len(changes)}, worse in {sum(c.worse for _, c in changes)}",
        columns=("prompt", "variant", "asked", "old", "new", "detail"),
        rows=tuple(
            (c.prompt, v, f"{c.stage} {c.turn + 1}" if c.turn else c.stage, c.old, c.new, _why(c)) for v, c in changes
        ),
        folded=not any(c.worse for _, c in changes),
    )


def _why(change: VerdictChange) -> str:
    return "known issue" if change.known else change.detail if change.worse else ""


def _acceptance(accept: Sequence[AcceptChange]) -> Section:
    moved = [a for a in accept if a.moved]
    return Section(
        "accept length (tokens a verify step)",
        lines=() if moved else ("every category is in the band around its old value",) if accept else ("not measured",),
        columns=("variant", "category", "old", "new", "band", "moved"),
        rows=tuple(
            (
                a.variant,
                a.category,
                _number(a.old, 2),
                _number(a.new, 2),
                f"{a.band[0]:.2f} to {a.band[1]:.2f}" if a.band else "-",
                a.moved,
            )
            for a in (*moved, *(a for a in accept if a.category == "all" and not a.moved))
        ),
        right=frozenset((2, 3, 4)),
    )


def _speed(speed: Sequence[SpeedChange]) -> Section:
    shown = [s for s in speed if s.moved or s.category == "all"]
    return Section(
        "decode speed (tokens/s, one request at a time)",
        lines=(
            f"Each figure is one measurement, and those vary: only changes of {SPEED_MOVED:.0%} or more are listed "
            "beside the whole set.",
        ),
        columns=("server", "category", "old", "new", "ratio", "moved"),
        rows=tuple(
            (s.server, s.category, _number(s.old, 1), _number(s.new, 1), _number(s.ratio, 2, "x"), s.moved)
            for s in shown
        ),
        right=frozenset((2, 3, 4)),
    )


def _figures(figures: Sequence[FigureChange]) -> Section:
    return Section(
        "memory, pools and start-up",
        lines=() if figures else ("not known",),
        columns=("server", "figure", "old", "new", "change"),
        rows=tuple(
            (f.server, f.name, _figure(f.old, f.unit), "same" if f.new == f.old else _figure(f.new, f.unit), _change(f))
            for f in figures
        ),
        right=frozenset((2, 3, 4)),
        folded=True,
    )


def _figure(value: float | None, unit: str) -> str:
    digits = {"GB": 2, "s": 1}.get(unit, 0)
    return _number(value, digits, f" {unit}" if unit else "")


def _change(figure: FigureChange) -> str:
    if not figure.old or figure.new is None or figure.new == figure.old:
        return ""
    return f"{figure.new / figure.old - 1:+.1%}"


def _arguments(upgrade: Upgrade) -> Section:
    lines = []
    for names, words in ((upgrade.new_arguments, "new"), (upgrade.gone_arguments, "no longer shown")):
        if names:
            lines.append(f"{len(names)} arguments are {words}: {', '.join(names[:8])}{' …' if len(names) > 8 else ''}")
    if not upgrade.arguments:
        lines.insert(0, "no resolved argument changed")
    servers = set(upgrade.old.servers) & set(upgrade.new.servers)
    return Section(
        "resolved defaults that changed",
        lines=tuple(lines),
        columns=("argument", "old", "new", "servers", "matters because"),
        rows=tuple(
            (c.name, *_values(c.old, c.new), "all" if set(c.servers) == servers else ", ".join(c.servers), c.why or "-")
            for c in upgrade.arguments
        ),
        quoted=frozenset((1, 2)),
    )


def _values(old: Any, new: Any) -> tuple[str, str]:
    """Both values on one line each; of long ones, what is around the first difference."""
    a, b = (json.dumps(v, ensure_ascii=False) if not isinstance(v, str) else v for v in (old, new))
    if max(len(a), len(b)) <= VALUE_WIDTH:
        return a, b
    at = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    start = max(0, at - VALUE_WIDTH // 3)
    return _cut(a, start), _cut(b, start)


def _cut(text: str, start: int) -> str:
    end = start + VALUE_WIDTH
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def _issues(upgrade: Upgrade) -> Section:
    def shown(count: int | None, total: int) -> str:
        return "not listed" if count is None else f"{count} of {total}"

    return Section(
        "known issues of these versions (prompts on which they show)",
        columns=("variant", "state", "old", "new", "issue"),
        rows=tuple(
            (i.variant, i.state, shown(i.old, len(i.prompts)), shown(i.new, len(i.prompts)), str(i.issue))
            for i in upgrade.issues
        ),
        folded=all(i.state == "stays" for i in upgrade.issues),
    )


def _plan(plan: Sequence[Planned]) -> Section:
    """Counts, every new golden by name, and why the others are written or refused."""
    counts = ", ".join(f"{n} {word}" for a, word in ACTIONS.items() if (n := sum(p.action == a for p in plan)))
    new = ", ".join(p.name for p in plan if p.action == "write")
    return Section(
        f"goldens, if they are updated from this run: {counts}",
        lines=(f"new: {new}",) if new else (),
        columns=("golden", "", "why"),
        rows=tuple((p.name, ACTIONS[p.action], p.why) for a in ("rewrite", "refuse") for p in plan if p.action == a),
        folded=True,
    )


def next_commands(upgrade: Upgrade, plan: Sequence[Planned], *, update: str, review: str) -> tuple[Command, ...]:
    """What to do now: words, and a command. ``update`` writes the goldens, ``review`` shows what that changed; they
    are offered where nothing diverged."""
    run, found = str(upgrade.new.store.path), []
    if upgrade.diverged:
        sides = f"{upgrade.old.store.path}:baseline", f"{run}:baseline"
        found.append(
            ("see how the two baselines differ; do not update the goldens:", _words("lossless", "compare", *sides))
        )
    if any(v.new == "divergent" for v in upgrade.variants):
        found.append(("see every divergence of the new variants:", _words("lossless", "verify", run)))
    if any(d.verdict.reason is Reason.UNSCORED for d in upgrade.unknown):
        command = "lossless upgrade --profile NAME --from-env OLD --to-env NEW"
        found.append(("record both versions so that the new one re-scores what the old one said:", command))
    if any(v.new not in ("proven", "divergent") for v in upgrade.variants):
        found.append(("see what is missing, and why:", _words("lossless", "verify", run)))
    writes = [p for p in plan if p.action in ("write", "rewrite")]
    if upgrade.status == "proven" and writes:
        found.append((f"write {_named(writes)}:", update))
        found.append(("then review them:", review))
    return tuple(found)


def _named(writes: Sequence[Planned]) -> str:
    names = [f"{p.name}.json" for p in writes]
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"{len(names)} golden{'s' * (len(names) != 1)}, {', '.join(names[:6])}{more}"


def _words(*words: str) -> str:
    return shlex.join(words)


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"


# ----------------------------------------------------------------------------------------------------------------- JSON
def upgrade_json(upgrade: Upgrade, plan: Sequence[Planned], commands: Sequence[Command]) -> dict[str, Any]:
    """The whole report as plain values. ``schema`` changes when a field changes its meaning or goes away."""
    return {
        "schema": SCHEMA,
        "kind": "upgrade",
        "status": upgrade.status,
        "sentence": upgrade.sentence,
        "old": upgrade.old.store.path.name,
        "new": upgrade.new.store.path.name,
        "facts": [asdict(f) for f in upgrade.facts],
        "baseline": {
            "status": upgrade.baseline_status,
            "counts": dict(upgrade.drift_counts),
            "prompts": [_drift_json(d) for d in upgrade.drift],
        },
        "variants": [asdict(v) for v in upgrade.variants],
        "known_issues": [{**asdict(i), "state": i.state} for i in upgrade.issues],
        "accept_length": [asdict(a) for a in upgrade.accept],
        "speed": [{**asdict(s), "ratio": s.ratio, "moved": s.moved} for s in upgrade.speed],
        "figures": [asdict(f) for f in upgrade.figures],
        "arguments": {
            "changed": [asdict(c) for c in upgrade.arguments],
            "new": list(upgrade.new_arguments),
            "gone": list(upgrade.gone_arguments),
        },
        "goldens": [asdict(p) for p in plan],
        "next": [{"why": words.rstrip(":"), "command": command} for words, command in commands],
    }


def _drift_json(drift: Drift) -> dict[str, Any]:
    v = drift.verdict
    first = v.differences[0] if v.differences else None
    return {
        "prompt": drift.prompt,
        "category": drift.judged.prompt.category,
        "verdict": str(v.kind),
        "label": v.label,
        "reason": None if v.reason is None else str(v.reason),
        "judged_by": drift.source,
        "position": None if first is None else first.variant_start,
        "gap": None if first is None else finite(first.gap),
        "largest_regret": None if v.regret is None else finite(v.regret.largest),
        "detail": v.detail,
    }
