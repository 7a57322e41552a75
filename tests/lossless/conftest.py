"""Helpers of the suite's own tests."""

from collections.abc import Callable

import pytest

from lossless.analysis import Analysis, Judged
from lossless.record.plan import PLAIN
from lossless.report.failure import failure_text


@pytest.fixture(autouse=True)
def _applicable(request: pytest.FixtureRequest) -> None:
    """Skip a prompt that these servers cannot take at all (a grammar without a grammar backend)."""
    if "lossless_prompt" in request.fixturenames:
        run: Analysis = request.getfixturevalue("lossless_run")
        reason = run.inapplicable(request.getfixturevalue("lossless_prompt"))
        if reason is not None:
            pytest.skip(reason)


@pytest.fixture
def require(
    lossless_run: Analysis, lossless_strict: bool, record_property: Callable[[str, object], None]
) -> Callable[[Judged], None]:
    """Fail with a readable message unless the verdict shows losslessness; inconclusive is no pass.

    A prompt that a known issue of the SGLang version covers is expected to diverge; that it still does somewhere is
    seen to by test_parameters.py.
    """

    def check(judged: Judged) -> None:
        record_property("lossless_verdict", judged.verdict.label)
        if judged.verdict.passed(strict=lossless_strict):
            return
        known = None
        if judged.stage == PLAIN and judged.variant in lossless_run.manifest.variants:
            known = lossless_run.known_issue(judged.variant, judged.prompt.id)
        if known is not None and judged.verdict.kind == "divergent":
            pytest.xfail(str(known))
        pytest.fail(failure_text(lossless_run, judged), pytrace=False)

    return check
