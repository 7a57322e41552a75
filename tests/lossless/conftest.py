"""Helpers of the suite's own tests."""

from collections.abc import Callable

import pytest

from lossless.analysis import Analysis, Judged
from lossless.record.plan import PLAIN
from lossless.report.failure import failure_text
from lossless.report.junit import place_properties, verdict_properties

GOLDEN = "golden"


@pytest.fixture(autouse=True)
def _applicable(request: pytest.FixtureRequest) -> None:
    """Skip a prompt that these servers cannot take at all (a grammar without a grammar backend)."""
    if "lossless_prompt" in request.fixturenames:
        run: Analysis = request.getfixturevalue("lossless_run")
        reason = run.inapplicable(request.getfixturevalue("lossless_prompt"))
        if reason is not None:
            pytest.skip(reason)


@pytest.fixture(autouse=True)
def _place(request: pytest.FixtureRequest) -> None:
    """Say in the JUnit XML which prompt, server and stage a test is about."""
    params = getattr(getattr(request.node, "callspec", None), "params", {})
    if "lossless_run" not in request.fixturenames:
        return
    marker = request.node.get_closest_marker("lossless_stage")
    stage = GOLDEN if "lossless_golden" in request.fixturenames else marker.args[0] if marker else PLAIN
    request.node.user_properties += place_properties(
        request.getfixturevalue("lossless_run"),
        prompt=params.get("lossless_prompt") or next(iter(params.get("lossless_step", ())), None),
        server=params.get("lossless_variant") or params.get("lossless_server"),
        stage=stage,
    )


@pytest.fixture
def require(request: pytest.FixtureRequest, lossless_run: Analysis, lossless_strict: bool) -> Callable[[Judged], None]:
    """Fail with a readable message unless the verdict shows losslessness; inconclusive is no pass.

    A prompt that a known issue of the SGLang version covers is expected to diverge; that it still does somewhere is
    seen to by test_parameters.py.
    """

    def check(judged: Judged) -> None:
        request.node.user_properties += verdict_properties(lossless_run, judged)
        if judged.verdict.passed(strict=lossless_strict):
            return
        known = None
        if judged.stage == PLAIN and judged.variant in lossless_run.manifest.variants:
            known = lossless_run.known_issue(judged.variant, judged.prompt.id)
        if known is not None and judged.verdict.kind == "divergent":
            pytest.xfail(str(known))
        pytest.fail(failure_text(lossless_run, judged), pytrace=False)

    return check
