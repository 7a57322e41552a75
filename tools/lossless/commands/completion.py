"""Shell completion of run names, profiles, prompt sets, prompt ids and variants.

A completion runs on every press of the tab key: it reads few files, prints nothing, and whatever goes wrong it offers
nothing.
"""

import contextlib
import io
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

Complete = Callable[[typer.Context, str], list[str]]


def _quiet(offers: Callable[[typer.Context, str], Iterable[str]]) -> Complete:
    """Those of the offers that begin with what was typed; an error is no offer."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                return [offer for offer in offers(ctx, incomplete) if offer.startswith(incomplete)]
            except Exception:  # whatever it is, the shell must not see it
                return []

    # Not functools.wraps: typer passes arguments by the names in the signature that it finds.
    complete.__name__, complete.__doc__ = offers.__name__, offers.__doc__
    return complete


@_quiet
def complete_run(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """``latest`` and the recorded runs, newest first."""
    from lossless.record.runs import stored_runs

    folders = _files(incomplete, "*/") if incomplete.startswith((".", "/", "~")) or "/" in incomplete else []
    return ["latest", *(store.path.name for store in stored_runs(_root(ctx))), *folders]


@_quiet
def complete_profile(_ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """The shipped profiles, and profile files."""
    from lossless.profiles import shipped_names

    return [*shipped_names(), *_files(incomplete, "*.toml")]


@_quiet
def complete_prompt_set(_ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """The shipped prompt sets, and prompt files."""
    from lossless.prompts.loading import NAMES

    return [*NAMES, *_files(incomplete, "*.toml"), *_files(incomplete, "*.jsonl")]


@_quiet
def complete_prompt(ctx: typer.Context, _incomplete: str) -> Iterable[str]:
    """The prompts of the run that was typed, or of the standard set."""
    from lossless.prompts import load_prompts
    from lossless.record.runs import find_run

    run = _run(ctx)
    return [p.id for p in (find_run(_root(ctx), run).prompts if run else load_prompts("standard").prompts)]


@_quiet
def complete_variant(ctx: typer.Context, _incomplete: str) -> Iterable[str]:
    """The variants of the run or of the profile that was typed."""
    from lossless.profiles import load_profile
    from lossless.record.runs import find_run

    run, profile = _run(ctx), ctx.params.get("profile")
    if run:
        return find_run(_root(ctx), run).manifest.variants
    return load_profile(profile).variants if profile else ()


def _run(ctx: typer.Context) -> str | None:
    """The run that was typed. Behind an option that has no value yet, arguments are left over unread."""
    given = ctx.params.get("run")
    return given if isinstance(given, str) else next((word for word in ctx.args if not word.startswith("-")), None)


def _root(ctx: typer.Context) -> Path:
    from lossless.record.runs import DEFAULT_ROOT

    given = ctx.params.get("root")
    return Path(given) if given else DEFAULT_ROOT


def _files(incomplete: str, pattern: str) -> list[str]:
    """Files below the folder that was typed so far, written as it was typed; folders end in a slash."""
    typed, _, _ = incomplete.rpartition("/")
    folder = Path(typed or ("/" if incomplete.startswith("/") else "."))
    prefix = f"{typed}/" if "/" in incomplete else ""
    names = (f"{path.name}/" if path.is_dir() else path.name for path in folder.expanduser().glob(pattern))
    return sorted(f"{prefix}{name}" for name in names if not name.startswith("."))
