"""Servers survive the longest prompts at once, bursts, aborted and abandoned requests, and say the same afterwards."""

from collections.abc import Callable

import pytest

from lossless.analysis import Analysis, Judged
from lossless.analysis.survival import Survived
from lossless.record.plan import AFTER, STRESS

pytestmark = pytest.mark.lossless


@pytest.fixture
def survived(lossless_run: Analysis, lossless_server: str) -> Survived:
    found = next((s for s in lossless_run.survival if s.server == lossless_server), None)
    if found is None:
        pytest.skip("no stress test in this set; --lossless-prompts stress or full has one")
    return found


def test_the_server_survives(survived: Survived) -> None:
    if survived.facts is not None and survived.facts.problem is not None:
        pytest.fail(f"{survived.server} died under stress: {survived.facts.problem}", pytrace=False)
    assert survived.ok, survived.detail


@pytest.mark.parametrize("stage", [STRESS, AFTER])
def test_its_answers_are_those_from_before(survived: Survived, stage: str, require: Callable[[Judged], None]) -> None:
    judged = [j for j in survived.judged if j.stage == stage]
    assert judged, survived.detail
    for one in judged:
        require(one)
