"""What a profile says, as frozen values. The file is read by `loader`; `lossless.servers` starts what it says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from lossless.errors import UsageError
from lossless.profiles.suggest import did_you_mean
from lossless.prompts.haystack import LongContext

BASELINE = "baseline"
"""The name of the server that runs the target alone. No variant may have it."""

BUILTIN = "builtin:"
"""Prefix of the models that ship with the package."""

OWN_HEAD_ALGORITHMS = frozenset({"NEXTN"})
"""Algorithms whose draft is a head inside the target's own checkpoint, so that the draft path is the target's."""

NO_DRAFT_ALGORITHMS = frozenset({"NGRAM"})
"""Algorithms that draft without a model."""

Kind = Literal["reference", "sglang", "attach"]
FlagValue = bool | int | float | str | tuple[int | float | str, ...]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What only the baseline gets. ``url`` is set where a running server is attached to instead of launched."""

    args: Mapping[str, FlagValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """The target plus one speculative configuration.

    ``algorithm`` is SGLang's name for it (NEXTN, DFLASH, ...); None only where a running server is attached to and
    may say itself. ``draft`` is None where the algorithm needs no model of its own.
    """

    name: str
    algorithm: str | None
    draft: str | None = None
    args: Mapping[str, FlagValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None

    @property
    def uses_draft_model(self) -> bool:
        """Whether a draft model apart from the target belongs to it."""
        return self.draft is not None or self.algorithm not in (OWN_HEAD_ALGORITHMS | NO_DRAFT_ALGORITHMS | {None})


@dataclass(frozen=True, slots=True)
class EpsilonBounds:
    """Overrides of the near-tie bound ``clamp(k * noise floor, minimum, cap)``; nats, None keeps the default."""

    k: float | None = None
    minimum: float | None = None
    cap: float | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """One target, its baseline and its variants.

    ``target`` and a variant's ``draft`` are a folder (absolute path), a hub id or ``builtin:tiny``; an attach profile
    may say ``auto``: what the baseline's ``/model_info`` names. ``args`` maps SGLang flag names without dashes to
    values (true: a bare flag, false: left out, a tuple: repeated values) and goes to every server. Times are seconds,
    ``max_new_tokens`` tokens. ``parallel_servers`` is how many servers may run side by side when no card is leased.
    ``allow_differences`` names server arguments in which baseline and variants may differ although it matters.
    ``api_key_env`` names the environment variable with the key for attached servers. ``long`` is which long prompts the
    sets ``full``, ``long`` and ``stress`` get.
    """

    name: str
    description: str
    kind: Kind
    target: str
    command: tuple[str, ...]
    variants: Mapping[str, Variant]
    tokenizer: str | None = None
    dtype: str = "auto"
    args: Mapping[str, FlagValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    baseline: Baseline = field(default_factory=Baseline)
    prompts: str = "standard"
    long: LongContext = field(default_factory=LongContext)
    max_new_tokens: int | None = None
    concurrency: int = 8
    start_deadline_s: float = 600.0
    request_timeout_s: float = 600.0
    tp_size: int = 1
    parallel_servers: int = 1
    epsilon: EpsilonBounds = field(default_factory=EpsilonBounds)
    allow_differences: tuple[str, ...] = ()
    api_key_env: str | None = None
    source: Path | None = field(default=None, compare=False)

    @property
    def tokenizer_source(self) -> str:
        """Where the tokenizer comes from: the target unless the profile says otherwise."""
        return self.tokenizer or self.target

    @property
    def server_names(self) -> tuple[str, ...]:
        """The baseline's name, then the variants' in the profile's order."""
        return (BASELINE, *self.variants)

    def server(self, name: str) -> Baseline | Variant:
        """The entry of one server.

        Raises:
            UsageError: the profile has no server of that name.
        """
        if name == BASELINE:
            return self.baseline
        if name in self.variants:
            return self.variants[name]
        raise UsageError(
            f"profile {self.name!r} has no server {name!r}; it has: {', '.join(self.server_names)}"
            f"{did_you_mean(name, self.server_names)}",
            hint=f"lossless profiles show {self.name}",
        )

    def draft_of(self, name: str) -> str | None:
        """The draft model of one server; NEXTN without a draft uses the head inside the target's checkpoint."""
        entry = self.server(name)
        if not isinstance(entry, Variant):
            return None
        if entry.draft is None and entry.algorithm in OWN_HEAD_ALGORITHMS:
            return self.target
        return entry.draft

    def flags_of(self, name: str) -> dict[str, FlagValue]:
        """The flags of one server: the profile's, with the server's own on top."""
        return {**self.args, **self.server(name).args}

    def env_of(self, name: str) -> dict[str, str]:
        """The environment variables added for one server: the profile's, with the server's own on top."""
        return {**self.env, **self.server(name).env}
