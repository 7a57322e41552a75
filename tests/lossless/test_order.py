"""No state leaks from request to request: the first prompt asked again at the end says the same."""

from collections.abc import Callable

import pytest

from lossless.analysis import Analysis, Judged
from lossless.record.plan import ORDER

pytestmark = [pytest.mark.lossless, pytest.mark.lossless_stage(ORDER)]
Step = tuple[str, int]


def test_the_variant_says_what_the_baseline_says(
    lossless_run: Analysis, lossless_variant: str, lossless_step: Step, require: Callable[[Judged], None]
) -> None:
    prompt, turn = lossless_step
    require(lossless_run.verdict(lossless_variant, prompt, ORDER, turn))


def test_after_others_says_what_alone_says(
    lossless_run: Analysis, lossless_server: str, lossless_step: Step, require: Callable[[Judged], None]
) -> None:
    prompt, turn = lossless_step
    require(lossless_run.within(lossless_server, prompt, ORDER, turn))
