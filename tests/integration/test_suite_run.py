"""The suite as a user runs it: a fresh folder, real servers, goldens, and what a red line says."""

import json
from pathlib import Path

from small_suite import SmallSuite


def _edit(path: Path, position: int, token: int) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    data["output"]["token_ids"][position] = token
    path.write_text(json.dumps(data), encoding="utf-8")


def test_a_first_run_passes_and_skips_what_is_not_recorded(recorded_suite: SmallSuite) -> None:
    outcome = recorded_suite.first
    assert outcome is not None
    skipped = [line for line in outcome.output.splitlines() if "no goldens recorded yet" in line]
    assert len(skipped) == 1, outcome.output
    assert skipped[0].startswith("SKIPPED [7]"), "five goldens and two acceptance files"
    evidence = recorded_suite.evidence()
    assert evidence["status"] == "proven"
    plain = [v for v in evidence["verdicts"] if v["stage"] == "plain"]
    assert len(plain) == 10
    assert {v["verdict"] for v in plain} == {"identical"}
    assert not recorded_suite.servers()


def test_goldens_are_written_once_and_recording_again_changes_no_byte(recorded_suite: SmallSuite) -> None:
    names = {p.name for p in recorded_suite.golden.glob("*.json")}
    assert names == {
        "sum.json",
        "table.json",
        "story.json",
        "list.json",
        "again.json",
        "_acceptance-nextn.prompts.json",
        "_acceptance-dflash.prompts.json",
    }
    before = {p.name: p.read_bytes() for p in recorded_suite.golden.glob("*.json")}
    outcome = recorded_suite.run("--snapshot-update", "--lossless-resume", "latest")
    assert outcome.status == 0, outcome.output
    assert "7 kept; none is ever deleted" in outcome.output
    assert {p.name: p.read_bytes() for p in recorded_suite.golden.glob("*.json")} == before


def test_xdist_gives_the_same_verdicts(recorded_suite: SmallSuite) -> None:
    one = recorded_suite.evidence()
    outcome = recorded_suite.run("-n", "2", "--dist", "loadgroup")
    assert outcome.status == 0, outcome.output
    two = recorded_suite.evidence()
    assert one["run"] != two["run"]
    assert len(recorded_suite.runs) == 2
    assert two["verdicts"] == one["verdicts"]
    assert outcome.output.count("= lossless =") == 1


def test_a_golden_edited_at_one_token_fails_readably(recorded_suite: SmallSuite) -> None:
    path = recorded_suite.golden / "table.json"
    before = path.read_bytes()
    try:
        _edit(path, 5, 700)
        outcome = recorded_suite.run("tests/lossless/test_golden.py", "-k", "table")
    finally:
        path.write_bytes(before)
    assert outcome.status == 1, outcome.output
    assert outcome.count("failed") == 1
    assert "divergent (gap)  ·  table · baseline · golden" in outcome.output
    assert "position 5:" in outcome.output
    assert "pytest -m lossless --snapshot-update" in outcome.output


def test_a_damaged_golden_fails_naming_the_file(recorded_suite: SmallSuite) -> None:
    path = recorded_suite.golden / "sum.json"
    before = path.read_bytes()
    try:
        path.write_bytes(before[:-20])
        outcome = recorded_suite.run("tests/lossless/test_golden.py", "-k", "sum", "--lossless-resume", "latest")
    finally:
        path.write_bytes(before)
    assert outcome.status == 1, outcome.output
    assert outcome.count("failed") == 1
    assert "sum.json is damaged" in outcome.output


def test_a_planted_fault_is_divergent_and_never_a_near_tie(recorded_suite: SmallSuite) -> None:
    before = {p.name: p.read_bytes() for p in recorded_suite.golden.glob("*.json")}
    outcome = recorded_suite.run("--lossless-fault", "accept-unverified:0.5", "--snapshot-update")
    assert outcome.status == 1, outcome.output
    plain = [v for v in recorded_suite.evidence()["verdicts"] if v["stage"] == "plain"]
    caught = [v for v in plain if v["verdict"] != "identical"]
    assert caught
    assert {v["verdict"] for v in caught} == {"divergent"}
    assert {v["reason"] for v in caught} <= {"gap", "regret"}
    # Nothing of a failed pair is written, nothing is deleted.
    assert {p.name: p.read_bytes() for p in recorded_suite.golden.glob("*.json")} == before
    assert "not written, because their pair failed" in outcome.output


def test_saved_runs_are_judged_again_without_a_server(recorded_suite: SmallSuite) -> None:
    run = recorded_suite.runs[0].name
    verified = recorded_suite.lossless("verify", run, "--json")
    assert verified.status == 0, verified.output
    assert json.loads(verified.output)["status"] == "proven"
    compared = recorded_suite.lossless("compare", f"{run}:baseline", f"{run}:dflash", "--json")
    assert compared.status == 0, compared.output
    assert {v["verdict"] for v in json.loads(compared.output)["comparisons"][0]["verdicts"]} == {"identical"}
    assert recorded_suite.lossless("verify", "nothing-like-it").status == 2
