"""``lossless upgrade`` on recorded runs: the text people read, the JSON people script, the exit status."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from syrupy.assertion import SnapshotAssertion
from typer.testing import CliRunner
from upgrade_runs import FLIPPED, FORKED, STORY, TEXT, RunPair, first_difference, rescore_old, run_pair

from lossless.commands import upgrade as command
from lossless.errors import UsageError
from lossless.protocol import Sampling


def invoke(*args: str) -> Any:
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback()(lambda: None)
    command.register(app)
    return CliRunner().invoke(app, ["upgrade", *args], env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})


def words(pair: RunPair, *more: str) -> list[str]:
    return [str(pair.old.store.path), str(pair.new.store.path), *more]


def steady(output: str, tmp_path: Path) -> str:
    return "\n".join(line.rstrip() for line in output.replace(str(tmp_path), "<tmp>").splitlines()) + "\n"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def everything_changed(make_run: Any) -> RunPair:
    """A near-tie of the baseline, a divergent variant, a fallen accept length, a changed default, a smaller pool."""
    pair = run_pair(make_run, new_list=FLIPPED, variant=TEXT.replace("five", "nine"))
    rescore_old(pair, TEXT, FLIPPED, 0.0625)
    new, wrong = pair.new, TEXT.replace("five", "nine")
    at = first_difference(new, FLIPPED, wrong)
    new.scored("list-0", new.ids(wrong), {at: 9.0}, {at: new.ids(FLIPPED)[at]})
    new.says(
        "nextn",
        "story-0",
        STORY,
        spec_verify_ct=18,
    )
    for run, version, tokens, backend in ((pair.old, "0.5.19", 20_000, "triton"), (new, "0.5.20", 18_000, "fa3")):
        for server in ("baseline", "nextn"):
            run.server(server, version=version, max_total_num_tokens=tokens, attention_backend=backend)
    return pair


def test_a_proven_upgrade(make_run: Any, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    result = invoke(*words(run_pair(make_run)))
    assert result.exit_code == 0
    assert steady(result.output, tmp_path) == snapshot


def test_an_upgrade_in_which_everything_changed(make_run: Any, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    result = invoke(*words(everything_changed(make_run)))
    assert result.exit_code == 1
    assert steady(result.output, tmp_path) == snapshot


def test_the_same_as_markdown(make_run: Any, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    result = invoke(*words(everything_changed(make_run), "--markdown"))
    assert result.exit_code == 1
    assert steady(result.output, tmp_path) == snapshot


def test_the_same_as_json(make_run: Any, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    result = invoke(*words(everything_changed(make_run), "--json"))
    assert result.exit_code == 1
    data = json.loads(result.output)
    assert (data["status"], data["schema"], data["kind"]) == ("divergent", 1, "upgrade")
    assert data["baseline"]["counts"] == {"near-tie (reconverged)": 1, "identical": 1}
    assert steady(result.output, tmp_path) == snapshot


def test_what_was_not_rescored_is_said(make_run: Any, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    pair = run_pair(make_run, new_list=FORKED)
    pair.new.store.forget("baseline")
    for name in ("baseline", "nextn"):
        pair.new.server(name, version="0.5.20")
    pair.new.says("baseline", "list-0", FORKED)
    pair.new.says(
        "baseline",
        "story-0",
        STORY,
    )
    result = invoke(*words(pair))
    assert result.exit_code == 3
    assert "not re-scored by the new baseline: 1 old output" in result.output
    assert steady(result.output, tmp_path) == snapshot


def test_goldens_are_offered_only_where_nothing_diverged(make_run: Any, tmp_path: Path) -> None:
    good = json.loads(invoke(*words(run_pair(make_run)), "--json").output)
    assert [g["name"] for g in good["goldens"]] == ["list-0", "story-0", "_acceptance-nextn"]
    assert {g["action"] for g in good["goldens"]} == {"write"}
    assert good["next"][0]["why"] == "write 3 goldens, list-0.json, story-0.json, _acceptance-nextn.json"
    assert good["next"][0]["command"].startswith("pytest -m lossless --snapshot-update --lossless-profile small.toml")
    bad = json.loads(invoke(*words(everything_changed(make_run)), "--json").output)
    assert not any("--snapshot-update" in step["command"] for step in bad["next"])
    assert {g["name"]: g["action"] for g in bad["goldens"]} == {
        "list-0": "refuse",
        "story-0": "write",
        "_acceptance-nextn": "refuse",
    }
    assert (tmp_path / "work").is_dir()
    assert list((tmp_path / "work").iterdir()) == [], "nothing is written"


def test_markdown_of_hostile_prompts_stays_a_table(make_run: Any) -> None:
    name = "a|b<img src=x>@octocat#12"
    runs = []
    for folder in ("old", "new"):
        run = make_run({name: Sampling(96)}, folder=folder)
        for server in ("baseline", "nextn"):
            run.says(server, name, TEXT if folder == "old" else FORKED)
        runs.append(run)
    output = invoke(*words(RunPair(*runs)), "--markdown").output
    row = next(line for line in output.splitlines() if line.startswith("| a"))
    assert "\\<img" in row
    assert "@octocat" not in row
    assert row.replace("\\|", "").count("|") == 5


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give either two recorded runs, or a profile and two environments"),
        (["a", "b", "--profile", "tiny"], "give either two recorded runs"),
        (["a"], "one run was given"),
        (["--profile", "tiny", "--from-env", "x"], "belong together"),
        (["a", "b", "--json", "--markdown"], "choose one"),
        (["no-such-run", "b"], "no run 'no-such-run'"),
        (["--profile", "tiny", "--from-env", "no-such-python", "--to-env", "y"], "there is no 'no-such-python'"),
    ],
)
def test_wrong_arguments(args: list[str], message: str) -> None:
    result = invoke(*args)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert result.exception.exit_code == 2
