"""``lossless serve``: the embedded engine from a shell."""

import os
import sys

import typer


def register(app: typer.Typer) -> None:
    app.command(
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
        help="Serve the embedded reference engine over SGLang's native HTTP protocol (options: lossless serve --help).",
    )(serve)


def serve(context: typer.Context) -> None:
    """Replaces this process, so that signals and exit status are the server's own."""
    os.execv(sys.executable, [sys.executable, "-m", "lossless.reference", *context.args])
