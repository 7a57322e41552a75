"""``lossless init``: write a profile for a model folder or for running servers."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from lossless.commands.common import console
from lossless.errors import UsageError
from lossless.profiles import load_profile
from lossless.profiles.check import check_profile
from lossless.profiles.checks.model_folder import ModelFolder
from lossless.profiles.checks.result import summary
from lossless.profiles.loader import NAME, check_url
from lossless.profiles.profile import BASELINE
from lossless.profiles.survey import Seen, survey_folders, survey_servers
from lossless.profiles.writing import ProfileFacts, next_command, one_line, profile_toml
from lossless.protocol.client import Client
from lossless.report.profile import check_table
from lossless.servers.pair import ServerFacts

_LOOK_S = 10.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(init)


def init(
    target: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="A model folder: the suite will launch the servers. With --url: where the tokenizer is."
        ),
    ] = None,
    draft: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A draft's folder, such as a DFlash2 draft.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="A running baseline: the suite will start nothing.")
    ] = None,
    variant_url: Annotated[
        list[str] | None, typer.Option(metavar="NAME=URL", help="A running variant; repeat for several.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The profile's name.")] = None,
    card_gb: Annotated[
        float | None, typer.Option(min=1, metavar="GB", help="Memory of one card, to choose the flags by.")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="The variable that holds the servers' API key.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it (default: ./NAME.toml).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a profile for your own model.

    Give a model folder (--target, and --draft where there is one), or running servers (--url and --variant-url).
    """
    facts = _facts(target, draft, url, variant_url or [], name, card_gb, api_key_env)
    path = _destination(output, facts, force=force)
    try:
        path.write_text(profile_toml(facts, path), encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"{path} cannot be written: {problem.strerror}", hint="give --output FILE") from problem
    _report(path, facts)


def _facts(
    target: Path | None,
    draft: Path | None,
    url: str | None,
    variant_urls: list[str],
    name: str | None,
    card_gb: float | None,
    api_key_env: str | None,
) -> ProfileFacts:
    servers = url is not None or bool(variant_urls)
    if not servers and target is None and draft is None:
        raise UsageError(
            "nothing to write a profile for",
            hint="lossless init --target DIR, or lossless init --url URL --variant-url NAME=URL",
        )
    if name is not None and not NAME.fullmatch(name):
        raise UsageError(f"--name {name!r} must be lower-case letters, digits, '.', '_' and '-'")
    if servers:
        if url is None:
            raise UsageError(f"--variant-url {variant_urls[0]} without the baseline's address", hint="add --url URL")
        if draft is not None:
            raise UsageError(f"--draft {draft} is for servers that the suite launches: running ones have their draft")
        if card_gb is not None:
            raise UsageError(f"--card-gb {card_gb:g} is for --target: a running server has its flags already")
        if not variant_urls:
            raise UsageError(
                f"--url {url} without any variant's address", hint="add --variant-url NAME=http://127.0.0.1:PORT"
            )
        named = dict(_pair(text) for text in variant_urls)
        key = _key(api_key_env)
        looked = {server: _look(address, key) for server, address in {BASELINE: check_url(url), **named}.items()}
        if target is not None and not (target / "tokenizer.json").is_file():
            raise UsageError(f"--target {target}: there is no tokenizer.json in that folder")
        return survey_servers(looked.pop(BASELINE), looked, target=target, name=name, api_key_env=api_key_env)
    if api_key_env is not None:
        raise UsageError(f"--api-key-env {api_key_env} is for --url: launched servers need no key")
    if target is None:
        raise UsageError(f"--draft {draft} without the target it drafts for", hint="add --target DIR")
    return survey_folders(
        _folder(target, "--target"),
        None if draft is None else _folder(draft, "--draft"),
        name=name,
        card_gb=card_gb,
    )


def _folder(path: Path, option: str) -> ModelFolder:
    if not path.is_dir():
        raise UsageError(
            f"{option} {path}: there is no such folder",
            hint=f"download the model first: hf download {path} --local-dir DIR",
        )
    return ModelFolder.read(path)


def _pair(text: str) -> tuple[str, str]:
    name, equals, address = text.partition("=")
    if not equals or not NAME.fullmatch(name) or name == BASELINE:
        raise UsageError(
            f"--variant-url {text!r}: expected NAME=URL, such as nextn=http://127.0.0.1:30100; a name is lower-case "
            f"letters, digits, '.', '_', '-', and not {BASELINE!r}"
        )
    return name, check_url(address)


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UsageError(
            f"--api-key-env {variable}: that environment variable is not set", hint=f"export {variable}=..."
        )
    return key


def _look(url: str, key: str | None) -> Seen:
    with Client(url, api_key=key, timeout_s=_LOOK_S) as client:
        model: Mapping[str, object] = client.model_info()
        if not isinstance(model.get("model_path"), str):
            raise UsageError(
                f"{url} answers, but its /model_info names no model_path",
                hint="give the address of an SGLang server's HTTP port",
            )
        return Seen(url, ServerFacts(client.server_info(), model))


def _destination(output: Path | None, facts: ProfileFacts, *, force: bool) -> Path:
    path = output if output is not None else Path(f"{facts.name}.toml")
    if path.suffix != ".toml":
        raise UsageError(f"--output {path}: a profile file ends in .toml", hint=f"--output {path}.toml")
    if not path.parent.is_dir():
        raise UsageError(f"--output {path}: there is no folder {path.parent}")
    if path.exists() and not force:
        raise UsageError(f"{path} exists already", hint="give --force to overwrite it, or --output FILE")
    return path


def _report(path: Path, facts: ProfileFacts) -> None:
    """What was found, what the check says of the file as it was written, and the next command."""
    out = console()
    for line in (*facts.found, *(f"{v.name}: {note}" for v in facts.variants for note in v.notes)):
        out.print(one_line(line), markup=False)
    out.print(f"wrote {path}", style="bold", markup=False)
    if facts.api_key_env:
        print(f"the key stays in {facts.api_key_env}; the file holds only that name", file=sys.stderr)
    results = check_profile(load_profile(str(path)))
    bad = [result for result in results if result.status in ("fail", "warn")]
    if bad:
        out.print(check_table(bad))
    out.print(f"check: {summary(results)}", markup=False)
    out.print(f"→ {next_command(facts, path)}", markup=False)
