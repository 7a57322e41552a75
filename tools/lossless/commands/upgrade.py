"""``lossless upgrade``: what an upgrade of SGLang changed, in one report."""

import contextlib
import shlex
import uuid
from pathlib import Path
from typing import Annotated

import typer

from lossless.analysis import Analysis, analyze
from lossless.analysis.upgrade import upgrade as compute
from lossless.commands.common import (
    EXIT_INTERRUPTED,
    EXITS,
    Json,
    Nats,
    Root,
    Strict,
    console,
    print_json,
)
from lossless.commands.completion import complete_run
from lossless.errors import UsageError
from lossless.golden.check import GoldenCheck
from lossless.golden.plan import planned
from lossless.profiles.loader import shipped_names
from lossless.record.runs import DEFAULT_ROOT, find_run
from lossless.report.progress import RecordingProgress
from lossless.report.sections import markdown, terminal
from lossless.report.upgrade import next_commands, sections, upgrade_json
from lossless.suite.options import Options
from lossless.suite.upgrade import Both, Environment, record_both

SETS = ("quick", "standard", "full")


def register(app: typer.Typer) -> None:
    app.command()(upgrade)


def upgrade(
    old: Annotated[
        str | None,
        typer.Argument(metavar="OLD", help="A run recorded before the upgrade.", autocompletion=complete_run),
    ] = None,
    new: Annotated[
        str | None, typer.Argument(metavar="NEW", help="A run recorded after it.", autocompletion=complete_run)
    ] = None,
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="Record both runs with this profile.")] = None,
    from_env: Annotated[
        str | None, typer.Option(metavar="ENV", help="The old SGLang: a Python, or its virtual environment's folder.")
    ] = None,
    to_env: Annotated[str | None, typer.Option(metavar="ENV", help="The new SGLang, likewise.")] = None,
    prompts: Annotated[str | None, typer.Option(metavar="SET", help="quick, standard, full, or a prompt file.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(min=1, metavar="N", help="Cap every output.")] = None,
    gpus: Annotated[str | None, typer.Option(metavar="0,1,…", help="Cards the servers may use.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Record again, also what was recorded already.")] = False,
    golden: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the golden snapshots.")] = Path("golden"),
    epsilon: Nats = None,
    strict: Strict = False,
    as_json: Json = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")] = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """What changed with an upgrade of SGLang, and whether everything is still lossless.

    Either two recorded runs, OLD and NEW, or --profile with --from-env and --to-env: then both are recorded, one after
    the other, and the new baseline re-scores what the old one said. An interrupted recording goes on where it was.
    """
    recorded = old is not None or new is not None
    if recorded == (profile is not None or from_env is not None or to_env is not None):
        raise UsageError(
            "give either two recorded runs, or a profile and two environments",
            hint="lossless upgrade OLD_RUN NEW_RUN, or: lossless upgrade --profile NAME --from-env A --to-env B",
        )
    if as_json and as_markdown:
        raise UsageError("--json and --markdown were both given; choose one")
    if recorded:
        if old is None or new is None:
            raise UsageError("one run was given, and two are needed", hint="lossless runs lists the recorded runs")
        before, after, packages = _run(root, old, epsilon), _run(root, new, epsilon), None
    else:
        if profile is None or from_env is None or to_env is None:
            raise UsageError("--profile, --from-env and --to-env belong together; one of them is missing")
        options = Options(
            profile=profile,
            prompts=prompts,
            max_new_tokens=max_new_tokens,
            gpus=gpus,
            epsilon=epsilon,
            resume="never" if fresh else "auto",
            runs=root.absolute(),
        )
        both = _record(options, Environment.find(from_env), Environment.find(to_env))
        before, after, packages = both.old, both.new, both.packages
    found = compute(before, after, strict=strict, packages=packages)
    plan = planned(GoldenCheck(after, strict=strict), golden / after.manifest.profile)
    update, review = _golden_commands(found.new, profile, prompts, golden)
    commands = next_commands(found, plan, update=update, review=review)
    if as_json:
        print_json(upgrade_json(found, plan, commands))
    elif as_markdown:
        print(markdown(sections(found, plan, commands)), end="")
    else:
        console().print(terminal(sections(found, plan, commands)), crop=False)
    raise typer.Exit(EXITS[found.status])


def _run(root: Path, name: str, epsilon: float | None) -> Analysis:
    return analyze(find_run(root, name), epsilon=epsilon)


def _record(options: Options, old: Environment, new: Environment) -> Both:
    with RecordingProgress(typer.get_text_stream("stderr")) as progress:
        try:
            return record_both(options, old, new, progress, attempt=uuid.uuid4().hex, tell=_tell)
        except KeyboardInterrupt:  # its servers are gone by now
            raise typer.Exit(EXIT_INTERRUPTED) from None


def _tell(line: str) -> None:
    typer.echo(f"lossless: {line}", err=True)


def _golden_commands(new: Analysis, profile: str | None, prompts: str | None, golden: Path) -> tuple[str, str]:
    """The command that writes the goldens from the new run, without a server, and the one that reviews them."""
    m, run = new.manifest, new.store.path
    with contextlib.suppress(ValueError):
        run = run.absolute().relative_to(Path.cwd())
    named = profile or (m.profile if m.profile in shipped_names() else f"{m.profile}.toml")
    chosen = prompts or (m.prompt_set if m.prompt_set in SETS else None)
    elsewhere = golden != Path("golden")
    update = ["pytest", "-m", "lossless", "--snapshot-update", "--lossless-profile", named]
    update += ["--lossless-resume", str(run)]
    update += ["--lossless-prompts", chosen] if chosen else []
    update += ["--lossless-golden", str(golden)] if elsewhere else []
    review = ["lossless", "golden", "diff", "HEAD", *(["--golden", str(golden)] if elsewhere else [])]
    return shlex.join(update), shlex.join(review)
