"""The ``lossless`` command. Only wiring: each command is a module of ``commands``, what it shows is computed elsewhere.

Exit status: 0 proven, 1 divergent, 2 usage, 3 inconclusive.
"""

import sys
from typing import Annotated

import typer

from lossless import __version__
from lossless.commands import (
    bench,
    compare,
    doctor,
    export,
    golden,
    init,
    merge,
    profiles,
    replay,
    report,
    runs,
    schema,
    serve,
    summary,
    suspects,
    upgrade,
    verify,
)
from lossless.commands.sections import SectionedGroup
from lossless.errors import LosslessError

app = typer.Typer(
    name="lossless",
    help="Proves, token by token, that SGLang's speculative decoding is lossless.\n\n"
    "The suite itself is run by pytest: pytest -m lossless",
    epilog="Exit status: 0 proven, 1 divergent, 2 usage, 3 inconclusive.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=SectionedGroup,
    context_settings={"max_content_width": 100},
)
_COMMANDS = (
    *(init, profiles, doctor, serve),
    *(runs, verify, replay, compare, report, summary, export, merge),
    *(golden, upgrade, suspects, bench, schema),
)
for command in _COMMANDS:
    command.register(app)


def main() -> None:
    """Entry point: turns the package's errors into one message and an exit status."""
    try:
        app(standalone_mode=True, prog_name="lossless")
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
