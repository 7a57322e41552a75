"""Asking for logprobs changes no token, and the variant still says what the baseline says.

Verdicts come from answers without logprobs, because asking may change the code path; this is the other path. That the
logprobs belong to the tokens is seen to by test_rules.py.
"""

from collections.abc import Callable

import pytest

from lossless.analysis import Analysis, Judged
from lossless.record.plan import LOGPROBS

pytestmark = [pytest.mark.lossless, pytest.mark.lossless_stage(LOGPROBS)]
Step = tuple[str, int]


def test_the_variant_says_what_the_baseline_says(
    lossless_run: Analysis, lossless_variant: str, lossless_step: Step, require: Callable[[Judged], None]
) -> None:
    require(lossless_run.verdict(lossless_variant, lossless_step[0], LOGPROBS))
