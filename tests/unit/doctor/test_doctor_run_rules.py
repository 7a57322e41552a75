"""Each rule over a recorded run, in both directions, and the sentence they come to."""

from collections.abc import Callable
from typing import Any

import pytest
from doctor_cases import case, length, measured, reference

from lossless.analysis import Acceptance
from lossless.doctor import Case, Finding, Measured, diagnose, worst_outcome
from lossless.doctor.case import LengthBin
from lossless.doctor.run_rules import (
    context_length,
    draft_head,
    lossless_output,
    position_rates,
    positions,
    quantization,
    speculation,
    temperature,
)
from lossless.doctor.task_rules import task_mix, tasks
from lossless.doctor.tasks import below, by_kind, expected, kind_of

Rule = Callable[[Case], Finding]
NOTHING = {"all": Acceptance(0, 0, 0, 0)}
SILENT = {"all": Acceptance(0, 0, 0, 9)}
SOME_SILENT = {"all": Acceptance(4, 400, 100, 2)}
GOOD = (20, 10, 10, 10, 10, 10, 10, 60)
CLIFF = (20, 10, 60)  # the empty end is left out


def bins(*values: tuple[int, float]) -> tuple[LengthBin, ...]:
    return tuple(LengthBin(tokens, tokens, value, 100) for tokens, value in values)


CASES: list[tuple[str, Rule, dict[str, Any], str, str]] = [
    ("on", speculation, {}, "ok", "100 verify steps in 4 answers"),
    ("off", speculation, {"categories": SILENT}, "wrong", "silently off: no answer of 9"),
    ("off-unnamed", speculation, {"categories": SILENT}, "wrong", "names no speculative_algorithm"),
    ("fallback", speculation, {"categories": SOME_SILENT}, "suspicious", "2 answers of 2 tokens or more"),
    ("simulated", speculation, {"simulated": "3"}, "wrong", "SGLANG_SIMULATE_ACC_LEN=3"),
    ("died", speculation, {"categories": NOTHING, "problem": "it ended"}, "unknown", "it ended"),
    ("same-output", lossless_output, {}, "ok", "none of 9"),
    ("other-output", lossless_output, {"differing": 7}, "wrong", "7 of 9 answers are not the target's own"),
    ("not-judged", lossless_output, {"judged": 0}, "unknown", "no answer could be compared"),
    ("accepted", draft_head, {}, "ok", "3.96 tokens a verify step"),
    ("never-accepted", draft_head, {"categories": {"all": length(1.06)}}, "wrong", "no draft token is accepted"),
    ("slope", positions, {"histogram": GOOD}, "ok", "86%, 92%"),
    ("cliff", positions, {"histogram": CLIFF}, "wrong", "draft token 3 is accepted in 0% of 60 steps"),
    ("no-depth", positions, {"histogram": CLIFF, "depth": None}, "ok", "78%, 86%"),
    ("few-steps", positions, {"histogram": (2, 1, 9)}, "ok", "83%, 90%"),
    ("no-histogram", positions, {}, "unknown", "no accept histogram"),
    ("short-only", context_length, {"longest_prompt": 700}, "ok", "up to 700 tokens only"),
    ("field-fall", context_length, {"by_length": bins((900, 4.7), (131072, 2.0))}, "ok", "4.74 became 2.91"),
    ("early-fall", context_length, {"by_length": bins((900, 4.7), (8000, 2.0))}, "suspicious", "falls by more than"),
    ("dense", quantization, {}, "ok", "names no quantization"),
    ("int4", quantization, {"quantization": "compressed-tensors"}, "ok", "2.50 to 2.56"),
    ("greedy", temperature, {"temperatures": (0.0,)}, "ok", "greedy"),
    ("sampled", temperature, {"temperatures": (0.0, 0.7)}, "suspicious", "temperature 0.7"),
]


@pytest.mark.parametrize(("rule", "run", "status", "said"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_rule_in_both_directions(rule: Rule, run: dict[str, Any], status: str, said: str) -> None:
    found = rule(case(measured(**run)))
    assert (found.status, said in found.detail) == (status, True), found.detail
    assert found.remedy or status in ("ok", "unknown")


@pytest.mark.parametrize(
    "rule", [speculation, lossless_output, draft_head, positions, tasks, task_mix, context_length, temperature]
)
def test_without_a_run_nothing_is_known(rule: Rule) -> None:
    assert rule(case()).status == "unknown"


def test_an_algorithm_that_the_server_names_is_not_doubted() -> None:
    found = speculation(case(measured(categories=SILENT, algorithm="DFLASH")))
    assert "names no" not in found.detail


def test_a_fall_that_golden_lengths_know_is_no_suspicion() -> None:
    run = measured({"code": 4.0}, by_length=bins((900, 4.7), (8000, 2.0)), reference=reference(code=4.0))
    assert context_length(case(run)).status == "ok"


def test_position_rates_count_the_steps_that_got_there() -> None:
    assert position_rates((1, 1, 2)) == [(0.75, 4), (2 / 3, 3)]
    assert position_rates((1, 1), 3) == [(0.5, 2), (0.0, 1), (0.0, 0)]


# ------------------------------------------------------------------------------------------------ kinds of tasks
def test_categories_have_kinds() -> None:
    names = ("copy", "extraction", "code", "summary", "chinese-writing", "story", "logic")
    assert [kind_of(name) for name in names] == [
        "copying", "copying", "code", "summary", "creative writing", "prose", None
    ]  # fmt: skip
    kinds = by_kind({"copy": length(6.0), "extraction": length(4.0), "logic": length(3.0), "all": length(4.3)})
    assert list(kinds) == ["copying"]
    assert kinds["copying"].accept_length == 5.0


def test_the_mean_of_a_mix_pools_tokens_over_steps() -> None:
    now = {"code": length(5.0), "prose": length(2.0), "all": length(3.5)}
    assert expected(now, {"code": 5.0, "prose": 2.0}) == pytest.approx(700 / 200)
    assert expected(now, {"prose": 2.0}) is None  # not half of the tokens


def test_a_band_is_as_wide_as_the_smaller_sample() -> None:
    wanted = reference(code=4.0).categories
    assert below({"code": length(2.9)}, wanted) == {"code": (2.9, pytest.approx(3.0))}
    assert below({"code": length(3.1)}, wanted) == {}
    assert below({"code": length(2.9, steps=9)}, wanted) == {}


def test_inside_the_golden_bands_the_draft_is_fine() -> None:
    run = measured({"code": 4.9, "story": 2.5}, reference=reference(code=5.0, story=2.4, all=3.2))
    found = diagnose(case(run))
    assert (found.outcome, found.conclusion[:18]) == ("fine", "the draft is fine:")


def test_below_the_golden_bands_something_is_wrong() -> None:
    run = measured({"code": 2.5, "story": 1.4, "list": 2.0}, reference=reference(code=5.0, story=2.4, list=2.0))
    found = diagnose(case(run))
    assert found.outcome == "wrong"
    assert "2 of 3 categories are below their band: code 2.50 (was 5.00, at least 3.75)" in found.conclusion
    assert "tasks of all kinds fell" in found.conclusion
    one = tasks(case(measured({"code": 4.9, "story": 1.4, "list": 2.0}, reference=run.reference)))
    assert (one.status, "the others hold" in one.detail) == ("wrong", True)


def test_a_hard_mix_explains_a_low_mean() -> None:
    """The case from the field: 2.4 on forced prose against a quoted 4.74 over an easier set."""
    found = diagnose(case(measured({"story": 2.4})))
    assert found.outcome == "fine"
    assert found.conclusion.startswith("the draft is fine, the task mix explains it: mean 2.40, and this mix of tasks")


def test_a_hard_mix_explains_a_low_mean_against_golden_lengths_too() -> None:
    golden = reference(code=5.0, story=2.4, all=4.0)
    assert diagnose(case(measured({"story": 2.4}, reference=golden))).conclusion.startswith(
        "the draft is fine, the task mix explains it"
    )
    doubtful = diagnose(case(measured({"story": 1.9}, reference=golden)))
    assert doubtful.outcome == "unclear"  # inside the band, but lower than the mix explains
    assert "suspicious: task-mix: mean 1.90, where this mix of tasks should give 2.40" in doubtful.conclusion


def test_categories_that_are_low_together_are_wrong_though_each_is_inside_its_own_band() -> None:
    few = {name: length(3.0, steps=9) for name in ("code", "story", "list", "logic")}
    found = diagnose(case(measured(few, reference=reference(code=5.0, story=5.0, list=5.0, logic=5.0))))
    assert found.conclusion.startswith("first thing wrong: task-mix: mean 3.00, where this mix of tasks should give 5")
    assert tasks(case(measured(few, reference=reference(code=5.0)))).status == "ok"


def test_code_as_low_as_prose_is_suspicious() -> None:
    found = diagnose(case(measured({"code": 2.4, "story": 2.4})))
    assert found.outcome == "unclear"
    assert "suspicious: tasks: code: well below" in found.conclusion


@pytest.mark.parametrize(
    "run",
    [
        measured({"code": 5.0}, width=5),
        measured({"logic": 5.0}),
        measured({"code": 5.0}, reference=reference(other=3.0)),
    ],
    ids=["another width", "no known kind", "a reference without these categories"],
)
def test_without_a_figure_to_compare_with_nothing_is_told(run: Measured) -> None:
    found = diagnose(case(run))
    assert (tasks(case(run)).status, found.outcome) == ("unknown", "unclear")
    assert found.conclusion.startswith("cannot tell: nothing is wrong in what could be looked at. Missing: ")


def test_a_chain_has_figures_of_its_own() -> None:
    assert tasks(case(measured({"code": 3.7}, width=4), "NEXTN")).status == "ok"
    assert tasks(case(measured({"code": 3.7}, width=4), "EAGLE3")).status == "unknown"


def test_no_evidence_at_all_is_never_fine() -> None:
    found = diagnose(case())
    assert (found.outcome, found.conclusion) == (
        "unclear",
        "cannot tell: the files could not be looked at. Missing: a recorded run with accept lengths.",
    )
    assert found.next == "record a run: pytest -m lossless --lossless-profile NAME"


def test_the_worst_outcome_counts() -> None:
    fine, unclear, wrong = (
        diagnose(case(run)) for run in (measured({"story": 2.4}), None, measured(categories=SILENT))
    )
    assert worst_outcome([fine, unclear, wrong]) == "wrong"
    assert worst_outcome([fine, unclear]) == "unclear"
    assert worst_outcome([fine]) == "fine"
    assert worst_outcome([]) == "unclear"
