"""A profile for the terminal and for scripts: what would be started, without starting it."""

import shlex
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lossless.profiles import Profile, profile_digest
from lossless.profiles.checks.result import CheckResult
from lossless.servers.argv import server_argv

PORT = 30000


def profile_json(profile: Profile) -> dict[str, Any]:
    """Plain JSON values; the source path is left out."""
    data = asdict(profile)
    data.pop("source")
    data["digest"] = profile_digest(profile)
    data["commands"] = {} if profile.kind == "attach" else _commands(profile)
    return data


def profile_table(profile: Profile) -> RenderableType:
    """Description, the figures that matter, and each server's command line."""
    lines = [
        Text(f"{profile.name} ({profile.kind})", style="bold"),
        Text(profile.description),
        Text(f"target {profile.target} · dtype {profile.dtype} · prompts {profile.prompts}"),
    ]
    if profile.kind == "attach":
        lines += [Text(f"{n}: {profile.server(n).url or 'no address yet'}") for n in profile.server_names]
        return Group(*lines)
    for name, argv in _commands(profile).items():
        env = " ".join(f"{k}={shlex.quote(v)}" for k, v in profile.env_of(name).items())
        lines += [Text(""), Text(name, style="bold"), Text(f"  {env + ' ' if env else ''}{shlex.join(argv)}")]
    return Group(*lines)


def check_table(results: Iterable[CheckResult]) -> RenderableType:
    """What a profile check found, the worst first, with what to do about it."""
    styles = {"fail": "bold red", "warn": "yellow", "ok": "green", "skipped": "dim"}
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for r in results:
        text = Text(r.detail)
        if r.remedy:
            text.append(f"\n→ {r.remedy}")
        table.add_row(Text(r.status, styles[r.status]), r.subject, r.name, text)
    return table


def _commands(profile: Profile) -> dict[str, list[str]]:
    return {name: server_argv(profile, name, PORT) for name in profile.server_names}
