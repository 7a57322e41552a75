"""What a model reference in a profile means: ``builtin:NAME``, a folder, or a hub id."""

import re
from pathlib import Path

from lossless.errors import UsageError
from lossless.profiles.profile import BUILTIN, Profile, Variant
from lossless.reference.builtin import builtin_path

BUILTIN_MODELS = ("builtin:tiny",)
_BUILTIN_PARTS = {None: "target", "NEXTN": "target", "DFLASH": "dflash2"}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def resolve_model(value: str, folder: Path) -> str:
    """Make a model reference independent of the current folder.

    A value that starts with ``.``, ``/`` or ``~``, or that names an existing folder under ``folder``, becomes an
    absolute path; everything else (hub ids, ``builtin:``, ``auto``) stays as it is.
    """
    if value.startswith(BUILTIN) or value == "auto":
        return value
    path = Path(value).expanduser()
    if value.startswith((".", "~")) or path.is_absolute() or (folder / path).is_dir():
        return str((folder / path).resolve())
    return value


def launch_path(value: str, profile: Profile, algorithm: str | None = None) -> str:
    """A model reference as a server's command line takes it.

    The reference engine knows ``builtin:`` names itself; SGLang gets the shipped folder: the target's, or the draft's
    that belongs to ``algorithm``.
    """
    if not value.startswith(BUILTIN) or profile.kind == "reference":
        return value
    _known_builtin(value, f"profile {profile.name!r}")
    if algorithm not in _BUILTIN_PARTS:
        raise UsageError(f"profile {profile.name!r}: {value} has no draft for {algorithm}, only for NEXTN and DFLASH")
    return str(builtin_path() / _BUILTIN_PARTS[algorithm])


def check_models(profile: Profile, server: str) -> None:
    """See that the models one launched server needs can exist, before a process is started for them.

    Raises:
        UsageError: a folder is missing or is no model folder, a ``builtin:`` name is unknown, or a value is neither a
            folder nor a hub id.
    """
    wanted = {"target": profile.target}
    entry = profile.server(server)
    if isinstance(entry, Variant) and entry.draft is not None:
        wanted[f"variants.{server}.draft"] = entry.draft
    for key, value in wanted.items():
        _check_model(value, f"profile {profile.name!r}, {key}", profile)


def _check_model(value: str, where: str, profile: Profile) -> None:
    if value.startswith(BUILTIN):
        _known_builtin(value, where)
        return
    path = Path(value)
    if path.is_absolute():
        if not path.is_dir():
            raise UsageError(
                f"{where}: there is no model folder {value}",
                hint="correct the path, or give --lossless-target / --lossless-draft",
            )
        if not (path / "config.json").is_file():
            raise UsageError(
                f"{where}: {value} has no config.json, so it is not a model folder",
                hint="point at the folder with config.json",
            )
        return
    if profile.kind == "reference":
        raise UsageError(
            f"{where}: there is no folder {value!r}, and the reference engine reads only folders and "
            f"{', '.join(BUILTIN_MODELS)}"
        )
    if not _HUB_ID.fullmatch(value):
        raise UsageError(
            f"{where}: {value!r} is neither an existing folder nor a hub id such as 'Qwen/Qwen3-8B'",
            hint="start a path with '/', './' or '~'",
        )


def _known_builtin(value: str, where: str) -> None:
    if value not in BUILTIN_MODELS:
        raise UsageError(f"{where}: no built-in model {value!r}; there is: {', '.join(BUILTIN_MODELS)}")
