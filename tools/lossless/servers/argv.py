"""From a profile to the command line and environment of one server. Pure."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import lossless
from lossless.errors import UsageError
from lossless.profiles.models import launch_path
from lossless.profiles.profile import FlagValue, Profile, Variant
from lossless.protocol.redact import secrets_of

HOST = "127.0.0.1"


def server_argv(profile: Profile, name: str, port: int) -> list[str]:
    """The command line of one server (``baseline`` or a variant's name) of a launching profile, without a shell.

    Raises:
        UsageError: no such server, or the profile attaches to running servers.
    """
    entry = profile.server(name)
    if profile.kind == "attach":
        raise UsageError(f"profile {profile.name!r} attaches to running servers; there is no command line for {name!r}")
    argv = [*profile.command, "--model-path", launch_path(profile.target, profile)]
    if profile.tokenizer is not None and profile.kind == "sglang":
        argv += ["--tokenizer-path", profile.tokenizer]
    if profile.dtype != "auto":
        argv += ["--dtype", profile.dtype]
    if profile.tp_size > 1:
        argv += ["--tp-size", str(profile.tp_size)]
    argv += ["--host", HOST, "--port", str(port)]
    if isinstance(entry, Variant) and entry.algorithm is not None:
        argv += ["--speculative-algorithm", entry.algorithm]
        draft = profile.draft_of(name)
        if draft is not None:
            argv += ["--speculative-draft-model-path", launch_path(draft, profile, entry.algorithm)]
    return argv + flag_words(profile.flags_of(name))


def flag_words(flags: Mapping[str, FlagValue]) -> list[str]:
    """Flags as words: ``true`` is a bare flag, ``false`` nothing, a tuple one flag with several values.

    A value that starts with a dash is joined with ``=``, or it would be read as a flag.
    """
    words: list[str] = []
    for flag, value in flags.items():
        if value is False or value == ():
            continue
        if value is True:
            words.append(f"--{flag}")
        elif isinstance(value, tuple):
            words += [f"--{flag}", *(str(item) for item in value)]
        elif str(value).startswith("-"):
            words.append(f"--{flag}={value}")
        else:
            words += [f"--{flag}", str(value)]
    return words


def server_env(
    profile: Profile, name: str, gpus: Sequence[str] = (), base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole environment of one launched server: ``base`` (default: this process's), the profile's variables, and
    ``CUDA_VISIBLE_DEVICES`` where cards were leased. This process's own environment is not touched.
    """
    env = dict(os.environ if base is None else base)
    env.update(profile.env_of(name))
    if gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if profile.kind == "reference":
        env["PYTHONPATH"] = own_python_path(env)
    # Unbuffered, so that the log's last lines are there when a server is killed.
    env.setdefault("PYTHONUNBUFFERED", "1")
    return env


def public_settings(env: Mapping[str, str]) -> dict[str, str]:
    """The ``SGLANG_*`` variables of an environment that hold no key, by name."""
    hidden = set(secrets_of(env))
    return {k: v for k, v in sorted(env.items()) if k.startswith("SGLANG_") and v not in hidden}


def own_python_path(env: Mapping[str, str]) -> str:
    """A ``PYTHONPATH`` on which child processes find this package, also where it is not installed."""
    folder = str(Path(lossless.__file__).resolve().parent.parent)
    rest = env.get("PYTHONPATH")
    return f"{folder}{os.pathsep}{rest}" if rest else folder
