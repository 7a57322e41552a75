"""``lossless replay``: one prompt again, on running servers."""

import sys
from typing import Annotated

import typer

from lossless.analysis import analyze
from lossless.commands.common import EXIT_INTERRUPTED, EXITS, Json, Nats, Root, Run, Strict, console, print_json, worst
from lossless.commands.completion import complete_profile, complete_prompt, complete_variant
from lossless.record.runs import DEFAULT_ROOT, find_run
from lossless.report.replay import curl_commands, replay_json, replay_text
from lossless.suite.replay import choose_place, replay_profile, running_pair
from lossless.suite.replay import replay as send_again


def register(app: typer.Typer) -> None:
    app.command()(replay)


def replay(
    run: Run,
    prompt: Annotated[
        str, typer.Option(metavar="ID", help="The prompt to send again.", autocompletion=complete_prompt)
    ],
    variant: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The variant to send it to, beside the baseline.",
            autocompletion=complete_variant,
        ),
    ],
    baseline_url: Annotated[str | None, typer.Option(metavar="URL", help="A running baseline.")] = None,
    variant_url: Annotated[str | None, typer.Option(metavar="URL", help="The running variant.")] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The run's profile, if it is a file.", autocompletion=complete_profile),
    ] = None,
    shorten: Annotated[bool, typer.Option(help="Make the request smaller while the answers differ.")] = True,
    tries: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many smaller requests.")] = 60,
    curl: Annotated[
        bool, typer.Option("--curl", help="Print the request pair as curl commands, nothing else.")
    ] = False,
    epsilon: Nats = None,
    strict: Strict = False,
    as_json: Json = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Send one prompt of a run to both servers again, and make it smaller while they differ."""
    analysis = analyze(find_run(root, run), epsilon=epsilon).home(prompt)
    place = choose_place(analysis, prompt, variant)
    original = analysis.verdict(variant, prompt, place.stage, place.turn)
    chosen = replay_profile(analysis, variant, profile=profile, baseline_url=baseline_url, variant_url=variant_url)

    def progress(line: str) -> None:
        print(f"replay: {line}", file=sys.stderr, flush=True)

    try:
        with running_pair(analysis, variant, chosen, progress) as pair:
            found = send_again(
                analysis, prompt, variant, pair, place=place, tries=tries if shorten else 0, progress=progress
            )
    except KeyboardInterrupt:  # its servers are gone by now
        raise typer.Exit(EXIT_INTERRUPTED) from None
    outcome = "inconclusive" if found.open_stages else worst([found.shown], strict=strict)
    if as_json:
        print_json(replay_json(analysis, original, found, outcome))
    elif curl:
        print("\n".join(curl_commands(found)))
    else:
        print(replay_text(analysis, original, found))
        console().print(outcome, style="bold")
    raise typer.Exit(EXITS[outcome])
