"""A bench for people: tables on the terminal, or Markdown for a forum post or a model card."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from lossless.bench.file import Bench, Facts, Table


def bench_tables(bench: Bench) -> RenderableType:
    """Everything, for the terminal."""
    return Group(*(Text(line) for line in header(bench)), *(part for table in bench.tables for part in _rich(table)))


def bench_markdown(bench: Bench) -> str:
    """Everything, as Markdown that can be pasted."""
    head, *more = header(bench)
    parts = [f"**{head}**", "\n".join(f"- {line}" for line in more)]
    parts += ["\n\n".join(_markdown(table)) for table in bench.tables]
    return "\n\n".join(part for part in parts if part) + "\n"


def header(bench: Bench) -> Iterator[str]:
    """What was measured, on what, how often and when; then the arguments of each server."""
    base = _facts(bench, bench.names[0])
    facts = [base, *(_facts(bench, name) for name in bench.names[1:])]
    versions = dict.fromkeys(f.version for f in facts if f.version)
    machines = dict.fromkeys(f.machine for f in facts if f.machine)
    first = next((f for f in facts if f.model), base)
    parts = [
        f"sglang-lossless bench {bench.tool_version}",
        *(v if v.startswith("reference-") else f"SGLang {v}" for v in versions),
        "; ".join(machines) or "machine unknown",
        first.model or "model unknown",
        f"dtype {first.dtype or 'unknown'}",
        f"{bench.settings.repeats} repeat{'' if bench.settings.repeats == 1 else 's'} after a warm-up",
        bench.created[:10],
    ]
    yield " · ".join(parts)
    for name in bench.names:
        own = _facts(bench, name)
        differs = own.arguments if own is base else _beside(own.arguments, base.arguments)
        words = [own.algorithm or ("no speculation" if own is base else "")]
        words += [f"{key.replace('_', '-')}={value}" for key, value in differs.items()]
        yield f"{name}: {', '.join(word for word in words if word) or 'as the baseline'}"
    seconds = sum(server.seconds for server in bench.servers.values())
    yield f"profile {bench.profile}; measuring took {seconds:.1f} s, greedy unless a temperature is given"


def _facts(bench: Bench, name: str) -> Facts:
    server = bench.servers.get(name)
    return server.facts if server is not None else Facts()


def _beside(own: dict[str, str], base: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in own.items() if base.get(key) != value}


def _rich(table: Table) -> Iterator[RenderableType]:
    found = RichTable(box=None, padding=(0, 2, 0, 0))
    for place, column in enumerate(table.columns):
        words = [word for cell in (column, *(row[place] for row in table.rows)) for word in cell.split()]
        longest = max(map(len, words), default=1)
        found.add_column(Text(column), justify="left" if place == 0 else "right", min_width=longest)
    for row in table.rows:
        found.add_row(*(Text(cell) for cell in row))
    yield Text(f"\n{table.title}", style="bold")
    yield found
    if table.note:
        yield Text(table.note, style="dim")


def _markdown(table: Table) -> Iterator[str]:
    yield f"**{table.title}**"
    rule = "|".join(["---", *(["---:"] * (len(table.columns) - 1))])
    lines = [_line(table.columns), f"|{rule}|", *(_line(row) for row in table.rows)]
    yield "\n".join(lines)
    if table.note:
        yield table.note


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
