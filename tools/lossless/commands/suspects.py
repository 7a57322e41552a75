"""``lossless suspects``: which SGLang builds lie between the last good night and the first bad one."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lossless.analysis.history import Series, read, series
from lossless.commands.common import print_json
from lossless.errors import EXIT_DIVERGENT, EXIT_INCONCLUSIVE, EXIT_PROVEN, UsageError
from lossless.report.suspects import suspects_json, suspects_markdown, suspects_text


class Format(StrEnum):
    """How to show it."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


def register(app: typer.Typer) -> None:
    app.command()(suspects)


def suspects(
    path: Annotated[Path, typer.Argument(metavar="HISTORY", help="A file that lossless summary --history wrote.")],
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="Only nights of this profile.")] = None,
    form: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TEXT,
) -> None:
    """Say when something broke in the nightly runs, and what to bisect.

    Exit status: 0 the latest conclusive nights are green, 1 one is red, 3 there is none.
    """
    if not path.is_file():
        raise UsageError(f"there is no history {str(path)!r}", hint="lossless summary latest --history FILE records")
    found = series(n for n in read(path) if profile is None or n.profile == profile)
    if form is Format.JSON:
        print_json(suspects_json(found))
    else:
        print((suspects_markdown if form is Format.MARKDOWN else suspects_text)(found).rstrip("\n"))
    raise typer.Exit(_status(found))


def _status(found: tuple[Series, ...]) -> int:
    colors = {s.color for s in found}
    if "red" in colors:
        return EXIT_DIVERGENT
    return EXIT_PROVEN if "green" in colors else EXIT_INCONCLUSIVE
