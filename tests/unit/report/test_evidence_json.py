"""The evidence as JSON: plain values, and a status that is never better than the worst of what it holds."""

import json
from typing import Any

import pytest

from lossless.protocol import Sampling
from lossless.record.plan import LOGPROBS, TOGETHER
from lossless.report.evidence import evidence, status

TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."
FLIPPED = TEXT.replace("three", "seven", 1)


def honest(make_run: Any, **more: Any) -> Any:
    run = make_run({"list-0": Sampling(96), "copy-0": Sampling(96)}, **more)
    for server in ("baseline", "nextn"):
        for prompt in run.prompts:
            run.says(server, prompt, TEXT)
    return run


def outcome(run: Any) -> str:
    analysis = run.analysis()
    return status(analysis, list(analysis.verdicts()))


def test_proven(make_run: Any) -> None:
    data = evidence(honest(make_run).analysis())
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert (data["schema"], data["status"]) == (1, "proven")
    assert data["counts"] == {"nextn": {"identical": 2}}
    assert [(v["prompt"], v["verdict"], v["reason"]) for v in data["verdicts"]] == [
        ("list-0", "identical", None),
        ("copy-0", "identical", None),
    ]
    assert data["broken_rules"] == []
    assert data["versions"] == {"baseline": "0.5.19", "nextn": "0.5.19"}
    assert data["verdicts"][0]["finish"] == {
        "baseline": {"type": "stop", "matched": 1},
        "variant": {"type": "stop", "matched": 1},
    }


def test_numbers_that_are_none_become_null(make_run: Any) -> None:
    data = evidence(honest(make_run, epsilon=None).analysis())
    assert data["epsilon"]["floor"]["value"] is None
    assert data["epsilon"]["value"] is None
    json.dumps(data, allow_nan=False)


def test_one_divergence_is_enough(make_run: Any) -> None:
    run = honest(make_run)
    ids = run.says("nextn", "copy-0", FLIPPED)
    run.scored("copy-0", ids, {8: 3.0}, {8: run.ids(TEXT)[8]})
    assert outcome(run) == "divergent"
    data = evidence(run.analysis())
    bad = next(v for v in data["verdicts"] if v["prompt"] == "copy-0")
    assert (bad["label"], bad["regret"]["largest_at"]) == ("divergent (gap)", 8)
    assert bad["differences"][0]["gap"] == 3.0


def test_missing_evidence_is_never_proven(make_run: Any) -> None:
    run = honest(make_run)
    run.says("nextn", "copy-0", FLIPPED)
    assert outcome(run) == "inconclusive"
    run = make_run(folder="none")
    assert outcome(run) == "inconclusive"
    assert status(run.analysis(), []) == "inconclusive"


def test_a_failed_control_is_never_proven(make_run: Any) -> None:
    run = honest(make_run)
    run.server("nextn", speculative_accept_threshold_single=0.5)
    assert outcome(run) == "inconclusive"


@pytest.mark.parametrize("stage", [LOGPROBS, TOGETHER])
def test_a_rule_broken_outside_the_plain_pass_is_never_proven(make_run: Any, stage: str) -> None:
    """All verdicts are identical, but an answer elsewhere is miscounted or its logprobs are of other tokens."""
    run = honest(make_run)
    ids = run.ids(TEXT)
    rows = [[-0.5, i, None] for i in (ids[1:] + ids[:1] if stage == LOGPROBS else ids)]
    count = len(ids) if stage == LOGPROBS else len(ids) + 1
    run.says("nextn", "copy-0", TEXT, stage, completion_tokens=count, output_token_logprobs=rows)
    data = evidence(run.analysis())
    assert data["counts"] == {"nextn": {"identical": 2}}
    assert data["status"] == "divergent"
    (broken,) = data["broken_rules"]
    assert (broken["variant"], broken["prompt"]) == ("nextn", "copy-0")
    assert broken["reason"] == ("logprobs" if stage == LOGPROBS else "length")


def test_a_rule_that_the_baseline_breaks_too_is_not_speculations(make_run: Any) -> None:
    run = honest(make_run)
    for server in ("baseline", "nextn"):
        run.says(server, "copy-0", TEXT, completion_tokens=99)
    assert outcome(run) == "proven"
