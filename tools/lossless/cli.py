"""The ``lossless`` command. Only wiring: what it shows is computed elsewhere.

Exit status: 0 proven, 1 divergent, 2 usage, 3 inconclusive.
"""

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lossless import __version__
from lossless.analysis import Analysis, Judged, analyze
from lossless.analysis.compare import compare as compare_sides
from lossless.analysis.compare import pairs
from lossless.errors import EXIT_DIVERGENT, EXIT_INCONCLUSIVE, EXIT_PROVEN, LosslessError, UsageError
from lossless.profiles import load_profile, shipped_profiles
from lossless.profiles.check import check_profile
from lossless.profiles.checks.result import summary as check_summary
from lossless.record.runs import DEFAULT_ROOT, find_run, stored_runs
from lossless.report.evidence import evidence, judged_json, status
from lossless.report.failure import failure_text
from lossless.report.hint import run_lines
from lossless.report.profile import check_table, profile_json, profile_table
from lossless.report.replay import curl_commands, replay_json, replay_text
from lossless.report.summary import known_lines, summary, verdict_table
from lossless.suite.replay import choose_place, replay_profile, running_pair
from lossless.suite.replay import replay as send_again

EXIT_INTERRUPTED = 130  # as a shell reports SIGINT
EXITS = {"proven": EXIT_PROVEN, "divergent": EXIT_DIVERGENT, "inconclusive": EXIT_INCONCLUSIVE}

app = typer.Typer(
    name="lossless",
    help="Proves, token by token, that SGLang's speculative decoding is lossless.\n\n"
    "The suite itself is run by pytest: pytest -m lossless",
    epilog="Exit status: 0 proven, 1 divergent, 2 usage, 3 inconclusive.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
profiles_app = typer.Typer(help="The shipped profiles: which servers are compared, with which arguments.")
app.add_typer(profiles_app, name="profiles")

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Root = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder of the recorded runs.")]
Nats = Annotated[float | None, typer.Option("--epsilon", metavar="NATS", help="Near-tie bound, not the measured one.")]
Strict = Annotated[bool, typer.Option("--strict", help="Near-ties that do not reconverge are divergent.")]


def main() -> None:
    """Entry point: turns the package's errors into one message and an exit status."""
    try:
        app(standalone_mode=True)
    except LosslessError as problem:
        print(f"error: {problem}", file=sys.stderr)
        raise SystemExit(problem.exit_code) from None


def _version(value: bool) -> None:
    if value:
        print(f"sglang-lossless {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    help="Serve the embedded reference engine over SGLang's native HTTP protocol (options: lossless serve --help).",
)
def serve(context: typer.Context) -> None:
    """Replaces this process, so that signals and exit status are the server's own."""
    os.execv(sys.executable, [sys.executable, "-m", "lossless.reference", *context.args])


@app.command()
def verify(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, its name or a start of it, or 'latest'.")],
    prompt: Annotated[str | None, typer.Option(metavar="ID", help="Show every difference of one prompt.")] = None,
    variant: Annotated[str | None, typer.Option(metavar="NAME", help="Only this variant.")] = None,
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
    outcome = _outcome(analysis, judged, strict=strict)
    if as_json:
        _print_json(evidence(analysis) if prompt is None and variant is None else [judged_json(j) for j in judged])
    elif prompt is not None:
        print("\n\n".join(failure_text(analysis, j) for j in judged))
    else:
        console = _console()
        console.print(summary(analysis))
        for line in known_lines(analysis):
            console.print(line, markup=False)
        for j in judged:
            if not j.verdict.passed(strict=strict) and not analysis.is_known(j):
                console.print(
                    f"{j.prompt.id} · {j.variant} · {j.stage}: {j.verdict.label}: {j.verdict.detail}", markup=False
                )
        for name in dict.fromkeys(j.variant for j in judged if outcome != "proven"):
            for line in run_lines(analysis, name):
                console.print(line, markup=False)
        console.print(f"{outcome}", style="bold")
    raise typer.Exit(EXITS[outcome])


@app.command()
def replay(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, its name or a start of it, or 'latest'.")],
    prompt: Annotated[str, typer.Option(metavar="ID", help="The prompt to send again.")],
    variant: Annotated[str, typer.Option(metavar="NAME", help="The variant to send it to, beside the baseline.")],
    baseline_url: Annotated[str | None, typer.Option(metavar="URL", help="A running baseline.")] = None,
    variant_url: Annotated[str | None, typer.Option(metavar="URL", help="The running variant.")] = None,
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="The run's profile, if it is a file.")] = None,
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
    analysis = analyze(find_run(root, run), epsilon=epsilon)
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
    outcome = "inconclusive" if found.open_stages else _worst([found.shown], strict=strict)
    if as_json:
        _print_json(replay_json(analysis, original, found, outcome))
    elif curl:
        print("\n".join(curl_commands(found)))
    else:
        print(replay_text(analysis, original, found))
        _console().print(outcome, style="bold")
    raise typer.Exit(EXITS[outcome])


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="RUN or RUN:SERVER, such as latest:baseline.")],
    b: Annotated[str, typer.Argument(metavar="B", help="RUN or RUN:SERVER to compare with A.")],
    epsilon: Nats = None,
    strict: Strict = False,
    as_json: Json = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Compare two saved runs offline: what A said, what B says, every difference classified."""
    (left, name_a), (right, name_b) = (_side(root, text, epsilon) for text in (a, b))
    results = [(x, y, compare_sides(x, y)) for x, y in pairs(left, right, name_a, name_b)]
    judged = [j for _, _, found in results for j in found]
    outcome = _worst(judged, strict=strict)
    if as_json:
        _print_json(
            {
                "status": outcome,
                "comparisons": [
                    {"a": str(x), "b": str(y), "verdicts": [judged_json(j) for j in found]} for x, y, found in results
                ],
            }
        )
    else:
        console = _console()
        console.print(verdict_table([(f"{x.server} → {y.server}", found) for x, y, found in results]))
        for _, y, found in results:
            for j in found:
                if j.verdict.kind != "identical":
                    console.print(f"\n{failure_text(y.analysis, j)}", markup=False)
        console.print(outcome, style="bold")
    raise typer.Exit(EXITS[outcome])


@app.command()
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
        _print_json(rows)
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
    _console().print(table)


@profiles_app.callback(invoke_without_command=True)
def _profiles(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        list_profiles(as_json)


@profiles_app.command("list")
def list_profiles(as_json: Json = False) -> None:
    """The shipped profiles."""
    found = shipped_profiles()
    if as_json:
        _print_json([profile_json(p) for p in found])
        return
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for column in ("name", "kind", "variants", "what"):
        table.add_column(column, no_wrap=column != "what")
    for p in found:
        table.add_row(p.name, p.kind, ", ".join(p.variants), Text(p.description))
    _console().print(table)


@profiles_app.command("show")
def show_profile(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A shipped profile or a .toml file.")],
    as_json: Json = False,
) -> None:
    """One profile with the command line of each server."""
    profile = load_profile(name)
    if as_json:
        _print_json(profile_json(profile))
    else:
        _console().print(profile_table(profile))


@profiles_app.command("check")
def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A shipped profile or a .toml file.")],
    as_json: Json = False,
) -> None:
    """Check a profile and its model folders without starting anything (no weights are read)."""
    results = check_profile(load_profile(name))
    if as_json:
        _print_json([asdict(r) for r in results])
    else:
        console = _console()
        console.print(check_table(results))
        console.print(check_summary(results), style="bold")
    raise typer.Exit(EXIT_DIVERGENT if any(r.status == "fail" for r in results) else EXIT_PROVEN)


def _side(root: Path, text: str, epsilon: float | None) -> tuple[Analysis, str | None]:
    run, _, server = (text, "", "") if Path(text).is_dir() else text.rpartition(":") if ":" in text else (text, "", "")
    return analyze(find_run(root, run), epsilon=epsilon), server or None


def _worst(judged: Iterable[Judged], *, strict: bool) -> str:
    found = list(judged)
    if any(j.verdict.kind != "inconclusive" and not j.verdict.passed(strict=strict) for j in found):
        return "divergent"
    return "proven" if found and all(j.verdict.passed(strict=strict) for j in found) else "inconclusive"


def _outcome(analysis: Analysis, judged: list[Judged], *, strict: bool) -> str:
    outcome = _worst((j for j in judged if not analysis.is_known(j)), strict=strict)
    return outcome if outcome != "proven" else status(analysis, judged)


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120)
