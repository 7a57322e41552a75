"""``lossless runs``: what was recorded."""

from typing import Annotated

import typer
from rich.table import Table

from lossless.commands.common import Json, Root, console, print_json
from lossless.errors import UsageError
from lossless.record.runs import DEFAULT_ROOT, stored_runs


def register(app: typer.Typer) -> None:
    app.command()(runs)


def runs(
    latest: Annotated[bool, typer.Option("--latest", help="Print the newest run's path and nothing else.")] = False,
    as_json: Json = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """List the recorded runs, newest first."""
    stores = list(stored_runs(root))
    if latest:
        if not stores:
            raise UsageError(f"there is no recorded run under {root}", hint="pytest -m lossless")
        print(stores[0].path)
        return
    rows = []
    for store in stores:
        m = store.manifest
        rows.append(
            {
                "run": store.path.name,
                "path": str(store.path),
                "profile": m.profile,
                "prompts": m.prompt_set,
                "created": m.created,
                "complete": store.complete,
                "fault": m.fault,
            }
        )
    if as_json:
        print_json(rows)
        return
    if not rows:
        print(f"no recorded runs under {root}; record one: pytest -m lossless")
        return
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for column in ("run", "profile", "prompts", "created", "complete"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(
            str(row["run"]),
            str(row["profile"]),
            str(row["prompts"]),
            str(row["created"]),
            "yes" if row["complete"] else "no",
        )
    console().print(table)
