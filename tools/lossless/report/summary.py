"""The end of a run for the person at the keyboard: controls first, then verdicts, acceptance and speed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lossless.analysis import Analysis, Judged
from lossless.record.plan import PLAIN
from lossless.report.context import context_figures
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
    if m.shard:
        head += f" · shard {m.shard}"
    if m.fault:
        head += f" · planted fault {m.fault}"
    return Group(
        Text(head, style="bold"),
        _controls(analysis),
        *_servers(analysis),
        Text(""),
        _verdicts(analysis),
        Text(""),
        _figures(analysis),
        *context_figures(analysis),
    )


def _servers(analysis: Analysis) -> Iterator[RenderableType]:
    """One line a server, warnings below; the tiny reference engine has nothing to tell."""
    for figures in analysis.server_figures():
        if not str(figures.version).startswith("reference-"):
            yield Text(f" {figures.name}: SGLang {figures.version}, {figures.describe()}", style="dim")
        for warning in figures.warnings:
            yield Text(f" warning, {figures.name}: {warning}", style="yellow")


def _controls(analysis: Analysis) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for control in analysis.controls:
        mark = Text("ok", "green") if control.ok else Text("FAILED", "bold red")
        table.add_row(mark, control.scope, control.name, Text(control.detail))
    for result in analysis.survival:
        mark = Text("ok", "green") if result.ok else Text("FAILED", "bold red")
        table.add_row(mark, result.server, "stress", Text(result.detail))
    return table


def _verdicts(analysis: Analysis) -> RenderableType:
    rows: list[tuple[str, list[Judged]]] = []
    every = list(analysis.verdicts())
    for variant in analysis.manifest.variants:
        judged = [j for j in every if j.variant == variant]
        rows.append((variant, [j for j in judged if j.stage == PLAIN]))
        rows.append((f"{variant}, all other passes", [j for j in judged if j.stage != PLAIN]))
    return verdict_table(rows)


def verdict_table(rows: Iterable[tuple[str, Sequence[Judged]]]) -> RenderableType:
    """Answers by verdict, one line a row; a row without answers is left out."""
    table = Table(title="verdicts (answers compared)", title_justify="left", box=None, padding=(0, 2), pad_edge=False)
    table.add_column("variant", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column.replace(" (", "\n("), justify="right", no_wrap=True)
    for label, judged in rows:
        if not judged:
            continue
        found = Counter(j.verdict.label if j.verdict.kind is Kind.NEAR_TIE else str(j.verdict.kind) for j in judged)
        table.add_row(label, *(Text(str(found[c]), STYLES.get(c, "") if found[c] else "dim") for c in COLUMNS))
    return table


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


def known_lines(analysis: Analysis) -> Iterator[str]:
    """Known issues of the SGLang version, and on which prompts they show."""
    for variant in analysis.manifest.variants:
        for issue, prompts in analysis.covered(variant).items():
            shown = [p for p in prompts if not analysis.verdict(variant, p).verdict.passed()]
            yield f"known issue, {variant}: {issue}; shows on {len(shown)} of {len(prompts)} prompts"


def golden_lines(analysis: Analysis) -> Iterator[str]:
    """Goldens that hold only up to a near-tie: a pass, but one a reader should know of."""
    for prompt_id in analysis.goldens:
        if prompt_id not in analysis.prompts:
            continue
        judged = analysis.golden_verdict(prompt_id)
        if judged is not None and judged.verdict.kind is Kind.NEAR_TIE:
            yield f"golden {prompt_id}: {judged.verdict.label}, {judged.verdict.detail}"
