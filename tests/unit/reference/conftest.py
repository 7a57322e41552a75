"""The tiny model, loaded once, and a way to run one request through the engine without a server."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lossless.reference import builtin_path
from lossless.reference.blas import use_one_thread
from lossless.reference.config import read_draft
from lossless.reference.dflash import Dflash
from lossless.reference.drafting import Drafter
from lossless.reference.faults import make_fault
from lossless.reference.generation import Generation, Models
from lossless.reference.nextn import Nextn
from lossless.reference.prefix_cache import PrefixCache
from lossless.reference.requests import Request
from lossless.reference.sampling import SamplingParams
from lossless.reference.target import Target
from lossless.reference.text import Tokenizer
from lossless.reference.weights import Weights

use_one_thread()

GREEDY_CAP = 160
"""max_new_tokens of the ids in the fixture."""


@cache
def weights(part: str) -> Weights:
    return Weights.load(builtin_path() / part)


@cache
def target(dtype: str = "float32") -> Target:
    return Target.load(builtin_path() / "target", dtype, weights("target"))


@cache
def drafter(kind: str | None, dtype: str = "float32", width: int | None = None) -> Drafter | None:
    if kind == "nextn":
        return Nextn(target(dtype), weights("target"), (width or 4) - 1)
    if kind == "dflash":
        draft = builtin_path() / "dflash2"
        return Dflash(target(dtype), read_draft(draft, target().config), weights("dflash2"), width)
    assert kind is None
    return None


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer(builtin_path() / "target")


class Bench:
    """One configuration of the engine; remembers its prefix cache and its fault between requests, as a server does."""

    def __init__(
        self,
        kind: str | None = None,
        fault: str | None = None,
        *,
        dtype: str = "float32",
        cached: bool = False,
        chunk: int = 4096,
        seed: int = 0,
        width: int | None = None,
    ) -> None:
        draft = drafter(kind, dtype, width)
        cache = PrefixCache(96, draft.lag if draft else 0) if cached else None
        self.models = Models(target(dtype), draft, tokenizer(), cache, chunk)
        self.fault = make_fault(fault, seed)
        self.count = 0

    def start(self, ids: list[int], max_new_tokens: int = GREEDY_CAP, **options: Any) -> Generation:
        """A request not computed yet. ``options``: sampling parameters, or ``logprobs=LogprobRequest``."""
        self.count += 1
        logprobs = options.pop("logprobs", None)
        params = SamplingParams(max_new_tokens=max_new_tokens, **options)
        request = Request(f"r{self.count}", tuple(ids), params, max_new_tokens, logprobs)
        return Generation(self.models, request, self.fault)

    def run(self, ids: list[int], max_new_tokens: int = GREEDY_CAP, **options: Any) -> Generation:
        """A finished request."""
        g = self.start(ids, max_new_tokens, **options)
        with np.errstate(all="ignore"):
            while g.finish is None:
                g.step()
        return g


_HONEST: dict[str, Generation] = {}


def honest(kind: str | None, ids: list[int], max_new_tokens: int = GREEDY_CAP, **options: Any) -> Generation:
    """An honest float32 run, computed once; do not change it."""
    key = repr((kind, ids, max_new_tokens, sorted(options.items())))
    if key not in _HONEST:
        _HONEST[key] = Bench(kind).run(ids, max_new_tokens, **options)
    return _HONEST[key]


@pytest.fixture(scope="session", name="honest")
def honest_fixture() -> Callable[..., Generation]:
    """``honest("nextn", ids, 48, stop=("x",))``: an honest run, computed once."""
    return honest


@pytest.fixture(scope="session")
def bench() -> type[Bench]:
    """Make an engine: ``bench("dflash", "accept-unverified:0.5")``."""
    return Bench


@pytest.fixture(scope="session")
def prompts() -> list[dict[str, Any]]:
    """The 96 held-out prompts: category, prompt, ids."""
    rows: list[dict[str, Any]] = json.loads((builtin_path() / "eval_prompts.json").read_text("utf-8"))
    return rows


@pytest.fixture(scope="session")
def training_code() -> Any:
    """What the training code computed (see make_fixture.py)."""
    return np.load(Path(__file__).with_name("data") / "training_code.npz")


@pytest.fixture(scope="session")
def expected(training_code: Any) -> list[list[int]]:
    """The training code's greedy ids of each prompt."""
    ends = np.cumsum(training_code["greedy_lengths"])
    return [part.tolist() for part in np.split(training_code["greedy"].astype(int), ends[:-1])]


@pytest.fixture(scope="session")
def load_target() -> Callable[[str], Target]:
    """The target model in one compute type."""
    return target
