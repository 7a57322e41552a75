"""``lossless schema``: the JSON Schema of the evidence format."""

import typer

from lossless.report.evidence_schema import SHIPPED


def register(app: typer.Typer) -> None:
    app.command()(schema)


def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of evidence.json and of verify --json."""
    print(SHIPPED.read_text(encoding="utf-8"), end="")
