"""``lossless compare``: two saved runs, offline."""

from typing import Annotated

import typer

from lossless.analysis.compare import compare as compare_sides
from lossless.analysis.compare import pairs
from lossless.commands.common import EXITS, Json, Nats, Root, Strict, console, print_json, side, worst
from lossless.commands.completion import complete_run
from lossless.record.runs import DEFAULT_ROOT
from lossless.report.evidence import judged_json
from lossless.report.failure import failure_text
from lossless.report.summary import verdict_table


def register(app: typer.Typer) -> None:
    app.command()(compare)


def compare(
    a: Annotated[
        str,
        typer.Argument(metavar="A", help="RUN or RUN:SERVER, such as latest:baseline.", autocompletion=complete_run),
    ],
    b: Annotated[
        str, typer.Argument(metavar="B", help="RUN or RUN:SERVER to compare with A.", autocompletion=complete_run)
    ],
    epsilon: Nats = None,
    strict: Strict = False,
    as_json: Json = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Compare two saved runs offline: what A said, what B says, every difference classified."""
    (left, name_a), (right, name_b) = (side(root, text, epsilon) for text in (a, b))
    results = [(x, y, compare_sides(x, y)) for x, y in pairs(left, right, name_a, name_b)]
    judged = [j for _, _, found in results for j in found]
    outcome = worst(judged, strict=strict)
    if as_json:
        print_json(
            {
                "status": outcome,
                "comparisons": [
                    {"a": str(x), "b": str(y), "verdicts": [judged_json(j) for j in found]} for x, y, found in results
                ],
            }
        )
    else:
        screen = console()
        screen.print(verdict_table([(f"{x.server} → {y.server}", found) for x, y, found in results]))
        for _, y, found in results:
            for j in found:
                if j.verdict.kind != "identical":
                    screen.print(f"\n{failure_text(y.analysis, j)}", markup=False)
        screen.print(outcome, style="bold")
    raise typer.Exit(EXITS[outcome])
