"""The options of a suite run, whoever gives them: the command line, ``[tool.lossless]`` in pyproject.toml, defaults.

One table (``OPTIONS``) is the source of the pytest flags, of the allowed keys in pyproject.toml, and of the help text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lossless.errors import UsageError
from lossless.suite.shard import parse_shard

RESUME_WORDS = ("auto", "never")


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``kind`` is how its value is read: str, int, float, flag, or pairs (NAME=URL, repeatable)."""

    name: str
    kind: str
    help: str
    metavar: str = "VALUE"

    @property
    def flag(self) -> str:
        return "--lossless-" + self.name.replace("_", "-")


OPTIONS = (
    Option("profile", "str", "which servers to compare: a shipped profile or a .toml file (default: tiny)", "NAME"),
    Option("target", "str", "target model folder or hub id, instead of the profile's", "DIR"),
    Option("draft", "str", "draft model folder or hub id, instead of the profile's", "DIR"),
    Option("prompts", "str", "quick, standard, full, long, stress, or a prompt file of your own", "SET"),
    Option("baseline_url", "str", "attach to a running baseline instead of launching one", "URL"),
    Option("variant_url", "pairs", "attach to a running variant; repeat for several", "NAME=URL"),
    Option("max_new_tokens", "int", "cap every prompt's output at this many tokens", "N"),
    Option("epsilon", "float", "near-tie bound in nats, instead of the measured one", "NATS"),
    Option("strict", "flag", "fail near-ties that do not reconverge"),
    Option("resume", "str", "auto: go on with an unfinished run of the same plan; never; or a recorded run", "WHICH"),
    Option("fault", "str", "plant a fault in the variants (embedded engine only), as NAME or NAME:RATE", "NAME[:RATE]"),
    Option("gpus", "str", "cards the servers may use, as in CUDA_VISIBLE_DEVICES", "0,1,…"),
    Option("shard", "str", "only shard I of N of the prompt set; `lossless merge` joins the shards' runs", "I/N"),
    Option("bench", "flag", "measure speed and acceptance too, each server after its verdicts (docs/bench.md)"),
    Option("golden", "str", "folder of the golden snapshots (default: golden)", "DIR"),
    Option("runs", "str", "folder of the recorded runs (default: .lossless/runs)", "DIR"),
)
_BY_NAME = {o.name: o for o in OPTIONS}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one suite run, read and typed. None means: not given."""

    profile: str = "tiny"
    target: str | None = None
    draft: str | None = None
    prompts: str | None = None
    baseline_url: str | None = None
    variant_url: Mapping[str, str] = field(default_factory=dict)
    max_new_tokens: int | None = None
    epsilon: float | None = None
    strict: bool = False
    resume: str = "auto"
    fault: str | None = None
    gpus: str | None = None
    shard: str | None = None
    bench: bool = False
    golden: Path = Path("golden")
    runs: Path = Path(".lossless") / "runs"

    def __post_init__(self) -> None:
        if self.epsilon is not None and not 0 < self.epsilon < 10:
            raise UsageError(f"--lossless-epsilon {self.epsilon}: must be above 0 and below 10 nats")
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise UsageError(f"--lossless-max-new-tokens {self.max_new_tokens}: must be at least 1")
        if self.shard is not None:
            parse_shard(self.shard)

    @classmethod
    def merge(cls, given: Mapping[str, Any], table: Mapping[str, Any], *, root: Path) -> "Options":
        """Command line over ``[tool.lossless]`` over defaults. Relative folders are taken from ``root``.

        Raises:
            UsageError: an unknown key or a value of the wrong kind in the table.
        """
        merged = {key.replace("-", "_"): _from_table(key, value) for key, value in table.items()}
        merged.update({key: value for key, value in given.items() if value is not None and value != {}})
        for name in ("golden", "runs"):
            merged[name] = root / Path(merged.get(name, next(f.default for f in fields(cls) if f.name == name)))
        return cls(**merged)


def _from_table(key: str, value: Any) -> Any:
    name = key.replace("-", "_")
    option = _BY_NAME.get(name)
    if option is None:
        close = get_close_matches(name, _BY_NAME, 1)
        raise UsageError(
            f"[tool.lossless] in pyproject.toml: unknown key {key!r}"
            + (f", did you mean {close[0]!r}?" if close else "")
            + f" Allowed: {', '.join(_BY_NAME)}"
        )
    wanted: dict[str, tuple[type, ...]] = {
        "str": (str,),
        "int": (int,),
        "float": (int, float),
        "flag": (bool,),
        "pairs": (dict,),
    }
    if not isinstance(value, wanted[option.kind]) or (isinstance(value, bool) and option.kind != "flag"):
        raise UsageError(f"[tool.lossless] in pyproject.toml: {key} = {value!r} must be a {option.kind}")
    return value


def parse_pair(text: str) -> tuple[str, str]:
    """``NAME=URL`` of --lossless-variant-url.

    Raises:
        UsageError: not of that form.
    """
    name, equals, url = text.partition("=")
    if not equals or not name or "://" not in url:
        raise UsageError(f"--lossless-variant-url {text!r}: expected NAME=URL, such as nextn=http://127.0.0.1:30001")
    return name, url
