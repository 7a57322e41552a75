"""Reads profile files (TOML) into :class:`~lossless.profiles.profile.Profile`."""

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from lossless.errors import UsageError
from lossless.profiles.models import resolve_model
from lossless.profiles.profile import BASELINE, Baseline, EpsilonBounds, FlagValue, Kind, Profile, Variant
from lossless.profiles.suggest import did_you_mean
from lossless.prompts.haystack import MINIMUM_TOKENS, LongContext
from lossless.sglang_cpu import site_path

SHIPPED = Path(__file__).parent / "shipped"
SGLANG_PYTHON = "LOSSLESS_SGLANG_PYTHON"
"""Environment variable naming the Python that has SGLang, where it is not the one that runs the suite."""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_FLAG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

_OWN_FLAGS = {
    "model-path": "target",
    "model": "target",
    "tokenizer-path": "tokenizer",
    "dtype": "dtype",
    "tp-size": "tp_size",
    "tensor-parallel-size": "tp_size",
    "tp": "tp_size",
    "speculative-algorithm": "variants.NAME.algorithm",
    "speculative-draft-model-path": "variants.NAME.draft",
    "speculative-draft-model": "variants.NAME.draft",
}
_LAUNCHER_FLAGS = {
    "host": "servers listen on 127.0.0.1 only",
    "port": "the launcher picks a free port",
    "nccl-port": "the launcher leaves room for it next to the port",
    "api-key": "a profile never holds a key, and a launched server needs none",
    "admin-api-key": "a profile never holds a key, and a launched server needs none",
    "parent-pid": "the launcher passes it",
    "fault": "faults are planted by the tests that need them",
}

_Flags = dict[str, bool | int | float | str | list[int | float | str]]
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(gt=0)]
_Nats = Annotated[float, msgspec.Meta(ge=0)]


class _BaselineTable(msgspec.Struct, forbid_unknown_fields=True):
    args: _Flags = {}
    env: dict[str, str] = {}
    url: str | None = None


class _VariantTable(msgspec.Struct, forbid_unknown_fields=True):
    algorithm: str | None = None
    draft: str | None = None
    args: _Flags = {}
    env: dict[str, str] = {}
    url: str | None = None


class _EpsilonTable(msgspec.Struct, forbid_unknown_fields=True):
    k: _Nats | None = None
    minimum: _Nats | None = None
    cap: _Nats | None = None


class _LongTable(msgspec.Struct, forbid_unknown_fields=True):
    lengths: list[Annotated[int, msgspec.Meta(ge=MINIMUM_TOKENS)]] | None = None
    depths: Annotated[list[Annotated[float, msgspec.Meta(ge=0, le=1)]], msgspec.Meta(min_length=1)] | None = None
    max_new_tokens: _Count | None = None


class _ProfileTable(msgspec.Struct, forbid_unknown_fields=True):
    description: str
    kind: Kind
    name: str | None = None
    target: str | None = None
    tokenizer: str | None = None
    dtype: str = "auto"
    command: Annotated[list[str], msgspec.Meta(min_length=1)] | None = None
    args: _Flags = {}
    env: dict[str, str] = {}
    baseline: dict[str, Any] = {}
    variants: dict[str, dict[str, Any]] = {}
    prompts: str = "standard"
    max_new_tokens: _Count | None = None
    concurrency: _Count = 8
    start_deadline_s: _Seconds = 600.0
    request_timeout_s: _Seconds = 600.0
    long: dict[str, Any] = {}
    tp_size: _Count = 1
    parallel_servers: _Count = 1
    epsilon: dict[str, Any] = {}
    allow_differences: list[str] = []
    api_key_env: str | None = None


def load_profile(name_or_path: str) -> Profile:
    """Load a shipped profile by name, or a profile file by its path (anything that ends in ``.toml``).

    ``${NAME}`` and ``${NAME:-default}`` in the file's strings are replaced from the environment; relative model and
    prompt paths are taken from the file's own folder.

    Raises:
        UsageError: no such profile or file, an unset variable, or an entry the profile format does not have.
    """
    if name_or_path.endswith(".toml"):
        path = Path(name_or_path).expanduser()
        if not path.is_file():
            raise UsageError(
                f"there is no profile file {name_or_path}",
                hint="lossless profiles list shows the profiles that ship with the package",
            )
        return _read(path, _environment(), strict=True)
    names = shipped_names()
    if name_or_path not in names:
        raise UsageError(
            f"there is no profile {name_or_path!r}; shipped: {', '.join(names)}{did_you_mean(name_or_path, names)}",
            hint="give one of these names, or the path of a .toml file",
        )
    return _read(SHIPPED / f"{name_or_path}.toml", _environment(), strict=True)


def _environment() -> dict[str, str]:
    """The variables a profile may name; the CPU stand-ins that ship with the package have their place by default."""
    return {"LOSSLESS_SGLANG_CPU_SITE": str(site_path()), **os.environ}


def shipped_names() -> tuple[str, ...]:
    """The names of the profiles that ship with the package, sorted."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def shipped_profiles() -> tuple[Profile, ...]:
    """All shipped profiles, to list them. References to variables that are not set stay as they are written."""
    return tuple(_read(SHIPPED / f"{name}.toml", _environment(), strict=False) for name in shipped_names())


def _read(path: Path, env: Mapping[str, str], *, strict: bool) -> Profile:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{path}: not valid TOML: {problem}") from problem
    except OSError as problem:
        raise UsageError(f"{path}: cannot be read: {problem.strerror}") from problem
    return _Reader(path).profile(_expand(raw, "", path, env, strict))


class _Reader:
    """Turns one decoded file into a profile; every error names the file and the key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path.resolve().parent

    def profile(self, raw: dict[str, Any]) -> Profile:
        table = self._convert(raw, _ProfileTable, "")
        name = table.name if table.name is not None else self.path.stem
        if not NAME.fullmatch(name):
            raise self._error("name", f"{name!r} must be lower-case letters, digits, '.', '_' and '-'")
        epsilon = self._convert(table.epsilon, _EpsilonTable, "epsilon")
        if epsilon.minimum is not None and epsilon.cap is not None and epsilon.minimum > epsilon.cap:
            raise self._error("epsilon", f"minimum ({epsilon.minimum}) is above cap ({epsilon.cap})")
        if table.api_key_env is not None and not _ENV_NAME.fullmatch(table.api_key_env):
            # The value is not shown: it may be the key itself, put in the wrong place.
            raise self._error("api_key_env", "must be the name of an environment variable, never the key itself")
        baseline = self._convert(table.baseline, _BaselineTable, "baseline")
        profile = Profile(
            name=name,
            description=table.description,
            kind=table.kind,
            target=self._target(table),
            tokenizer=resolve_model(table.tokenizer, self.folder) if table.tokenizer else None,
            dtype=table.dtype,
            command=tuple(table.command) if table.command else default_command(table.kind),
            args=self._flags(table.args, "args"),
            env=self._env(table.env, "env"),
            baseline=Baseline(
                args=self._flags(baseline.args, "baseline.args"),
                env=self._env(baseline.env, "baseline.env"),
                url=self._url(baseline.url, "baseline.url", table.kind),
            ),
            variants={key: self._variant(key, entry, table.kind) for key, entry in table.variants.items()},
            prompts=resolve_prompts(table.prompts, self.folder),
            long=self._long(table.long),
            max_new_tokens=table.max_new_tokens,
            concurrency=table.concurrency,
            start_deadline_s=table.start_deadline_s,
            request_timeout_s=table.request_timeout_s,
            tp_size=table.tp_size,
            parallel_servers=table.parallel_servers,
            epsilon=EpsilonBounds(epsilon.k, epsilon.minimum, epsilon.cap),
            allow_differences=tuple(table.allow_differences),
            api_key_env=table.api_key_env,
            source=self.path,
        )
        if not profile.variants:
            raise self._error("variants", "at least one variant is needed, such as [variants.nextn]")
        return profile

    def _long(self, raw: dict[str, Any]) -> LongContext:
        table = self._convert(raw, _LongTable, "long")
        given = {key: value for key in ("lengths", "depths") if (value := getattr(table, key)) is not None}
        for key, values in given.items():
            if len(set(values)) != len(values):
                raise self._error(f"long.{key}", f"has a value twice: {values}")
        changes: dict[str, Any] = {key: tuple(values) for key, values in given.items()}
        if table.max_new_tokens is not None:
            changes["max_new_tokens"] = table.max_new_tokens
        return replace(LongContext(), **changes)

    def _target(self, table: _ProfileTable) -> str:
        if table.target is None:
            if table.kind == "attach":
                return "auto"
            raise self._error("target", "missing: a model folder, a hub id or builtin:tiny")
        if table.target == "auto" and table.kind != "attach":
            raise self._error("target", f"'auto' is for kind 'attach' only, and the kind here is {table.kind!r}")
        return resolve_model(table.target, self.folder)

    def _variant(self, name: str, raw: dict[str, Any], kind: Kind) -> Variant:
        where = f"variants.{name}"
        if not NAME.fullmatch(name) or name == BASELINE:
            raise self._error(
                where, f"a variant's name is lower-case letters, digits, '.', '_', '-', and not {BASELINE!r}"
            )
        table = self._convert(raw, _VariantTable, where)
        if table.algorithm is None and kind != "attach":
            raise self._error(f"{where}.algorithm", "missing: SGLang's name of the algorithm, such as NEXTN or DFLASH")
        variant = Variant(
            name=name,
            algorithm=table.algorithm.upper() if table.algorithm else None,
            draft=resolve_model(table.draft, self.folder) if table.draft else None,
            args=self._flags(table.args, f"{where}.args"),
            env=self._env(table.env, f"{where}.env"),
            url=self._url(table.url, f"{where}.url", kind),
        )
        if kind != "attach" and variant.uses_draft_model and variant.draft is None:
            raise self._error(f"{where}.draft", f"missing: {variant.algorithm} needs a draft model")
        return variant

    def _convert(self, raw: Any, table: type[Any], where: str) -> Any:
        allowed = [f.name for f in msgspec.structs.fields(table)]
        for key in raw:
            if key not in allowed:
                raise self._error(
                    f"{where}.{key}" if where else key,
                    f"unknown key; allowed here: {', '.join(allowed)}{did_you_mean(key, allowed)}",
                )
        try:
            return msgspec.convert(raw, table)
        except msgspec.ValidationError as problem:
            text, _, at = str(problem).partition(" - at `$")
            key = f"{where}{at.rstrip('`')}".lstrip(".")
            raise self._error(key or "(top level)", text) from problem

    def _flags(self, flags: _Flags, where: str) -> dict[str, FlagValue]:
        for flag in flags:
            if flag in _LAUNCHER_FLAGS:
                raise self._error(f"{where}.{flag}", f"not allowed: {_LAUNCHER_FLAGS[flag]}")
            if flag in _OWN_FLAGS:
                raise self._error(f"{where}.{flag}", f"not allowed: set the profile's `{_OWN_FLAGS[flag]}` instead")
            if not _FLAG.fullmatch(flag):
                plain = flag.strip("-").replace("_", "-").lower()
                better = f". Did you mean {plain!r}?" if _FLAG.fullmatch(plain) else ""
                raise self._error(f"{where}.{flag}", f"a flag is written without leading dashes, in lower case{better}")
        return {flag: tuple(value) if isinstance(value, list) else value for flag, value in flags.items()}

    def _env(self, env: dict[str, str], where: str) -> dict[str, str]:
        for name in env:
            if not _ENV_NAME.fullmatch(name):
                raise self._error(f"{where}.{name}", "not the name of an environment variable")
            if name == "CUDA_VISIBLE_DEVICES":
                raise self._error(f"{where}.{name}", "not allowed: the cards are leased and set by the launcher")
        return env

    def _url(self, url: str | None, where: str, kind: Kind) -> str | None:
        if url is None:
            if kind == "attach":
                raise self._error(where, "missing: kind 'attach' needs the address of each server")
            return None
        if kind != "attach":
            raise self._error(where, f"only kind 'attach' has addresses, and the kind here is {kind!r}")
        try:
            return check_url(url)
        except UsageError as problem:
            raise self._error(where, problem.message) from problem

    def _error(self, key: str, what: str) -> UsageError:
        return UsageError(f"{self.path}: {key}: {what}", hint="`lossless profiles show tiny` shows a complete profile")


def default_command(kind: Kind) -> tuple[str, ...]:
    """What starts a server of that kind when the profile does not say."""
    if kind == "reference":
        return (sys.executable, "-m", "lossless.reference")
    if kind == "sglang":
        return (os.environ.get(SGLANG_PYTHON) or sys.executable, "-m", "sglang.launch_server")
    return ()


def resolve_prompts(value: str, folder: Path) -> str:
    """A prompt subset's name stays; a file (it has a suffix or a slash) becomes an absolute path."""
    if "/" in value or Path(value).suffix:
        return str((folder / Path(value).expanduser()).resolve())
    return value


def check_url(url: str) -> str:
    """The address of a server without its trailing slash.

    Raises:
        UsageError: not http(s)://host[:port][/path], or it holds credentials.
    """
    found = re.fullmatch(r"https?://([^/?#\s]+)(/[^?#\s]*)?", url.strip())
    if found is None:
        shown = re.sub(r"//[^/@]*@", "//***@", url)
        raise UsageError(f"{shown!r} is not an address such as http://127.0.0.1:30000")
    if "@" in found[1]:
        raise UsageError("an address must not hold credentials", hint="name the key's variable with api_key_env")
    return url.strip().rstrip("/")


def _expand(value: Any, where: str, path: Path, env: Mapping[str, str], strict: bool) -> Any:
    if isinstance(value, dict):
        return {k: _expand(v, f"{where}.{k}".lstrip("."), path, env, strict) for k, v in value.items()}
    if isinstance(value, list):
        return [_expand(v, f"{where}[{i}]", path, env, strict) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replacement(found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        if env.get(name):
            return env[name]
        if default is not None:
            return default
        if not strict:
            return found[0]
        raise UsageError(
            f"{path}: {where}: the environment variable {name} is not set", hint=f"export {name}=..., then run it again"
        )

    return _REFERENCE.sub(replacement, value)
