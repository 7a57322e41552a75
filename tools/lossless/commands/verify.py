"""``lossless verify``: judge a recorded run again."""

from typing import Annotated

import typer

from lossless.analysis import analyze
from lossless.commands.common import EXITS, Json, Nats, Root, Run, Strict, console, outcome, print_json
from lossless.commands.completion import complete_prompt, complete_variant
from lossless.errors import UsageError
from lossless.record.runs import DEFAULT_ROOT, find_run
from lossless.report.evidence import evidence, judged_json
from lossless.report.failure import failure_text
from lossless.report.hint import run_lines
from lossless.report.summary import known_lines, summary


def register(app: typer.Typer) -> None:
    app.command()(verify)


def verify(
    run: Run,
    prompt: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Show every difference of one prompt.", autocompletion=complete_prompt),
    ] = None,
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this variant.", autocompletion=complete_variant)
    ] = None,
    epsilon: Nats = None,
    strict: Strict = False,
    as_json: Json = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Judge a recorded run again, without a server."""
    analysis = analyze(find_run(root, run), epsilon=epsilon)
    if variant is not None and variant not in analysis.manifest.variants:
        raise UsageError(f"this run has no variant {variant!r}; it has: {', '.join(analysis.manifest.variants)}")
    if prompt is not None and prompt not in analysis.prompts:
        raise UsageError(f"this run has no prompt {prompt!r}", hint=f"lossless verify {run} --json lists them")
    judged = [
        j
        for j in analysis.verdicts()
        if (variant is None or j.variant == variant) and (prompt is None or j.prompt.id == prompt)
    ]
    status = outcome(analysis, judged, strict=strict)
    if as_json:
        print_json(evidence(analysis) if prompt is None and variant is None else [judged_json(j) for j in judged])
    elif prompt is not None:
        print("\n\n".join(failure_text(analysis, j) for j in judged))
    else:
        screen = console()
        screen.print(summary(analysis))
        for line in known_lines(analysis):
            screen.print(line, markup=False)
        for j in judged:
            if not j.verdict.passed(strict=strict) and not analysis.is_known(j):
                screen.print(
                    f"{j.prompt.id} · {j.variant} · {j.stage}: {j.verdict.label}: {j.verdict.detail}", markup=False
                )
        for name in dict.fromkeys(j.variant for j in judged if status != "proven"):
            for line in run_lines(analysis, name):
                screen.print(line, markup=False)
        screen.print(status, style="bold")
    raise typer.Exit(EXITS[status])
