"""``lossless doctor``: why a draft is accepted less than it should be."""

from pathlib import Path
from typing import Annotated

import typer

from lossless.analysis import analyze
from lossless.commands.common import Json, Root, console, print_json
from lossless.commands.completion import complete_profile, complete_run, complete_variant
from lossless.doctor import cases, diagnose, worst_outcome
from lossless.errors import EXIT_DIVERGENT, EXIT_INCONCLUSIVE, EXIT_PROVEN, UsageError
from lossless.profiles import load_profile
from lossless.record.runs import DEFAULT_ROOT, find_run
from lossless.report.doctor import doctor_json, doctor_view

EXITS = {"fine": EXIT_PROVEN, "wrong": EXIT_DIVERGENT, "unclear": EXIT_INCONCLUSIVE}
GOLDEN = Path("golden")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Exit status: 0 the draft is fine, 1 something is wrong, 2 usage, 3 cannot tell.")(doctor)


def doctor(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN", help="A recorded run: its accept lengths are looked at.", autocompletion=complete_run
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The profile whose model folders are looked at.", autocompletion=complete_profile
        ),
    ] = None,
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this variant.", autocompletion=complete_variant)
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Compare with this run's accept lengths, not the golden ones.",
            autocompletion=complete_run,
        ),
    ] = None,
    golden: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the golden snapshots.")] = None,
    as_json: Json = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Find out why a draft is accepted less than it should be.

    Looks at the files of draft and target, then at the accept lengths of a recorded run, in the order in which
    an expert would, and names the first thing that is wrong.
    """
    if run is None and against is not None:
        raise UsageError(f"--against {against} needs a RUN to compare with it", hint="lossless runs lists them")
    if golden is not None and not golden.is_dir():
        raise UsageError(f"there is no folder {golden} (--golden)")
    analysis = None if run is None else analyze(find_run(root, run))
    chosen = None if profile is None else load_profile(profile)
    name = chosen.name if chosen is not None else analysis.manifest.profile if analysis is not None else ""
    found = cases(
        chosen,
        analysis,
        golden=(golden or GOLDEN) / name if name else None,
        against=None if against is None else analyze(find_run(root, against)),
    )
    if variant is not None:
        names = [case.variant for case in found]
        if variant not in names:
            raise UsageError(f"there is no variant {variant!r}; there is: {', '.join(names)}")
        found = tuple(case for case in found if case.variant == variant)
    diagnoses = [diagnose(case) for case in found]
    if as_json:
        print_json(doctor_json(diagnoses))
    else:
        console().print(doctor_view(diagnoses))
    raise typer.Exit(EXITS[worst_outcome(diagnoses)])
