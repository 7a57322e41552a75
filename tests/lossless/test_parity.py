"""Greedy decoding with speculation says what greedy decoding without it says, prompt by prompt."""

from collections.abc import Callable

import pytest

from lossless.analysis import Analysis, Judged

pytestmark = pytest.mark.lossless


def test_the_variant_says_what_the_baseline_says(
    lossless_run: Analysis, lossless_variant: str, lossless_prompt: str, require: Callable[[Judged], None]
) -> None:
    require(lossless_run.verdict(lossless_variant, lossless_prompt))
