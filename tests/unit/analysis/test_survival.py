"""The stress test as a result of its own: what is red, and how it is said."""

from dataclasses import replace
from typing import Any

import pytest

from lossless.protocol import Sampling
from lossless.record.plan import AFTER, PLAIN, STRESS
from lossless.record.survival import Survival
from lossless.report.evidence import evidence, status
from lossless.report.evidence_schema import evidence_schema

TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."
FLIPPED = TEXT.replace("three", "seven", 1)
WELL = Survival(
    longest_tokens=3500,
    pair=2,
    burst=16,
    aborts=20,
    aborted=20,
    disconnects=20,
    retractions=3,
    healthy=True,
    flushed=True,
)


@pytest.fixture
def run(make_run: Any) -> Any:
    """Both servers say the same before, under and after stress."""
    found = make_run({"list-0": Sampling(96)}, groups={"list-0": "stress"})
    for server in ("baseline", "nextn"):
        for stage in (PLAIN, STRESS, AFTER):
            found.says(server, "list-0", TEXT, stage)
        survives(found, server, WELL)
    return found


def survives(run: Any, server: str, survival: Survival | None) -> None:
    run.store.write_server(replace(run.store.server(server), survival=survival))


def outcome(run: Any) -> str:
    analysis = run.analysis()
    return status(analysis, list(analysis.verdicts()))


def result(run: Any, server: str = "nextn") -> Any:
    return next(s for s in run.analysis().survival if s.server == server)


def test_an_honest_run(run: Any) -> None:
    assert outcome(run) == "proven"
    assert [(s.server, s.ok) for s in run.analysis().survival] == [("baseline", True), ("nextn", True)]
    assert result(run).detail == (
        "survived 2 x 3,500 tokens at once, 16 at once, 40 cut off (20 aborts, 20 disconnects), 3 retractions; "
        "same answers as before (1 of 1)"
    )


def test_a_set_without_stress_has_no_result(make_run: Any) -> None:
    assert make_run().analysis().survival == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"problem": "nextn ended (exit status 1)\n  the log's last lines: …"},
            "DIED: nextn ended (exit status 1); after",
        ),
        ({"healthy": False}, "does not call itself well"),
        ({"flushed": False}, "requests are left in it"),
        ({"failed": ("HTTP 500",)}, "HTTP 500"),
        ({"leaks": ("KV pool tokens: 2 before, 1 after",)}, "KV pool tokens"),
        ({"aborted": 0}, "none of 20 requests ended"),
    ],
)
@pytest.mark.parametrize("server", ["baseline", "nextn"])
def test_each_trouble_is_red_and_never_proven(run: Any, server: str, change: dict[str, Any], says: str) -> None:
    survives(run, server, replace(WELL, **change))
    assert not result(run, server).ok
    assert says in result(run, server).detail
    assert outcome(run) == "inconclusive"


def test_a_stress_test_that_never_ran_is_no_pass(run: Any) -> None:
    survives(run, "nextn", None)
    assert "never run" in result(run).detail
    assert outcome(run) == "inconclusive"


def test_no_answer_afterwards_is_no_pass(make_run: Any) -> None:
    run = make_run({"list-0": Sampling(96)}, groups={"list-0": "stress"})
    for server in ("baseline", "nextn"):
        run.says(server, "list-0", TEXT)
        survives(run, server, WELL)
    assert "no answer from after the stress" in result(run).detail


@pytest.mark.parametrize("stage", [STRESS, AFTER])
def test_another_answer_than_before_is_divergent(run: Any, stage: str) -> None:
    ids = run.says("nextn", "list-0", FLIPPED, stage, turn=1)
    run.scored("list-0", ids, {8: 3.0}, {8: run.ids(TEXT)[8]})
    assert not result(run).ok
    assert "divergent (gap)" in result(run).detail
    assert outcome(run) == "divergent"


def test_a_near_tie_afterwards_passes_and_is_said(run: Any) -> None:
    ids = run.says("nextn", "list-0", FLIPPED, AFTER, turn=1)
    run.scored("list-0", ids, {8: 0.0625}, {8: run.ids(TEXT)[8]})
    assert result(run).ok
    assert "answers as before: 1 identical, 1 near-tie (reconverged)" in result(run).detail
    assert outcome(run) == "proven"


def test_an_answer_that_failed_afterwards_is_no_pass(run: Any) -> None:
    run.fails("nextn", "list-0", "HTTP 500", AFTER, turn=1)
    assert not result(run).ok
    assert outcome(run) == "inconclusive"


def test_the_evidence_holds_it(run: Any) -> None:
    (base, nextn) = evidence(run.analysis())["survival"]
    assert (base["server"], nextn["server"], nextn["ok"]) == ("baseline", "nextn", True)
    assert (nextn["retractions"], nextn["problem"]) == (3, None)
    assert nextn["answers"] == {"stress": {"identical": 1}, "after": {"identical": 1}}
    assert set(evidence_schema()["$defs"]["SurvivalEntry"]["properties"]) == set(nextn)


def test_abandoned_requests_that_ran_on_are_said_and_are_no_failure(run: Any) -> None:
    survives(run, "nextn", replace(WELL, ran_on=6, drain_s=42.4))
    assert result(run).ok
    assert "6 abandoned requests ran on (sgl-project/sglang #36333, idle after 42 s)" in result(run).detail
