"""The ``lossless`` command: help texts people read, exit statuses people script."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lossless.cli import app, main
from lossless.protocol import Sampling

SAID = "85 - 60 = 25. The answer is 25."


def invoke(*args: str) -> Any:
    return CliRunner().invoke(app, list(args), env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def run_of(make_run: Any, folder: str, *, variant: str = SAID, answered: bool = True) -> Path:
    run = make_run({"list-0": Sampling(96)}, folder=folder)
    ids = run.says("baseline", "list-0", SAID)
    run.scored("list-0", ids)
    if answered:
        other = run.says("nextn", "list-0", variant)
        if other != ids:
            run.scored("list-0", other, {2: 9.0})
    return Path(run.store.path)


@pytest.mark.parametrize(
    ("variant", "answered", "status", "word"),
    [(SAID, True, 0, "proven"), ("85 - 61 = 24.", True, 1, "divergent"), (SAID, False, 3, "inconclusive")],
)
def test_verify_says_it_with_its_exit_status(
    make_run: Any, variant: str, answered: bool, status: int, word: str
) -> None:
    path = run_of(make_run, "run", variant=variant, answered=answered)
    shown = invoke("verify", str(path))
    assert (shown.exit_code, shown.output.strip().splitlines()[-1]) == (status, word)
    data = invoke("verify", str(path), "--json")
    assert data.exit_code == status
    assert json.loads(data.output)["status"] == word


def test_verify_shows_one_prompt(make_run: Any) -> None:
    path = run_of(make_run, "run", variant="85 - 61 = 24.")
    result = invoke("verify", str(path), "--prompt", "list-0")
    assert result.exit_code == 1
    assert "·  list-0 · nextn · plain" in result.output


def test_compare_needs_no_server(make_run: Any) -> None:
    a, b = run_of(make_run, "a"), run_of(make_run, "b", variant="85 - 61 = 24.")
    same = invoke("compare", f"{a}", f"{a}", "--json")
    assert (same.exit_code, json.loads(same.output)["status"]) == (0, "proven")
    other = invoke("compare", str(a), str(b))
    assert other.exit_code == 1
    assert "nextn → nextn" in other.output


def test_runs_are_listed(make_run: Any, tmp_path: Path) -> None:
    run_of(make_run, "20260101-first")
    newest = run_of(make_run, "20260102-second")
    listed = invoke("runs", "--runs", str(tmp_path), "--json")
    assert [row["run"] for row in json.loads(listed.output)] == ["20260102-second", "20260101-first"]
    latest = invoke("runs", "--runs", str(tmp_path), "--latest")
    assert latest.output == f"{newest}\n"
    assert invoke("runs", "--runs", str(tmp_path / "none")).exit_code == 0


def test_profiles_are_shown_and_checked() -> None:
    names = [p["name"] for p in json.loads(invoke("profiles", "--json").output)]
    assert {"tiny", "tiny-bfloat16", "tiny-sglang-cpu", "tiny-sglang-gpu"} <= set(names)
    shown = json.loads(invoke("profiles", "show", "tiny", "--json").output)
    assert shown["commands"]["dflash"].count("DFLASH") == 1
    checked = invoke("profiles", "check", "tiny", "--json")
    assert checked.exit_code == 0
    assert {r["status"] for r in json.loads(checked.output)} == {"ok"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["verify", "no-such-run"], "no run 'no-such-run'"),
        (["profiles", "show", "tinny"], "tiny"),
        (["compare", "a", "b"], "no run 'a'"),
        (["runs", "--latest", "--runs", "nowhere"], "no recorded run"),
    ],
)
def test_wrong_input_is_exit_status_2(
    args: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["lossless", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
