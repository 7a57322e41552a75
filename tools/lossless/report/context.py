"""Long context and stress for readers and scripts: the curve, the hidden facts, what was left out, who survived."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from lossless.analysis import Analysis
from lossless.analysis.survival import Survived
from lossless.record.survival import Survival


def context_figures(analysis: Analysis) -> Iterator[RenderableType]:
    """The curve of accept length against context length, the hidden facts, and the lengths that were left out."""
    left_out = skipped(analysis)
    curves = {s: analysis.context_curve(s) for s in analysis.servers}
    lengths = sorted({point.prompt_tokens for curve in curves.values() for point in curve})
    if len(lengths) >= 2:
        yield Text("")
        yield _curve(analysis, lengths)
    if any(analysis.needles(s).asked for s in analysis.servers):
        yield Text(needle_line(analysis))
    for line in left_out:
        yield Text(line, style="yellow")


def _curve(analysis: Analysis, lengths: list[int]) -> RenderableType:
    table = Table(
        title="accept length by context length",
        title_justify="left",
        box=None,
        padding=(0, 2),
        pad_edge=False,
    )
    table.add_column("prompt tokens", justify="right")
    table.add_column("baseline s", justify="right")
    for variant in analysis.manifest.variants:
        table.add_column(variant, justify="right")
        table.add_column("steps", justify="right")
        table.add_column("s", justify="right")
    points = {s: {p.prompt_tokens: p for p in analysis.context_curve(s)} for s in analysis.servers}
    for tokens in lengths:
        base = points["baseline"].get(tokens)
        cells = [_number(base.seconds if base else None)]
        for variant in analysis.manifest.variants:
            point = points[variant].get(tokens)
            cells.append(_number(point.accept_length if point else None))
            cells.append(str(point.verify_steps) if point else "-")
            cells.append(_number(point.seconds if point else None))
        table.add_row(f"{tokens:,}", *cells)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def needle_line(analysis: Analysis) -> str:
    """How many hidden facts each server found: a figure of the model, and no verdict."""
    counts = {s: analysis.needles(s) for s in analysis.servers}
    found = ", ".join(f"{name} {len(n.found)} of {n.asked}" for name, n in counts.items() if n.asked)
    return f"hidden facts found (a figure of the model, no verdict): {found}"


def skipped(analysis: Analysis) -> Iterator[str]:
    """One line a reason: which prompts were built to a length that a server has no room for."""
    reasons: dict[str, list[str]] = {}
    for name, prompt in analysis.prompts.items():
        reason = analysis.inapplicable(name) if prompt.depth is not None else None
        if reason is not None:
            reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        yield f"left out, {', '.join(names)}: {reason}"


def context_evidence(analysis: Analysis) -> dict[str, Any]:
    """The parts of the evidence that this module knows of."""
    curves = {s: analysis.context_curve(s) for s in analysis.servers}
    return {
        "skipped": {p: why for p in analysis.prompts if (why := analysis.inapplicable(p)) is not None},
        "accept_by_context": {
            v: [
                {
                    "prompt_tokens": p.prompt_tokens,
                    "accept_length": p.accept_length,
                    "verify_steps": p.verify_steps,
                    "prompts": p.prompts,
                }
                for p in curves[v]
            ]
            for v in analysis.manifest.variants
        },
        "speed_by_context": {
            s: [
                {
                    "prompt_tokens": p.prompt_tokens,
                    "tokens_per_s": p.tokens_per_s,
                    "seconds": p.seconds,
                    "prompts": p.prompts,
                }
                for p in curve
            ]
            for s, curve in curves.items()
        },
        "needles": {s: asdict(n) for s in analysis.servers if (n := analysis.needles(s)).asked},
        "survival": [_survival(result) for result in analysis.survival],
    }


def _survival(result: Survived) -> dict[str, Any]:
    stages = {j.stage: Counter[str]() for j in result.judged}
    for j in result.judged:
        stages[j.stage][j.verdict.label] += 1
    return {
        "server": result.server,
        "ok": result.ok,
        "detail": result.detail,
        **asdict(result.facts or Survival()),
        "answers": {stage: dict(counts) for stage, counts in stages.items()},
    }
