"""``lossless profiles list | show | check``."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from lossless.commands.common import Json, console, print_json
from lossless.commands.completion import complete_profile
from lossless.errors import EXIT_DIVERGENT, EXIT_PROVEN
from lossless.profiles import load_profile, shipped_profiles
from lossless.profiles.check import check_profile
from lossless.profiles.checks.result import summary as check_summary
from lossless.report.profile import check_table, profile_json, profile_table

profiles_app = typer.Typer(help="The shipped profiles: which servers are compared, with which arguments.")


def register(app: typer.Typer) -> None:
    app.add_typer(profiles_app, name="profiles")


@profiles_app.callback(invoke_without_command=True)
def _profiles(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        list_profiles(as_json)


@profiles_app.command("list")
def list_profiles(as_json: Json = False) -> None:
    """The shipped profiles."""
    found = shipped_profiles()
    if as_json:
        print_json([profile_json(p) for p in found])
        return
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for column in ("name", "kind", "variants", "what"):
        table.add_column(column, no_wrap=column != "what")
    for p in found:
        table.add_row(p.name, p.kind, ", ".join(p.variants), Text(p.description))
    console().print(table)


@profiles_app.command("show")
def show_profile(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A shipped profile or a .toml file.", autocompletion=complete_profile)
    ],
    as_json: Json = False,
) -> None:
    """One profile with the command line of each server."""
    profile = load_profile(name)
    if as_json:
        print_json(profile_json(profile))
    else:
        console().print(profile_table(profile))


@profiles_app.command("check")
def check(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A shipped profile or a .toml file.", autocompletion=complete_profile)
    ],
    as_json: Json = False,
) -> None:
    """Check a profile and its model folders without starting anything (no weights are read)."""
    results = check_profile(load_profile(name))
    if as_json:
        print_json([asdict(r) for r in results])
    else:
        screen = console()
        screen.print(check_table(results))
        screen.print(check_summary(results), style="bold")
    raise typer.Exit(EXIT_DIVERGENT if any(r.status == "fail" for r in results) else EXIT_PROVEN)
