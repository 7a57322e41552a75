"""The end of a run for the person at the keyboard: controls first, then verdicts, acceptance and speed."""

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lossless.analysis import Analysis
from lossless.record.plan import PLAIN
from lossless.verdict import Kind

COLUMNS = (
    "identical",
    "near-tie (reconverged)",
    "near-tie (forked)",
    "divergent",
    "inconclusive",
)
STYLES = {"divergent": "bold red", "inconclusive": "yellow", "identical": "green"}


def summary(analysis: Analysis) -> RenderableType:
    """Controls, one row a variant, accept length and speed by category, and where the evidence lies."""
    m = analysis.manifest
    head = f"{m.profile}: {m.target} · {m.dtype} · prompts {m.prompt_set} ({len(analysis.prompts)})"
    if m.fault:
        head += f" · planted fault {m.fault}"
    return Group(
        Text(head, style="bold"), _controls(analysis), Text(""), _verdicts(analysis), Text(""), _figures(analysis)
    )


def _controls(analysis: Analysis) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for control in analysis.controls:
        mark = Text("ok", "green") if control.ok else Text("FAILED", "bold red")
        table.add_row(mark, control.scope, control.name, Text(control.detail))
    return table


def counts(analysis: Analysis, variant: str, stages: frozenset[str] | None = None) -> Counter[str]:
    """Verdicts of one variant by column name, over the stages asked for (default: all)."""
    found: Counter[str] = Counter()
    for judged in analysis.verdicts():
        if judged.variant == variant and (stages is None or judged.stage in stages):
            v = judged.verdict
            found[v.label if v.kind is Kind.NEAR_TIE else str(v.kind)] += 1
    return found


def _verdicts(analysis: Analysis) -> RenderableType:
    table = Table(title="verdicts (answers compared)", title_justify="left", box=None, padding=(0, 2), pad_edge=False)
    table.add_column("variant")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for variant in analysis.manifest.variants:
        for label, stages in ((variant, frozenset({PLAIN})), (f"{variant}, under load and cached", _staged(analysis))):
            row = counts(analysis, variant, stages)
            if not sum(row.values()):
                continue
            cells = [Text(str(row[c]), STYLES.get(c, "") if row[c] else "dim") for c in COLUMNS]
            table.add_row(label, *cells)
    return table


def _staged(analysis: Analysis) -> frozenset[str]:
    return frozenset(stage for stage, _, _ in analysis.staged())


def _figures(analysis: Analysis) -> RenderableType:
    variants = analysis.manifest.variants
    table = Table(
        title="accept length (tokens a verify step) and decode speed (tokens/s, one request at a time)",
        title_justify="left",
        box=None,
        padding=(0, 2),
        pad_edge=False,
    )
    table.add_column("category")
    table.add_column("baseline t/s", justify="right")
    for variant in variants:
        table.add_column(variant, justify="right")
        table.add_column("t/s", justify="right")
        table.add_column("speed-up", justify="right")
    base = analysis.speed("baseline")
    accept = {v: analysis.acceptance(v) for v in variants}
    speeds = {v: analysis.speed(v) for v in variants}
    for category, own in base.items():
        cells = [f"{own.tokens_per_s:.1f}" if own.tokens_per_s else "-"]
        for v in variants:
            length, rate = accept[v][category].accept_length, speeds[v][category].tokens_per_s
            cells.append(f"{length:.2f}" if length else "-")
            cells.append(f"{rate:.1f}" if rate else "-")
            cells.append(f"{rate / own.tokens_per_s:.2f}x" if rate and own.tokens_per_s else "-")
        table.add_row(category, *cells, end_section=False, style="bold" if category == "all" else "")
    return table


def golden_lines(analysis: Analysis) -> Iterator[str]:
    """Goldens that hold only up to a near-tie: a pass, but one a reader should know of."""
    for prompt_id in analysis.goldens:
        if prompt_id not in analysis.prompts:
            continue
        judged = analysis.golden_verdict(prompt_id)
        if judged is not None and judged.verdict.kind is Kind.NEAR_TIE:
            yield f"golden {prompt_id}: {judged.verdict.label}, {judged.verdict.detail}"
