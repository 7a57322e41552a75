"""What the commands share: option types, the exit status, and printing."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lossless.analysis import Analysis, Judged, analyze
from lossless.commands.completion import complete_run
from lossless.errors import EXIT_DIVERGENT, EXIT_INCONCLUSIVE, EXIT_PROVEN
from lossless.record.runs import find_run
from lossless.report.evidence import status

EXIT_INTERRUPTED = 130  # as a shell reports SIGINT
EXITS = {"proven": EXIT_PROVEN, "divergent": EXIT_DIVERGENT, "inconclusive": EXIT_INCONCLUSIVE}

Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run folder, its name or a start of it, or 'latest'.", autocompletion=complete_run
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Root = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder of the recorded runs.")]
Nats = Annotated[float | None, typer.Option("--epsilon", metavar="NATS", help="Near-tie bound, not the measured one.")]
Strict = Annotated[bool, typer.Option("--strict", help="Near-ties that do not reconverge are divergent.")]


def side(root: Path, text: str, epsilon: float | None) -> tuple[Analysis, str | None]:
    """``RUN`` or ``RUN:SERVER`` as an analysis and the server's name, None if it is not given.

    Raises:
        UsageError: there is no such run.
    """
    run, _, server = (text, "", "") if Path(text).is_dir() else text.rpartition(":") if ":" in text else (text, "", "")
    return analyze(find_run(root, run), epsilon=epsilon), server or None


def worst(judged: Iterable[Judged], *, strict: bool) -> str:
    """The worst status among verdicts; none at all is inconclusive."""
    found = list(judged)
    if any(j.verdict.kind != "inconclusive" and not j.verdict.passed(strict=strict) for j in found):
        return "divergent"
    return "proven" if found and all(j.verdict.passed(strict=strict) for j in found) else "inconclusive"


def outcome(analysis: Analysis, judged: list[Judged], *, strict: bool) -> str:
    """The status of a run: its verdicts without known issues, then its controls."""
    found = worst((j for j in judged if not analysis.is_known(j)), strict=strict)
    return found if found != "proven" else status(analysis, judged)


def print_json(value: Any) -> None:
    """JSON for scripts: readable, in the order it was built."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def console() -> Console:
    """A console as wide as the terminal, 120 columns where there is none."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=120)
