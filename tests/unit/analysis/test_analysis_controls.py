"""Controls, and what a failed one does to the verdicts that depend on it."""

from typing import Any

import pytest

from lossless.analysis import Analysis
from lossless.protocol import Sampling
from lossless.record.plan import AGAIN, LOGPROBS, PLAIN
from lossless.record.store import Record
from lossless.verdict import Kind, Reason

TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."


@pytest.fixture
def honest(make_run: Any) -> Any:
    """Two prompts, both servers say the same."""
    run = make_run({"list-0": Sampling(96), "copy-0": Sampling(96)})
    for server in ("baseline", "nextn"):
        for prompt in run.prompts:
            run.says(server, prompt, TEXT)
    return run


def control(analysis: Analysis, name: str) -> Any:
    return next(c for c in analysis.controls if c.name == name)


def outcomes(analysis: Analysis) -> set[tuple[Kind, Reason | None]]:
    return {(j.verdict.kind, j.verdict.reason) for j in analysis.verdicts()}


def test_an_honest_run_holds(honest: Any) -> None:
    analysis = honest.analysis()
    assert [c.name for c in analysis.controls] == ["repeatable", "noise floor", "no speculation", "pair", "speculation"]
    assert all(c.ok for c in analysis.controls)
    assert outcomes(analysis) == {(Kind.IDENTICAL, None)}


def test_a_baseline_that_speculates_is_no_baseline(honest: Any) -> None:
    honest.says("baseline", "copy-0", TEXT, spec_verify_ct=3)
    analysis = honest.analysis()
    assert control(analysis, "no speculation").reason is Reason.NOT_A_PAIR
    assert outcomes(analysis) == {(Kind.INCONCLUSIVE, Reason.NOT_A_PAIR)}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dtype": "float16"}, "dtype: baseline 'bfloat16', nextn 'float16'"),
        ({"speculative_algorithm": None}, "the variant runs without speculation"),
        ({"speculative_accept_threshold_single": 0.9}, "accepts tokens that the target would not choose"),
        ({"internal_states": [{"speculative_accept_threshold_acc": 0.5}]}, "speculative_accept_threshold_acc is 0.5"),
        ({"preferred_sampling_params": {"temperature": 1}}, "merged under every request"),
    ],
)
def test_servers_that_are_no_pair(honest: Any, change: dict[str, Any], says: str) -> None:
    honest.server("nextn", **change)
    analysis = honest.analysis()
    found = control(analysis, "pair")
    assert (found.ok, found.reason) == (False, Reason.NOT_A_PAIR)
    assert says in found.detail
    assert outcomes(analysis) == {(Kind.INCONCLUSIVE, Reason.NOT_A_PAIR)}


def test_another_algorithm_than_asked_for(make_run: Any) -> None:
    run = make_run(algorithms={"nextn": "DFLASH"})
    for server in ("baseline", "nextn"):
        run.says(server, "list-0", TEXT)
    found = control(run.analysis(), "pair")
    assert "the profile asks for DFLASH" in found.detail


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"spec_verify_ct": None}, "speculation never ran"),
        ({"spec_verify_ct": 0}, "speculation never ran"),
        ({"spec_verify_ct": "all"}, "no draft token is accepted"),
    ],
)
def test_speculation_that_is_off_proves_nothing(honest: Any, change: dict[str, Any], says: str) -> None:
    ids = honest.ids(TEXT)
    if change["spec_verify_ct"] == "all":
        change = {"spec_verify_ct": len(ids) - 1}  # a step a token, after the prefill's
    for prompt in honest.prompts:
        honest.says("nextn", prompt, TEXT, **change)
    analysis = honest.analysis()
    assert says in control(analysis, "speculation").detail
    assert outcomes(analysis) == {(Kind.INCONCLUSIVE, Reason.NO_SPECULATION)}


def test_one_silent_answer_is_enough(honest: Any) -> None:
    honest.says("nextn", "copy-0", TEXT, spec_verify_ct=None)
    found = control(honest.analysis(), "speculation")
    assert not found.ok
    assert "1 answers report none" in found.detail


def test_a_single_token_needs_no_verify_step(make_run: Any) -> None:
    run = make_run({"list-0": Sampling(96), "cap-1": Sampling(1)}, groups={"cap-1": "cap"})
    for server in ("baseline", "nextn"):
        run.says(server, "list-0", TEXT)
        run.says(server, "cap-1", run.ids(TEXT)[:1])
    assert control(run.analysis(), "speculation").ok


def test_a_baseline_that_disagrees_with_itself_spoils_that_prompt_only(honest: Any) -> None:
    honest.says("baseline", "copy-0", TEXT + " Not quite.", AGAIN)
    analysis = honest.analysis()
    found = control(analysis, "repeatable")
    assert (found.ok, found.failure) == (False, None)
    assert found.detail == "the baseline's two runs agree on 1 of 2 prompts; not on copy-0"
    assert analysis.verdict("nextn", "copy-0").verdict.reason is Reason.NOT_REPEATABLE
    assert analysis.verdict("nextn", "list-0").verdict.kind is Kind.IDENTICAL


def test_without_a_second_run_nothing_passes(make_run: Any) -> None:
    """An answer with logprobs that differs from the plain one is no second run: logprobs may be the cause."""
    run = make_run()
    run.says("nextn", "list-0", TEXT)
    run.says("baseline", "list-0", TEXT + " And more.", LOGPROBS)
    run.store.append("baseline", Record(PLAIN, "list-0", answer=run.body(run.ids(TEXT), "list-0")))
    analysis = run.analysis()
    assert control(analysis, "repeatable").detail == "the baseline was not run twice"
    assert outcomes(analysis) == {(Kind.INCONCLUSIVE, Reason.NOT_REPEATABLE)}


def test_the_same_answer_with_logprobs_is_a_second_run(make_run: Any) -> None:
    run = make_run()
    run.says("nextn", "list-0", TEXT)
    run.says("baseline", "list-0", TEXT, LOGPROBS)
    run.store.append("baseline", Record(PLAIN, "list-0", answer=run.body(run.ids(TEXT), "list-0")))
    analysis = run.analysis()
    assert control(analysis, "repeatable").detail == "the baseline's two runs agree on 1 of 1 prompts"
    assert Reason.NOT_REPEATABLE not in {j.verdict.reason for j in analysis.verdicts()}


def test_a_missing_second_run_of_one_prompt_spoils_that_prompt(honest: Any) -> None:
    kept = [r for r in honest.store.records("baseline") if (r.stage, r.prompt) != (AGAIN, "copy-0")]
    honest.store.forget("baseline")
    honest.server("baseline")
    for record in kept:
        honest.store.append("baseline", record)
    verdict = honest.analysis().verdict("nextn", "copy-0").verdict
    assert (verdict.kind, verdict.reason) == (Kind.INCONCLUSIVE, Reason.NOT_REPEATABLE)
    assert "(second run)" in verdict.detail


def test_a_server_that_was_never_recorded(make_run: Any) -> None:
    run = make_run(variants=("nextn", "dflash"))
    run.says("baseline", "list-0", TEXT)
    run.says("nextn", "list-0", TEXT)
    run.store.forget("dflash")
    analysis = run.analysis()
    missing = analysis.verdict("dflash", "list-0").verdict
    assert (missing.kind, missing.reason) == (Kind.INCONCLUSIVE, Reason.MISSING)
    assert "dflash: it was never started" in missing.detail
    assert analysis.verdict("nextn", "list-0").verdict.kind is Kind.IDENTICAL


def test_no_noise_floor_is_a_failed_control_but_equal_is_equal(make_run: Any) -> None:
    run = make_run(epsilon=None)
    for server in ("baseline", "nextn"):
        run.says(server, "list-0", TEXT)
    analysis = run.analysis()
    found = control(analysis, "noise floor")
    assert not found.ok
    assert "measured on 0 tokens" in found.detail
    assert outcomes(analysis) == {(Kind.IDENTICAL, None)}


def test_bounds_of_the_profile_are_used(make_run: Any) -> None:
    run = make_run({f"list-{k}": Sampling(400) for k in range(15)}, epsilon=None, epsilon_bounds={"k": 3.0, "cap": 0.2})
    for prompt in run.prompts:
        ids = run.ids(TEXT)
        lp = [[-1.0 + 1 / 16, i, None] for i in ids]
        run.says("baseline", prompt, TEXT, LOGPROBS, output_token_logprobs=lp)
        run.scored(prompt, ids)
    analysis = run.analysis()
    assert analysis.noise.value == 1 / 16
    assert analysis.noise.tokens == 15 * len(run.ids(TEXT))
    assert (analysis.epsilon.k, analysis.epsilon.cap, analysis.epsilon.value) == (3.0, 0.2, 3 / 16)
    assert run.analysis(epsilon=0.3).epsilon.value == 0.3
