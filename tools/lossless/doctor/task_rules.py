"""Rules over accept lengths by kind of task: is a category low, or is it only the mix?"""

from statistics import median

from lossless.doctor.case import ALL, Case, Measured
from lossless.doctor.finding import Finding
from lossless.doctor.run_rules import unmeasured
from lossless.doctor.tasks import FIELD, HARD, FieldFigures, below, by_kind, expected, family
from lossless.golden.acceptance import GoldenAcceptance

_AB = (
    "compare with the unquantized target (lossless doctor RUN --against RUN_OF_IT) and with NEXTN; see the "
    "captured layers and the draft's version"
)
_LOW = 0.65
"""Below this share of a field figure a category of easy tasks is suspicious: models differ, but not by more."""
_EXPLAINED = 0.85
_FEW = 10


def tasks(case: Case) -> Finding:
    """Each category of tasks against the accept length it should reach."""
    name, run = "tasks", case.measured
    if run is None:
        return unmeasured(name, case)
    if run.reference is not None:
        return _against_reference(name, run)
    field = FIELD.get(family(case.algorithm) or "")
    if field is None or run.width != field.width:
        return Finding(
            name,
            "unknown",
            f"no golden accept lengths, and no field figures for {case.algorithm or 'this algorithm'} with "
            f"{run.width or 'an unknown number of'} tokens a step",
            "keep them: pytest -m lossless --snapshot-update; or give --against RUN",
            _lengths(run),
        )
    return _against_field(name, run, field)


def _against_reference(name: str, run: Measured) -> Finding:
    assert run.reference is not None
    wanted = run.reference.categories
    low = below(run.categories, wanted)
    known = [c for c in run.categories if c != ALL and c in wanted and run.categories[c].verify_steps]
    numbers = {
        "reference": run.reference.name,
        "accept_length": {c: _round(run.categories[c].accept_length) for c in known},
        "wanted": {c: wanted[c].accept_length for c in known},
        "below": sorted(low),
    }
    if not known:
        return Finding(name, "unknown", f"{run.reference.name} knows none of these categories", None, numbers)
    if not low:
        return Finding(
            name, "ok", f"all {len(known)} categories are inside their band ({run.reference.name})", numbers=numbers
        )
    worst = sorted(low, key=lambda c: low[c][0] / low[c][1])
    shown = ", ".join(
        f"{c} {low[c][0]:.2f} (was {wanted[c].accept_length:.2f}, at least {low[c][1]:.2f})" for c in worst[:4]
    )
    more = f" and {len(low) - 4} more" if len(low) > 4 else ""
    ratios = [(run.categories[c].accept_length or 0.0) / wanted[c].accept_length for c in known]
    if 2 * len(low) >= len(known) or median(ratios) < _EXPLAINED:
        pattern = (
            f"tasks of all kinds fell (by {1 - median(ratios):.0%} in the middle), so it is the draft or how it is "
            "wired, not the tasks"
        )
    else:
        pattern = "the others hold, so look at what these have in common (language, length, grammar)"
    detail = f"{len(low)} of {len(known)} categories are below their band: {shown}{more}; {pattern}"
    return Finding(name, "wrong", detail, _AB, numbers)


def _against_field(name: str, run: Measured, field: FieldFigures) -> Finding:
    kinds = {k: a for k, a in by_kind(run.categories).items() if a.verify_steps >= _FEW}
    numbers = {
        "reference": "field report (Qwen3.8-27B)",
        "accept_length": {k: _round(a.accept_length) for k, a in kinds.items()},
        "wanted": {k: field.kinds[k] for k in kinds if k in field.kinds},
    }
    known = {k: (a.accept_length or 0.0, field.kinds[k]) for k, a in kinds.items() if k in field.kinds}
    if not known:
        return Finding(
            name,
            "unknown",
            "no golden accept lengths, and no category of a kind that has a field figure: " + ", ".join(field.kinds),
            "add prompts of these kinds, or give --against RUN",
            numbers,
        )
    shown = ", ".join(f"{k} {now:.2f} (field: {usual:.2f})" for k, (now, usual) in known.items())
    low = [k for k, (now, usual) in known.items() if now < _LOW * usual]
    if low:
        return Finding(
            name,
            "suspicious",
            f"{', '.join(low)}: well below a field report's figures for another target: {shown}",
            f"the figures only orient; {_AB}",
            numbers,
        )
    normal = "; a low figure is normal for these kinds" if set(known) <= HARD else ""
    return Finding(name, "ok", f"as in a field report: {shown}{normal}", numbers=numbers)


def task_mix(case: Case) -> Finding:
    """The mean over the set against what this mix of tasks would give with a good draft."""
    name, run = "task-mix", case.measured
    if run is None:
        return unmeasured(name, case)
    mean = run.whole.accept_length or 0.0
    if run.reference is not None:
        now = dict(run.categories)
        lengths = {c: g.accept_length for c, g in run.reference.categories.items()}
        usual = lengths.get(ALL)
    else:
        field = FIELD.get(family(case.algorithm) or "")
        if field is None or run.width != field.width:
            return Finding(
                name, "unknown", f"mean {mean:.2f}, and nothing to compare the mix with", None, _lengths(run)
            )
        now, lengths, usual = {**by_kind(run.categories), ALL: run.whole}, dict(field.kinds), field.mean
        total = {k: a for k, a in now.items() if k != ALL}
        if sum(a.tokens for a in total.values()) * 2 < run.whole.tokens:
            return Finding(name, "unknown", f"mean {mean:.2f}; most tasks have no field figure", None, _lengths(run))
        mean = sum(a.tokens for a in total.values()) / max(1, sum(a.verify_steps for a in total.values()))
    mixed = expected(now, lengths)
    numbers = {"mean": _round(mean), "usual_mean": usual, "mean_of_this_mix": _round(mixed)}
    if mixed is None:
        return Finding(
            name, "unknown", f"mean {mean:.2f}; most categories have no figure to compare with", None, numbers
        )
    whose = "the field report's own mix" if run.reference is None else "the reference's own mix"
    against = "" if usual is None else f" ({whose}: {usual:.2f})"
    if mean < _EXPLAINED * mixed:
        sure = run.reference is not None and mean < _lowest(run, mixed)
        return Finding(
            name,
            "wrong" if sure else "suspicious",
            f"mean {mean:.2f}, where this mix of tasks should give {mixed:.2f}{against}: the mix does not explain it",
            _AB,
            numbers,
        )
    return Finding(name, "ok", f"mean {mean:.2f}, and this mix of tasks gives {mixed:.2f}{against}", numbers=numbers)


def _lowest(run: Measured, mixed: float) -> float:
    """The lowest mean that counts as unchanged: a golden band around ``mixed``, over the smaller sample of steps."""
    assert run.reference is not None
    steps = [g.verify_steps for c, g in run.reference.categories.items() if c != ALL and c in run.categories]
    low, _ = GoldenAcceptance(mixed, min(sum(steps), run.whole.verify_steps)).band
    return low


def mix_explains(finding: Finding) -> bool:
    """Whether a `task-mix` finding says that the mean is low for its tasks alone."""
    mean, usual = finding.numbers.get("mean"), finding.numbers.get("usual_mean")
    return finding.status == "ok" and isinstance(mean, float) and usual is not None and mean < _EXPLAINED * usual


def _lengths(run: Measured) -> dict[str, object]:
    return {"accept_length": {c: _round(a.accept_length) for c, a in run.categories.items()}}


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
