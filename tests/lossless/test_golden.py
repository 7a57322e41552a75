"""Today's baseline says what it said when the golden snapshots were recorded.

``pytest -m lossless --snapshot-update`` writes the goldens whose pairs passed, keeps the rest, deletes none.
"""

import pytest

from lossless.analysis import Analysis
from lossless.golden.fixture import GoldenFixture

pytestmark = pytest.mark.lossless


WITHOUT = ("long", "stress")  # sets of their own, which no golden accept length was measured on


def test_the_baseline_says_what_the_golden_says(
    lossless_run: Analysis, lossless_prompt: str, lossless_golden: GoldenFixture
) -> None:
    prompt = lossless_run.prompts[lossless_prompt]
    if prompt.group == "stress" or prompt.depth is not None:
        pytest.skip("prompts of the stress test, and those built to a length, have no goldens")
    lossless_golden.compare(lossless_prompt)


def test_accept_length_is_within_the_golden_band(
    lossless_run: Analysis, lossless_variant: str, lossless_golden: GoldenFixture
) -> None:
    if lossless_run.manifest.prompt_set in WITHOUT:
        pytest.skip(f"no golden accept lengths for the set {lossless_run.manifest.prompt_set}")
    lossless_golden.compare_acceptance(lossless_variant, lossless_run.acceptance(lossless_variant))
