"""The detection table keeps its promises: a short version of it, run again, and the committed one, checked.

The whole table is made by ``python -m benchmarks.detection --full`` (docs/detection.md).
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.detection import epsilon as trial
from benchmarks.detection.faults import VARIANT, row, run_fault
from benchmarks.detection.noise import pairs_of
from benchmarks.detection.plan import FAULTS, FaultCase, Prompts, noises
from benchmarks.detection.recording import Workshop, union
from benchmarks.detection.rules import upper_95
from benchmarks.detection.table import MANY

from lossless.analysis import Analysis
from lossless.reference.faults import all_faults
from lossless.report.evidence import status
from lossless.verdict import Kind

pytestmark = pytest.mark.slow  # a minute and a half of decoding; CI has a step of its own for it

TABLE = Path(__file__).parents[2] / "docs" / "detection.json"
CASES = tuple(c.shortened() for c in FAULTS if c.short)
NOISES = ("nextn-3", "order-1", "noise-1")


@dataclass(frozen=True)
class Shop:
    """The short version's baseline, recorded once."""

    workshop: Workshop
    prompts: Prompts
    base: Analysis


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    workshop, prompts = Workshop(tmp_path_factory.mktemp("detection")), Prompts()
    core = replace(FAULTS[0], staged=True)
    chosen = union([prompts.fault(core), *(prompts.fault(c) for c in CASES)])
    return Shop(workshop, prompts, workshop.record("base", chosen, {}))


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return data


def committed(table: dict[str, Any], case: FaultCase) -> dict[str, Any]:
    side = "baseline" if case.on_baseline else "variant"
    found = [r for r in table["faults"] if (r["name"], r["rate"], r["planted_in"]) == (case.fault, case.rate, side)]
    assert len(found) == 1, f"{case.argument} has {len(found)} rows in {TABLE.name}"
    return found[0]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.argument)
def test_a_fault_of_the_table_is_still_detected(case: FaultCase, shop: Shop, table: dict[str, Any]) -> None:
    was = committed(table, case)
    now = row(case, run_fault(case, shop.workshop, shop.prompts, shop.base.store))
    assert was["detected"], "the short version holds only what is detected"
    assert now["detected"], now
    assert (now["how"], now["reason"]) == (was["how"], was["reason"])


@pytest.mark.parametrize("name", NOISES)
def test_honest_noise_is_not_called_divergent(name: str, shop: Shop) -> None:
    case = next(c for c in noises(shop.base.noise.value) if c.name == name)
    analysis = shop.workshop.record(
        name,
        shop.prompts.fault(FAULTS[0]),
        {VARIANT: ("--dtype", "bfloat16", *case.options)},
        algorithms={VARIANT: case.algorithm},
        seeded_from=shop.base.store,
    )
    pairs = pairs_of(analysis, case.kind)
    assert len(pairs) == len(FAULTS[0].core)
    wrong = [(p.prompt, p.pair.ours.label, p.pair.ours.detail) for p in pairs if not p.pair.ours.passed()]
    assert wrong == []
    assert status(analysis, list(analysis.verdicts())) == "proven"


@pytest.mark.parametrize("outliers", [0, 1, 2, 3])
def test_outliers_do_not_widen_epsilon(outliers: int, shop: Shop) -> None:
    rows = trial.bad_floors(trial.samples(shop.base))
    measured, found = rows[0], rows[outliers]
    if outliers < 3:
        assert found["problem"] is None
        assert measured["epsilon"] <= found["epsilon"] <= 1.5 * max(measured["epsilon"], 0.1)
    else:
        assert "above the cap" in found["problem"]


def test_too_few_tokens_give_no_epsilon(shop: Shop) -> None:
    few = {r["case"]: r["problem"] for r in trial.bad_floors(trial.samples(shop.base))}
    assert "150 tokens" in few["150 tokens"]
    assert few["no tokens"] is not None


def test_a_baseline_whose_logits_jump_proves_nothing(shop: Shop) -> None:
    """Its floor lies above the cap: a wrong baseline must not pass for a noisy one."""
    workshop = replace(shop.workshop, extra=("--logit-noise", "6"))
    chosen = shop.prompts.fault(FAULTS[0])
    # With logprobs, for the floor, but not at once: "unicode" is such a group.
    base = workshop.record("jumping-base", tuple(replace(p, group="unicode") for p in chosen), {})
    variant = {VARIANT: ("--dtype", "bfloat16", *next(c for c in noises(0.0) if c.name == "nextn-3").options)}
    analysis = workshop.record("jumping", chosen, variant, algorithms={VARIANT: "NEXTN"}, seeded_from=base.store)
    assert analysis.epsilon.problem is not None
    assert "above the cap" in analysis.epsilon.problem
    differing = [j.verdict.kind for j in analysis.verdicts() if j.verdict.differences]
    assert differing
    assert set(differing) <= {Kind.INCONCLUSIVE, Kind.DIVERGENT}
    assert status(analysis, list(analysis.verdicts())) != "proven"


def test_the_table_holds_every_fault(table: dict[str, Any]) -> None:
    assert {r["name"] for r in table["faults"]} == {spec.name for spec in all_faults()}
    assert len(table["faults"]) == len(FAULTS)
    for case in FAULTS:
        assert committed(table, case)["trials"] == len(case.algorithms) * len(case.seeds)


def test_what_the_table_misses_says_why(table: dict[str, Any]) -> None:
    for r in table["faults"]:
        assert r["detected"] == (r["caught"] == r["trials"])
        assert r["detected"] or r["why"]


def test_the_table_has_no_false_alarm(table: dict[str, Any]) -> None:
    noise = table["noise"]
    assert noise["pairs"] >= 2000
    assert noise["false_alarms"] == 0
    assert noise["upper_95"] == pytest.approx(upper_95(0, noise["pairs"]))
    assert noise["with_recorded_gpu"]["false_alarms"] == 0
    assert sum(c["pairs"] for c in noise["kinds"].values()) == noise["pairs"]


def test_our_rule_is_ahead_of_the_others_in_the_table(table: dict[str, Any]) -> None:
    """Every other rule has more false alarms, or notices no more above epsilon and no more of many errors under it."""
    rules = table["noise"]["with_recorded_gpu"]["rules"]
    panels, epsilon = table["sensitivity"]["panels"], table["sensitivity"]["epsilon"]
    above = [b for b in panels["size"] if b["low"] >= epsilon] + panels["share"]
    many = [b for b in panels["small"] if b["low"] >= MANY]
    assert len(above) >= 8
    assert many
    assert all(b["detected"]["ours"] == 1.0 for b in above)
    assert all("budget" in b["reasons"] for b in many)
    for name, counts in rules.items():
        if counts["pairs"] <= rules["ours"]["pairs"]:
            assert all(b["detected"][name] <= b["detected"]["ours"] for b in (*above, *many)), name
