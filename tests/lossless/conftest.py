"""Helpers of the suite's own tests."""

from collections.abc import Callable

import pytest

from lossless.analysis import Analysis, Judged
from lossless.report.failure import failure_text


@pytest.fixture
def require(
    lossless_run: Analysis, lossless_strict: bool, record_property: Callable[[str, object], None]
) -> Callable[[Judged], None]:
    """Fail with a readable message unless the verdict shows losslessness; inconclusive is no pass."""

    def check(judged: Judged) -> None:
        record_property("lossless_verdict", judged.verdict.label)
        if not judged.verdict.passed(strict=lossless_strict):
            pytest.fail(failure_text(lossless_run, judged), pytrace=False)

    return check
