"""A prefix-cache hit changes nothing but speed, with and without speculation."""

from collections.abc import Callable

import pytest

from lossless.analysis import Analysis, Judged
from lossless.record.plan import HIT

pytestmark = [pytest.mark.lossless, pytest.mark.lossless_stage(HIT)]
Step = tuple[str, int]


def test_the_variant_says_what_the_baseline_says(
    lossless_run: Analysis, lossless_variant: str, lossless_step: Step, require: Callable[[Judged], None]
) -> None:
    prompt, turn = lossless_step
    require(lossless_run.verdict(lossless_variant, prompt, HIT, turn))


def test_a_hit_says_what_a_miss_says(
    lossless_run: Analysis, lossless_server: str, lossless_step: Step, require: Callable[[Judged], None]
) -> None:
    prompt, turn = lossless_step
    require(lossless_run.within(lossless_server, prompt, HIT, turn))


def test_the_second_answer_comes_from_the_cache(
    lossless_run: Analysis, lossless_server: str, lossless_step: Step
) -> None:
    prompt, turn = lossless_step
    server = lossless_run.servers[lossless_server]
    if server.info.get("disable_radix_cache"):
        pytest.skip(f"{lossless_server} runs with --disable-radix-cache: there are no hits to test")
    said = server.transcript(HIT, prompt, turn)
    assert said is not None, server.missing(HIT, prompt, turn)
    if turn == 1:
        assert said.cached_tokens > 0, f"{prompt}: no token of {said.prompt_tokens} came from the prefix cache"
