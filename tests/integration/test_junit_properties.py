"""JUnit XML and evidence of real runs on the embedded engine, with and without workers, green and red."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from small_suite import SmallSuite, make_suite

from lossless.report.evidence_schema import SHIPPED

FAULT = "accept-one-too-many"


def read(path: Path) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The suite's properties, and those of each test by ``file::name``."""
    suite = ElementTree.parse(path).getroot()[0]

    def of(element: ElementTree.Element) -> dict[str, str]:
        return {str(p.get("name")): str(p.get("value")) for p in element.findall("properties/property")}

    return of(suite), {
        f"{c.get('classname', '').rpartition('.')[2]}::{c.get('name')}": of(c) for c in suite.iter("testcase")
    }


@pytest.fixture(scope="module")
def red(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallSuite]:
    """A planted fault, two workers."""
    for suite in make_suite(tmp_path_factory.mktemp("red")):
        suite.first = suite.run("-n", "2", "--dist", "loadgroup", "--junitxml=out.xml", "--lossless-fault", FAULT)
        assert suite.first.status == 1, suite.first.output
        assert "PytestWarning" not in suite.first.output
        yield suite


def check(suite: SmallSuite) -> Any:
    data = suite.evidence()
    problems = list(Draft202012Validator(json.loads(SHIPPED.read_text(encoding="utf-8"))).iter_errors(data))
    assert problems == []
    return data


def test_a_red_run_under_workers(red: SmallSuite) -> None:
    data = check(red)
    whole, tests = read(red.folder / "out.xml")
    assert (whole["lossless_status"], whole["lossless_fault"]) == ("divergent", FAULT)
    assert (whole["lossless_profile"], whole["lossless_run"]) == ("tiny", data["run"])
    assert whole["lossless_version_nextn"] == data["versions"]["nextn"]
    assert float(whole["lossless_epsilon_nats"]) == pytest.approx(data["epsilon"]["value"], rel=1e-4)
    kinds = [v["verdict"] for v in data["verdicts"]]
    assert whole["lossless_count_divergent"] == str(kinds.count("divergent"))
    assert "lossless_gpu" not in whole, "the embedded engine uses no card"
    bad = [v for v in data["verdicts"] if v["verdict"] == "divergent" and v["stage"] == "plain"]
    assert bad
    for v in bad:
        found = tests[f"test_parity::test_the_variant_says_what_the_baseline_says[{v['variant']}-{v['prompt']}]"]
        assert found["lossless_verdict"] == v["label"]
        assert found["lossless_reason"] == v["reason"]
        assert (found["lossless_prompt"], found["lossless_variant"]) == (v["prompt"], v["variant"])
        assert (found["lossless_category"], found["lossless_stage"]) == (v["category"], "plain")
        assert found["lossless_tokens"] == str(v["variant_tokens"])
        if v["differences"]:
            assert found["lossless_position"] == str(v["differences"][0]["variant_start"])
        if v["regret"] is not None:
            assert float(found["lossless_regret_max_nats"]) == pytest.approx(v["regret"]["largest"], rel=1e-4)


def test_other_tests_say_what_they_are_about(red: SmallSuite) -> None:
    _, tests = read(red.folder / "out.xml")
    rules = tests["test_rules::test_answers_keep_the_rules[baseline-story]"]
    assert (rules["lossless_prompt"], rules["lossless_variant"], rules["lossless_stage"]) == (
        "story",
        "baseline",
        "plain",
    )
    staged = tests["test_load::test_the_variant_says_what_the_baseline_says[nextn-sum-1]"]
    assert (staged["lossless_prompt"], staged["lossless_stage"]) == ("sum", "together")
    golden = tests["test_golden::test_the_baseline_says_what_the_golden_says[list]"]
    assert (golden["lossless_stage"], golden["lossless_category"]) == ("golden", "list")


def test_the_commands_show_the_same_run(red: SmallSuite) -> None:
    data = red.evidence()
    summary = red.lossless("summary", "latest", "--github", "--annotations")
    assert summary.status == 0, summary.output
    assert summary.output.startswith("## ❌ divergent: tiny\n")
    assert f"planted fault {FAULT}" in summary.output
    table = json.loads(red.lossless("export", "latest", "--format", "json").output)
    assert len(table["rows"]) == len(data["verdicts"])
    assert red.lossless("summary", "latest", "--history", "nights.jsonl").status == 0
    found = red.lossless("suspects", "nights.jsonl")
    assert found.status == 1
    assert "no earlier night saw these pass" in found.output


@pytest.mark.slow
def test_a_green_run(tmp_path: Path) -> None:
    for suite in make_suite(tmp_path):
        outcome = suite.run("--junitxml=out.xml")
        assert outcome.status == 0, outcome.output
        assert check(suite)["status"] == "proven"
        whole, tests = read(suite.folder / "out.xml")
        assert (whole["lossless_status"], whole["lossless_controls_failed"]) == ("proven", "0")
        found = tests["test_parity::test_the_variant_says_what_the_baseline_says[dflash-story]"]
        assert found["lossless_verdict"] == "identical"
        assert float(found["lossless_accept_length"]) > 1
        assert "lossless_position" not in found
