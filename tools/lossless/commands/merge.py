"""``lossless merge``: the runs of all shards become one run with one status."""

from pathlib import Path
from typing import Annotated

import typer

from lossless.analysis.merge import MergedAnalysis
from lossless.commands.common import EXITS, Json, Nats, Root, Strict, console, outcome, print_json
from lossless.errors import UsageError
from lossless.record.merge import merge_runs
from lossless.record.runs import DEFAULT_ROOT, find_run, new_run_path
from lossless.report.evidence import evidence
from lossless.report.merge import shard_table
from lossless.report.summary import known_lines, summary
from lossless.suite.session import in_use


def register(app: typer.Typer) -> None:
    app.command()(merge)


def merge(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="The runs of all shards, in any order.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="The merged run (default: beside the others).")
    ] = None,
    epsilon: Nats = None,
    strict: Strict = False,
    as_json: Json = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Join the runs of all shards (--lossless-shard I/N) into one run, and judge it.

    The merged run can be opened like any other: lossless verify DIR. Every prompt is judged with the controls and the
    noise floor of its own shard; the status is the worst of all.
    """
    stores = [find_run(root, name) for name in runs]
    for store in stores:
        if in_use(store.path):
            raise UsageError(f"run {store.path.name} is still being recorded", hint="wait for it to end")
    manifest = stores[0].manifest
    merged = merge_runs(stores, output or new_run_path(root, f"{manifest.profile}-merged", manifest.key))
    analysis = MergedAnalysis(merged, epsilon=epsilon)
    judged = list(analysis.verdicts())
    status = outcome(analysis, judged, strict=strict)
    found = evidence(analysis)
    path = merged.write_evidence(found)
    if as_json:
        print_json(found)
    else:
        screen = console()
        screen.print(summary(analysis))
        screen.print()
        screen.print(shard_table(analysis, judged))
        for line in known_lines(analysis):
            screen.print(line, markup=False)
        for j in judged:
            if not j.verdict.passed(strict=strict) and not analysis.is_known(j):
                screen.print(
                    f"{j.prompt.id} · {j.variant} · {j.stage}: {j.verdict.label}: {j.verdict.detail}", markup=False
                )
        screen.print(f"evidence: {path}   again: lossless verify {merged.path}", markup=False, soft_wrap=True)
        screen.print(status, style="bold")
    raise typer.Exit(EXITS[status])
