"""``lossless export``: the result table of a run for spreadsheets, pull requests and scripts."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lossless.analysis import analyze
from lossless.commands.common import Nats, Root, Run
from lossless.errors import UsageError
from lossless.record.runs import DEFAULT_ROOT, find_run
from lossless.report.table_rows import FORMATS, table_rows


class Format(StrEnum):
    """What to write."""

    CSV = "csv"
    MARKDOWN = "markdown"
    JSON = "json"


Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not to the terminal.")
]


def register(app: typer.Typer) -> None:
    app.command()(export)


def export(
    run: Run,
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.CSV,
    output: Output = None,
    epsilon: Nats = None,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Write one row a variant, prompt and stage: verdict, numbers, accept length, speed.

    The exit status is 0 whatever the rows say.
    """
    analysis = analyze(find_run(root, run), epsilon=epsilon)
    text = FORMATS[form](analysis, table_rows(analysis, analysis.verdicts()))
    if output is None:
        print(text, end="")
        return
    try:
        with output.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as problem:
        raise UsageError(f"{str(output)!r} cannot be written: {problem.strerror}") from None
