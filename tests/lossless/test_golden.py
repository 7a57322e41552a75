"""Today's baseline says what it said when the golden snapshots were recorded.

``pytest -m lossless --snapshot-update`` writes the goldens whose pairs passed, keeps the rest, deletes none.
"""

import pytest

from lossless.analysis import Analysis
from lossless.golden.fixture import GoldenFixture
from lossless.golden.plan import WITHOUT_ACCEPTANCE, has_golden

pytestmark = pytest.mark.lossless


def test_the_baseline_says_what_the_golden_says(
    lossless_run: Analysis, lossless_prompt: str, lossless_golden: GoldenFixture
) -> None:
    if not has_golden(lossless_run.prompts[lossless_prompt]):
        pytest.skip("prompts of the stress test, and those built to a length, have no goldens")
    lossless_golden.compare(lossless_prompt)


def test_accept_length_is_within_the_golden_band(
    lossless_run: Analysis, lossless_variant: str, lossless_golden: GoldenFixture
) -> None:
    if lossless_run.manifest.prompt_set in WITHOUT_ACCEPTANCE:
        pytest.skip(f"no golden accept lengths for the set {lossless_run.manifest.prompt_set}")
    lossless_golden.compare_acceptance(lossless_variant, lossless_run.acceptance(lossless_variant))
