"""``lossless report``: a run as one HTML file."""

import os
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from lossless.analysis import analyze
from lossless.commands.common import Nats, Root, Run, Strict
from lossless.errors import UsageError
from lossless.record.runs import DEFAULT_ROOT, find_run
from lossless.report.html import collect, render

DEFAULT_OUTPUT = Path("lossless-report.html")


def register(app: typer.Typer) -> None:
    app.command()(report)


def report(
    run: Run,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write.")] = DEFAULT_OUTPUT,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = False,
    epsilon: Nats = None,
    strict: Strict = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Write a recorded run as one self-contained HTML file. It needs no network and no server."""
    store = find_run(root, run)
    page = render(collect(analyze(store, epsilon=epsilon), strict=strict, command=_named(root, store.path)))
    size = _write(output, page)
    print(f"{output} ({_readable(size)})")
    if show:
        webbrowser.open(output.resolve().as_uri())


def _named(root: Path, path: Path) -> str:
    """How a reader names the run to the ``lossless`` command: its folder's name under the default root, else a path."""
    return path.name if path.parent == root == DEFAULT_ROOT else str(path)


def _write(path: Path, text: str) -> int:
    """Write a file so that a reader sees the old or the new content, never half of it; its size in bytes.

    Raises:
        UsageError: it cannot be written there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    data = text.encode("utf-8")
    try:
        if path.is_dir():
            raise IsADirectoryError(f"{str(path)!r} is a folder")
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as problem:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"cannot write {str(path)!r}: {problem}", hint="name another file with -o") from None
    return len(data)


def _readable(size: int) -> str:
    return f"{size / 1024:.0f} KiB" if size < 1 << 20 else f"{size / (1 << 20):.1f} MiB"
