"""The nightly workflow, job by job on this machine: with a stand-in for the suite, and on the embedded engine."""

import json
import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from run_steps import REPOSITORY, Runner, load
from stub_suite import STATUS

WORKFLOW = load(REPOSITORY / ".github" / "workflows" / "nightly.yml")


class Stubbed:
    """A repository whose runners have the stand-in."""

    def __init__(self, folder: Path) -> None:
        python = folder / "suite-python"
        stub = Path(__file__).with_name("stub_suite.py")
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{stub}" "$@"\n', encoding="utf-8")
        python.chmod(0o755)
        self.calls_path = folder / "calls"
        variables = {"LOSSLESS_PYTHON": str(python), "LOSSLESS_JUDGE_PYTHON": str(python), "LOSSLESS_PROFILES": "tiny"}
        env = {"STUB_CALLS": str(self.calls_path), "PYTHONPATH": str(REPOSITORY / "tools"), "LOSSLESS_GPU": "L4"}
        self.runner = Runner(folder, env=env, variables=variables, paths=(".github",))

    def night(self, status: int = 0, **inputs: Any) -> dict[str, Any]:
        self.runner.env[STATUS] = str(status)
        self.calls_path.write_text("", encoding="utf-8")
        return self.runner.run(WORKFLOW, inputs={"sglang": "none", **inputs})

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line)[1:] for line in self.calls_path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def stubbed(tmp_path: Path) -> Stubbed:
    return Stubbed(tmp_path)


def results(jobs: dict[str, Any]) -> dict[str, list[str]]:
    return {name: [job.result for job in found] for name, found in jobs.items()}


def test_a_green_night(stubbed: Stubbed) -> None:
    jobs = stubbed.night(extra_args="--lossless-strict  -q", record=True)
    assert results(jobs) == {"plan": ["success"], "prove": ["success"], "judge": ["success"]}, jobs["judge"][0].output
    suite = next(c for c in stubbed.calls if c[0] == "pytest")
    assert suite[:4] == ["pytest", "-m", "lossless", "tests/lossless"]
    assert suite[-2:] == ["--lossless-strict", "-q"]
    assert "--lossless-shard" not in suite
    report = stubbed.runner.folder / "artifacts" / "report--tiny"
    assert sorted(p.name for p in report.iterdir()) == [
        "evidence.json",
        "nights.jsonl",
        "report.html",
        "results.csv",
        "run--tiny--1.xml",
        "suspects.txt",
    ]
    history = next(c for c in stubbed.calls if "--history" in c)
    assert history[history.index("--gpu") + 1] == "L4"
    assert jobs["judge"][0].summary == "stub summary\nstub suspects\n"


def test_a_job_that_is_run_again_finds_what_it_recorded(stubbed: Stubbed) -> None:
    """The run folder is outside the checkout, the same for a second try, and another for another SGLang."""
    found = []
    for again in ("none", "none", "0.5.19"):
        stubbed.runner.variables["LOSSLESS_SGLANG_PYTHON"] = "/opt/sglang/bin/python"
        stubbed.night(sglang=again)
        suite = next(c for c in stubbed.calls if c[0] == "pytest")
        found.append(Path(suite[suite.index("--lossless-runs") + 1]))
    assert found[0] == found[1] != found[2]
    assert {p.parent for p in found} == {stubbed.runner.folder / "runner" / "lossless-state" / "runs"}


@pytest.mark.parametrize("status", [1, 3])
def test_a_night_that_proves_nothing_is_red_and_reported_all_the_same(stubbed: Stubbed, status: int) -> None:
    jobs = stubbed.night(status, record=True)
    assert results(jobs) == {"plan": ["success"], "prove": ["failure"], "judge": ["failure"]}
    judge = jobs["judge"][0]
    assert [s.name for s in judge.steps if s.conclusion == "failure"] == ["Verdict"], judge.output
    assert "stub suspects" in judge.summary
    assert (stubbed.runner.folder / "artifacts" / "report--tiny" / "report.html").is_file()


def test_a_night_without_a_run_is_red_and_says_so(stubbed: Stubbed) -> None:
    jobs = stubbed.night(2, record=True)
    assert results(jobs) == {"plan": ["success"], "prove": ["failure"], "judge": ["failure"]}
    judge = jobs["judge"][0]
    assert judge.summary.startswith("## ⚠️ inconclusive: tiny\n")
    assert judge.step("History").conclusion == "skipped"
    assert not any(c[1] in ("summary", "verify") for c in stubbed.calls)


def test_shards_are_merged(stubbed: Stubbed) -> None:
    jobs = stubbed.night(1, shards="2", profiles="tiny tiny-bfloat16")
    assert results(jobs)["prove"] == ["failure"] * 4
    assert results(jobs)["judge"] == ["failure"] * 2
    shards = [c[c.index("--lossless-shard") + 1] for c in stubbed.calls if c[0] == "pytest"]
    assert shards == ["1/2", "2/2", "1/2", "2/2"]
    merges = [c for c in stubbed.calls if c[1] == "merge"]
    assert [c[2:4] for c in merges] == [
        [f"in/run--{p}--{k}/runs/run-{k}of2" for k in (1, 2)] for p in ("tiny", "tiny-bfloat16")
    ]
    assert any(c[:3] == ["lossless", "summary", "out/merged"] for c in stubbed.calls)


def test_the_history_goes_on_from_night_to_night(stubbed: Stubbed) -> None:
    for status in (0, 1):
        stubbed.night(status, record=True)
    stubbed.night(1, record=False)
    saved = sorted((stubbed.runner.folder / "caches").iterdir(), key=lambda p: p.stat().st_mtime_ns)
    assert len(saved) == 2
    assert (saved[-1] / "nights.jsonl").read_text(encoding="utf-8") == "0\n1\n"


def test_what_a_person_types_is_no_script(stubbed: Stubbed, tmp_path: Path) -> None:
    hostile = f"$(touch {tmp_path}/pwned) `touch {tmp_path}/pwned` ; touch {tmp_path}/pwned '"
    jobs = stubbed.night(extra_args=hostile)
    assert jobs["prove"][0].result == "success"
    assert hostile.split()[0] in next(c for c in stubbed.calls if c[0] == "pytest")
    for name in ("profiles", "prompts", "shards", "sglang"):
        assert results(stubbed.night(**{name: hostile}))["plan"] == ["failure"]
    assert not (tmp_path / "pwned").exists()


def test_the_schedule_rests_without_profiles(stubbed: Stubbed) -> None:
    stubbed.runner.variables.pop("LOSSLESS_PROFILES")
    jobs = stubbed.runner.run(WORKFLOW, event="schedule")
    assert results(jobs) == {"plan": ["skipped"], "prove": ["skipped"], "judge": ["skipped"]}


# --------------------------------------------------------------------- for real
OPTIONS = "--lossless-max-new-tokens 40 --lossless-golden golden-quick"


@pytest.mark.slow
def test_two_nights_on_the_embedded_engine(tmp_path: Path) -> None:
    """A green night, then one with a planted fault: red, with the range of builds to suspect."""
    python = {"LOSSLESS_PYTHON": sys.executable, "LOSSLESS_JUDGE_PYTHON": sys.executable}
    path = os.pathsep.join([str(REPOSITORY / "tools"), os.environ.get("PYTHONPATH", "")])
    runner = Runner(tmp_path, env={"PYTHONPATH": path, "LOSSLESS_GPU": "no card"}, variables=python)
    given = {"profiles": "tiny", "prompts": "quick", "sglang": "none", "record": True}

    green = runner.run(WORKFLOW, inputs={**given, "extra_args": OPTIONS})
    assert results(green) == {"plan": ["success"], "prove": ["success"], "judge": ["success"]}, green["prove"][0].output
    assert green["judge"][0].summary.startswith("## ✅ proven: tiny\n")
    report = tmp_path / "artifacts" / "report--tiny"
    assert json.loads((report / "evidence.json").read_text(encoding="utf-8"))["status"] == "proven"
    suite = ElementTree.parse(report / "run--tiny--1.xml").getroot()[0]
    about = {p.get("name"): p.get("value") for p in suite.findall("properties/property")}
    assert (about["lossless_status"], about["lossless_profile"]) == ("proven", "tiny")
    assert (report / "report.html").stat().st_size > 10_000
    assert (report / "results.csv").read_text(encoding="utf-8").startswith("variant,prompt,stage,")

    red = runner.run(WORKFLOW, inputs={**given, "extra_args": f"{OPTIONS} --lossless-fault accept-one-too-many"})
    assert results(red) == {"plan": ["success"], "prove": ["failure"], "judge": ["failure"]}, red["judge"][0].output
    judge = red["judge"][0]
    assert [s.name for s in judge.steps if s.conclusion == "failure"] == ["Verdict"]
    assert judge.summary.startswith("## ❌ divergent: tiny\n")
    assert "::error title=" in judge.step("Summary").output
    nights = [json.loads(line) for line in (report / "nights.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [n["status"] for n in nights] == ["proven", "divergent"]
    assert nights[1]["failing"]
    said = judge.step("Suspects").output
    assert "RED, the first red night after a green one" in said
    assert f"last good night {nights[0]['date'][:10]}, first bad night {nights[1]['date'][:10]}" in said
    assert f"**Suspects:** not SGLang, which was {nights[0]['version']} both times" in judge.summary
