"""Penalties and minimum length do something, and the same with speculation as without.

That both servers say the same under the same parameters is seen to by test_parity.py. Here a parameter without effect
is a finding, and a known issue that no longer shows is one too.
"""

import pytest

from lossless.analysis import Analysis
from lossless.analysis.parameters import changed_parameters, shown_by
from lossless.record.plan import PLAIN

pytestmark = pytest.mark.lossless


@pytest.mark.lossless_groups("params")
def test_the_parameter_has_an_effect(lossless_run: Analysis, lossless_server: str, lossless_prompt: str) -> None:
    prompt = lossless_run.prompts[lossless_prompt]
    if prompt.same_as is None:
        pytest.skip("this is the answer without the parameter")
    server, base = lossless_run.servers[lossless_server], lossless_run.baseline
    wanted = [(base, prompt.same_as), (base, prompt.id), (server, prompt.same_as), (server, prompt.id)]
    said = [s.transcript(PLAIN, p) for s, p in wanted]
    missing = [s.missing(PLAIN, p) for (s, p), t in zip(wanted, said, strict=True) if t is None]
    assert not missing, missing[0]
    plain, changed, own_plain, own_changed = (t.ids for t in said if t is not None)
    if plain == changed:
        if lossless_server != "baseline":
            pytest.skip("the parameter changes nothing on the baseline either; see the baseline's own result")
        names = ", ".join(sorted(changed_parameters(lossless_run, prompt)))
        if (other := shown_by(lossless_run, prompt)) is not None:
            pytest.skip(f"this model answers the same with {names}; {other} shows that it is heeded")
        pytest.fail(
            f"{prompt.id}: the baseline says the same with and without {names}, and on every other prompt too",
            pytrace=False,
        )
    if own_plain == own_changed:
        known = lossless_run.known_issue(lossless_server, prompt.id) if lossless_server != "baseline" else None
        if known is not None:
            pytest.xfail(str(known))
        pytest.fail(
            f"{prompt.id}: {lossless_server} says the same with and without the parameter, the baseline does not: "
            "the parameter is ignored",
            pytrace=False,
        )


def test_known_issues_still_show(lossless_run: Analysis, lossless_variant: str) -> None:
    gone = [
        str(issue)
        for issue, prompts in lossless_run.covered(lossless_variant).items()
        if all(lossless_run.verdict(lossless_variant, p).verdict.passed() for p in prompts)
    ]
    assert not gone, "known issues that no longer show; update analysis/known_issues.toml:\n" + "\n".join(gone)
