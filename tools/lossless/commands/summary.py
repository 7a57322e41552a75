"""``lossless summary``: a run for GitHub Actions, and a line in the history of nightly runs."""

import os
from pathlib import Path
from typing import Annotated

import typer

from lossless.analysis import analyze, history
from lossless.commands.common import Nats, Root, Run, Strict, console, outcome
from lossless.errors import UsageError
from lossless.record.runs import DEFAULT_ROOT, find_run
from lossless.report import github
from lossless.report.evidence import evidence
from lossless.report.summary import summary as terminal
from lossless.suite.gpu import gpu_name

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
History = Annotated[Path | None, typer.Option("--history", metavar="FILE", help="Record the night in this history.")]
Text = str | None


def register(app: typer.Typer) -> None:
    app.command()(summary)


def summary(
    run: Run,
    as_github: Annotated[bool, typer.Option("--github", help="Markdown for GitHub instead of a table.")] = False,
    append: Annotated[bool, typer.Option("--append", help=f"Add it to the file that {STEP_SUMMARY} names.")] = False,
    annotations: Annotated[bool, typer.Option("--annotations", help="Print ::error lines for what failed.")] = False,
    record: History = None,
    sglang: Annotated[Text, typer.Option(metavar="VERSION", help="For the history, not what the server says.")] = None,
    commit: Annotated[Text, typer.Option(metavar="SHA", help="For the history: SGLang's commit.")] = None,
    gpu: Annotated[Text, typer.Option(metavar="NAME", help="For the history, not this machine's card.")] = None,
    epsilon: Nats = None,
    strict: Strict = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Sum up a run, for a terminal or for GitHub Actions.

    The exit status is 0 whatever it shows; lossless verify judges.
    """
    analysis = analyze(find_run(root, run), epsilon=epsilon)
    judged = list(analysis.verdicts())
    status = outcome(analysis, judged, strict=strict)
    if as_github or append:
        text = github.summary_markdown(analysis, judged, status, strict=strict)
        place = os.environ.get(STEP_SUMMARY)
        if append and place is None:
            raise UsageError(f"--append: {STEP_SUMMARY} is not set", hint="outside GitHub Actions leave --append out")
        if append and place is not None:
            github.append(Path(place), text)
        else:
            print(text, end="")
    elif not annotations and record is None:
        screen = console()
        screen.print(terminal(analysis))
        screen.print(status, style="bold")
    if annotations:
        for line in github.annotations(analysis, judged, strict=strict):
            print(line)
    if record is not None:
        if analysis.manifest.shard is not None:
            raise UsageError(
                f"run {analysis.store.path.name} is a shard: it did not test every prompt",
                hint="lossless merge RUN… joins the shards; record the merged run",
            )
        card = gpu or (gpu_name() if analysis.manifest.kind != "reference" else None)
        history.record(record, history.night(evidence(analysis), version=sglang, commit=commit, gpu=card))
