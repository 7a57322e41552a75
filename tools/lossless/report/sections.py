"""A report as sections, and the two ways to show them: tables on a terminal, Markdown for a pull request."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lossless.report.markdown import code, details, escape, table

MAX_ROWS = 20
MAX_MARKDOWN_ROWS = 60  # GitHub refuses a comment of more than 65,536 characters
STYLES = {
    "divergent": "bold red",
    "forked": "yellow",
    "inconclusive": "yellow",
    "FAILED": "bold red",
    "fell": "yellow",
    "slower": "yellow",
    "appears": "yellow",
    "damaged": "bold red",
}


@dataclass(frozen=True, slots=True)
class Section:
    """A title, lines of text, and a table. ``right``: columns with numbers. ``folded``: closed at first on GitHub.
    ``quoted``: columns whose cells are model text or values. ``commands``: words, and the command they announce.
    ``limit``: rows on a terminal."""

    title: str
    lines: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    right: frozenset[int] = frozenset()
    quoted: frozenset[int] = frozenset()
    folded: bool = False
    limit: int = MAX_ROWS
    commands: tuple[tuple[str, str], ...] = ()


def terminal(sections: Iterable[Section]) -> RenderableType:
    """The sections for a terminal, long tables cut."""
    parts: list[RenderableType] = []
    for section in sections:
        if parts:
            parts.append(Text(""))
        parts.append(Text(section.title, style="bold"))
        parts += [_indented(line) for line in section.lines]
        if section.rows:
            parts.append(_table(section))
            parts += [Text(f"  {line}", style="dim") for line in _more(section.rows, section.limit)]
        for words, command in section.commands:
            parts.append(_indented(f"→ {words}"))
            parts.append(Text(f"    {command}", no_wrap=True, overflow="ignore"))
    return Group(*parts)


def _indented(line: str) -> RenderableType:
    return Padding(Text(line), (0, 0, 0, 2))


def _table(section: Section) -> Table:
    shown = Table(box=None, padding=(0, 2), pad_edge=True, header_style="dim")
    wrapped = {len(section.columns) - 1, *section.quoted}
    for k, column in enumerate(section.columns):
        name = column.replace(" (", "\n(")
        shown.add_column(
            name, justify="right" if k in section.right else "left", no_wrap=k not in wrapped, overflow="fold"
        )
    for row in section.rows[: section.limit]:
        shown.add_row(*(Text(cell, _style(cell)) for cell in row))
    return shown


def _style(cell: str) -> str:
    return next((style for word, style in STYLES.items() if cell.startswith(word)), "")


def _more(rows: Sequence[object], limit: int) -> Iterator[str]:
    if len(rows) > limit:
        yield f"… and {len(rows) - limit} more; --json has all"


def markdown(sections: Iterable[Section]) -> str:
    """The sections as GitHub Markdown. Whatever they quote is shown as it is: no markup, mention, link or HTML."""
    return "\n\n".join(_markdown(section) for section in sections) + "\n"


def _markdown(section: Section) -> str:
    parts = [] if section.folded else [f"### {escape(section.title)}"]
    parts += [escape(line) for line in section.lines]
    parts += [f"{escape(words)} {code(command)}" for words, command in section.commands]
    if section.rows:
        rows = [
            [code(cell) if k in section.quoted else escape(cell) for k, cell in enumerate(row)]
            for row in section.rows[:MAX_MARKDOWN_ROWS]
        ]
        parts.append(table([escape(c) for c in section.columns], rows, right=section.right))
        parts += [escape(line) for line in _more(section.rows, MAX_MARKDOWN_ROWS)]
    body = "\n\n".join(parts)
    return details(section.title, body) if section.folded else body
