"""Writes a profile file from what is known of servers or model folders. Pure: facts in, TOML text out."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from lossless.errors import UsageError
from lossless.profiles.loader import NAME
from lossless.profiles.profile import FlagValue, Kind
from lossless.protocol.redact import redact

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True)
class FlagFacts:
    """One flag for all servers. ``notes`` are comments above it; ``only_a_hint`` leaves the flag itself a comment."""

    name: str
    value: FlagValue
    notes: tuple[str, ...] = ()
    only_a_hint: bool = False


@dataclass(frozen=True, slots=True)
class VariantFacts:
    """One variant: ``algorithm`` with ``draft`` and ``args`` to launch it, or the ``url`` where it runs."""

    name: str
    algorithm: str | None = None
    draft: str | None = None
    args: Mapping[str, FlagValue] = field(default_factory=dict)
    url: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """What goes into the file. ``found`` are the lines at its top that say what was seen. Times are seconds; None
    leaves a field out."""

    name: str
    description: str
    kind: Kind
    variants: tuple[VariantFacts, ...]
    found: tuple[str, ...]
    target: str | None = None
    dtype: str = "auto"
    args: tuple[FlagFacts, ...] = ()
    baseline_url: str | None = None
    api_key_env: str | None = None
    allow_differences: tuple[str, ...] = ()
    concurrency: int = 8
    start_deadline_s: int | None = None
    request_timeout_s: int = 600


def next_command(facts: ProfileFacts, path: Path) -> str:
    """What to run once the file lies at ``path``."""
    if facts.kind == "attach":
        return f"pytest -m lossless --lossless-profile {path} --lossless-prompts quick"
    return f"lossless profiles check {path}; then pytest -m lossless --lossless-profile {path} --lossless-prompts quick"


def profile_toml(facts: ProfileFacts, path: Path) -> str:
    """The text of the profile file that will lie at ``path``.

    Raises:
        UsageError: a name that no profile can have, or a value that the loader would read as a variable.
    """
    for name in (facts.name, *(variant.name for variant in facts.variants)):
        if not NAME.fullmatch(name):
            raise UsageError(f"{name!r} must be lower-case letters, digits, '.', '_' and '-'", hint="give --name NAME")
    return _template().render(facts=facts, next=next_command(facts, path))


def profile_name(text: str) -> str:
    """A profile's name made of a folder's or a model's name."""
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")
    return name or "my-profile"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lossless.profiles"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {"toml": toml_value, "note": one_line}
    return environment.get_template("profile.toml.j2")


def toml_value(value: Any) -> str:
    """A value as TOML writes it.

    Raises:
        UsageError: text with ``${``, which the loader replaces from the environment.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        if "${" in value:
            raise UsageError(f"{value!r} cannot be written: a profile reads '${{' as a variable", hint="rename it")
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Sequence):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    raise TypeError(f"{value!r} has no TOML form here")


def one_line(text: str) -> str:
    """Text of a server or a model on one line, for comments and terminals: no control characters, no keys."""
    return redact(_CONTROL.sub(" ", text))
