"""Several requests at once say what each says alone, with and without speculation."""

from collections.abc import Callable

import pytest

from lossless.analysis import Analysis, Judged
from lossless.record.plan import TOGETHER

pytestmark = [pytest.mark.lossless, pytest.mark.lossless_stage(TOGETHER)]
Step = tuple[str, int]


def test_the_variant_says_what_the_baseline_says(
    lossless_run: Analysis, lossless_variant: str, lossless_step: Step, require: Callable[[Judged], None]
) -> None:
    require(lossless_run.verdict(lossless_variant, lossless_step[0], TOGETHER))


def test_at_once_says_what_alone_says(
    lossless_run: Analysis, lossless_server: str, lossless_step: Step, require: Callable[[Judged], None]
) -> None:
    require(lossless_run.within(lossless_server, lossless_step[0], TOGETHER))
