"""``lossless golden``: reviewing changes of the golden snapshots."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lossless.commands.common import Json, console, print_json
from lossless.errors import EXIT_DIVERGENT, UsageError
from lossless.golden.diff import Change, GoldenChange, GoldenDiff, diff
from lossless.golden.revisions import GoldenSide, read_side
from lossless.profiles import load_profile
from lossless.prompts import Tokenizer
from lossless.report.golden_diff import Decode, diff_json, sections, tokens
from lossless.report.sections import Section, markdown, terminal
from lossless.suite.prepare import model_path

golden_app = typer.Typer(help="The golden snapshots: what changed in them, for a review.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(golden_app, name="golden")


@golden_app.callback()
def _golden() -> None:
    pass


@golden_app.command("diff")
def diff_goldens(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A git revision, or a folder (which goes first).")],
    new: Annotated[
        str | None, typer.Argument(metavar="NEW", help="Likewise; without it the golden folder as it is now.")
    ] = None,
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="Only this profile's goldens.")] = None,
    prompt: Annotated[list[str] | None, typer.Option(metavar="ID", help="Token by token; repeatable.")] = None,
    all_tokens: Annotated[bool, typer.Option("--tokens", help="Token by token, for all that changed.")] = False,
    every: Annotated[bool, typer.Option("--all", help="List goldens that did not change, too.")] = False,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The target's tokenizer, to show tokens as text.")
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 if anything that is compared changed.")
    ] = False,
    as_json: Json = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")] = False,
    golden: Annotated[Path, typer.Option(metavar="DIR", help="The golden folder of the repository.")] = Path("golden"),
) -> None:
    """What changed in the golden snapshots, prompt by prompt; token by token with --tokens.

    A revision is read with git and never checked out. No server is asked, so a change is described and not judged.
    """
    if as_json and as_markdown:
        raise UsageError("--json and --markdown were both given; choose one")
    left, right = read_side(old, golden), read_side(new or str(golden), golden)
    found = diff(*_same_profiles(left, right, profile))
    names = left.name, right.name
    if as_json:
        shown = found if not prompt else replace(found, prompts=tuple(_chosen(found, prompt)))
        print_json(diff_json(shown, *names))
    else:
        parts = list(sections(found, *names, every=every)) if not prompt else []
        if prompt or all_tokens:
            parts += _tokens(_chosen(found, prompt), tokenizer)
        if as_markdown:
            print(markdown(parts), end="")
        else:
            console().print(terminal(parts), crop=False)
    raise typer.Exit(EXIT_DIVERGENT if exit_code and found.changed else 0)


def _same_profiles(
    left: GoldenSide, right: GoldenSide, profile: str | None
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Both sides' files, limited to one profile where one is named or is all a side has. Two folders of one profile
    each are compared under the old one's name, whatever they are called."""
    only = profile or left.profile or right.profile
    sides = []
    for side in (left, right):
        files = dict(side.files)
        if side.profile is not None and only is not None:
            files = {f"{only}/{path.rpartition('/')[2]}": content for path, content in files.items()}
        if only is not None:
            files = {path: content for path, content in files.items() if path.startswith(f"{only}/")}
        sides.append(files)
    if not any(sides):
        profiles = sorted({path.partition("/")[0] for side in (left, right) for path in side.files})
        raise UsageError(f"neither side has goldens of profile {only!r}; there are: {', '.join(profiles)}")
    return sides[0], sides[1]


def _chosen(found: GoldenDiff, prompts: Sequence[str] | None) -> list[GoldenChange]:
    if not prompts:
        return [p for p in found.prompts if p.change is not Change.UNCHANGED]
    known = {p.prompt for p in found.prompts}
    for name in prompts:
        if name not in known:
            raise UsageError(f"neither side has a golden of prompt {name!r}", hint="--all lists every golden")
    return [p for p in found.prompts if p.prompt in prompts]


def _tokens(changes: Sequence[GoldenChange], folder: Path | None) -> list[Section]:
    given = None if folder is None else Tokenizer.from_folder(folder)
    found: dict[str, Tokenizer | None] = {}
    parts = []
    for change in changes:
        if change.profile not in found:
            found[change.profile] = given or _profile_tokenizer(change.profile)
        parts.append(tokens(change, _decode(found[change.profile], change)))
    return parts


def _decode(tokenizer: Tokenizer | None, change: GoldenChange) -> Decode | None:
    """How to turn ids into text; None unless the golden's tokens are this tokenizer's."""
    digests = {g.provenance.tokenizer for g in (change.old, change.new) if g is not None}
    if tokenizer is None or digests != {tokenizer.digest}:
        return None
    return lambda ids: tokenizer.decode(tuple(ids), False)


def _profile_tokenizer(profile: str) -> Tokenizer | None:
    """The tokenizer of a shipped profile, where it is on this machine. Nothing is downloaded."""
    with contextlib.suppress(UsageError):
        folder = model_path(load_profile(profile).tokenizer_source)
        return None if folder is None else Tokenizer.from_folder(folder)
    return None
