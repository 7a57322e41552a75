"""Long prompts with a hidden fact: that the variant says what the baseline says is seen to by test_parity.py; here is
whether both find the fact. A model that does not find it turns nothing red, a variant that loses it does."""

import pytest

from lossless.analysis import Analysis
from lossless.analysis.context_curve import needle_found
from lossless.record.plan import PLAIN

pytestmark = pytest.mark.lossless


def test_the_variant_finds_what_the_baseline_finds(lossless_run: Analysis, lossless_variant: str) -> None:
    asked = [p for p in lossless_run.prompts.values() if p.expect and lossless_run.inapplicable(p.id) is None]
    if not asked:
        pytest.skip("no prompt of this set has a known answer; --lossless-prompts long has")
    base, variant = lossless_run.baseline, lossless_run.servers[lossless_variant]
    missing = [s.missing(PLAIN, p.id) for p in asked for s in (base, variant) if needle_found(s, p) is None]
    assert not missing, missing[0]
    differ = [p for p in asked if needle_found(base, p) != needle_found(variant, p)]
    assert not differ, "\n".join(
        f"{p.id}: {'only the baseline' if needle_found(base, p) else f'only {lossless_variant}'} finds {p.expect!r}; "
        f"as a pair: {lossless_run.verdict(lossless_variant, p.id).verdict.label}"
        for p in differ
    )
