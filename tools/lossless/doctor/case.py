"""What the rules look at: the files of one variant, and what one run measured of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lossless.analysis import Acceptance
from lossless.golden.acceptance import GoldenAcceptance
from lossless.profiles.checks.model_folder import ModelFolder
from lossless.profiles.checks.result import CheckResult

ALL = "all"
"""The entry of ``categories`` that pools the whole set."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Accept lengths that this variant should reach, by category; ``name`` says where they come from."""

    name: str
    categories: Mapping[str, GoldenAcceptance]


@dataclass(frozen=True, slots=True)
class LengthBin:
    """Answers to prompts of ``low`` to ``high`` tokens: their accept length (tokens a step) over so many steps."""

    low: int
    high: int
    accept_length: float
    verify_steps: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One variant in one recorded run.

    ``categories`` holds the accept lengths by category and ``all``. ``histogram[i]`` counts the verify steps that
    accepted i draft tokens; empty where the server does not say. ``width`` is how many tokens a step verifies,
    ``depth`` how many draft tokens it can accept at most (None: not known); lengths are tokens. ``differing`` of
    ``judged`` answers are not what the target alone says (known issues left out). ``simulated`` is the value of
    SGLANG_SIMULATE_ACC_LEN.
    """

    run: str
    version: str | None = None
    algorithm: str | None = None
    problem: str | None = None
    width: int | None = None
    depth: int | None = None
    simulated: str | None = None
    categories: Mapping[str, Acceptance] = field(default_factory=dict)
    histogram: tuple[int, ...] = ()
    by_length: tuple[LengthBin, ...] = ()
    longest_prompt: int = 0
    temperatures: tuple[float, ...] = ()
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    differing: int = 0
    judged: int = 0
    reference: Reference | None = None

    @property
    def whole(self) -> Acceptance:
        """Over the whole set."""
        return self.categories.get(ALL, Acceptance(0, 0, 0, 0))


@dataclass(frozen=True, slots=True)
class Case:
    """One variant. ``checks`` are the results of the profile check that concern it or the target, None where no model
    folder could be looked at (``no_files`` says why). ``untrained`` says whether all norm weights of the draft are one
    constant, None where they were not read. ``context`` is the context length in tokens, where it is known.
    """

    variant: str
    algorithm: str | None
    checks: tuple[CheckResult, ...] | None = None
    no_files: str = ""
    target: ModelFolder | None = None
    draft: ModelFolder | None = None
    untrained: bool | None = None
    context: int | None = None
    run: Measured | None = None

    @property
    def dflash(self) -> bool:
        """Whether the variant drafts blocks with a DFlash draft."""
        return (self.algorithm or "").startswith("DFLASH")

    @property
    def measured(self) -> Measured | None:
        """The run, if it has an accept length."""
        return self.run if self.run is not None and self.run.whole.verify_steps else None
