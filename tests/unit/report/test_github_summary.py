"""The step summary and the annotations: short, safe against whatever a model says, never better than the verdicts."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from syrupy.assertion import SnapshotAssertion
from typer.testing import CliRunner

from lossless.analysis import Analysis
from lossless.analysis.survival import Survived
from lossless.commands import summary
from lossless.protocol import Sampling
from lossless.record.plan import TOGETHER
from lossless.report import github
from lossless.report.evidence import status

TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."
NASTY = "The ```\n::error::x | <b> @octocat #12 %0A</details> list is: one, two."


def invoke(*args: str, env: dict[str, str] | None = None) -> Any:
    app = typer.Typer()
    summary.register(app)
    return CliRunner().invoke(app, list(args), env={"COLUMNS": "120", "GITHUB_STEP_SUMMARY": None, **(env or {})})


@pytest.fixture
def divergent(make_run: Any) -> Any:
    run = make_run({"list-0": Sampling(96), "copy-0": Sampling(96), "list-1": Sampling(96)})
    for server in ("baseline", "nextn"):
        for prompt in run.prompts:
            run.says(server, prompt, TEXT)
    ids = run.says("nextn", "copy-0", TEXT.replace("three", "seven", 1))
    run.scored("copy-0", ids, {8: 3.0}, {8: run.ids(TEXT)[8]})
    return run


def shown(run: Any) -> str:
    analysis = run.analysis()
    judged = list(analysis.verdicts())
    return github.summary_markdown(analysis, judged, status(analysis, judged))


def test_a_divergent_run(divergent: Any, snapshot: SnapshotAssertion) -> None:
    assert shown(divergent).replace(str(divergent.store.path), "RUN") == snapshot


def test_a_run_without_servers(make_run: Any, snapshot: SnapshotAssertion) -> None:
    run = make_run({"list-0": Sampling(96)}, folder="none")
    run.server("nextn", complete=False, problem="out of memory")
    assert shown(run) == snapshot


def test_a_proven_run_is_short(make_run: Any) -> None:
    run = make_run()
    for server in ("baseline", "nextn"):
        run.says(server, "list-0", TEXT)
    text = shown(run)
    assert text.startswith("## ✅ proven: small\n")
    assert "Reproduce" not in text
    assert "###" not in text


def test_what_a_model_says_stays_inside_its_block(make_run: Any) -> None:
    run = make_run({"copy-0": Sampling(96)})
    run.says("baseline", "copy-0", TEXT)
    ids = run.says("nextn", "copy-0", NASTY)
    run.scored("copy-0", ids, {1: 9.0}, {1: run.ids(TEXT)[1]})
    text = shown(run)
    before, _, rest = text.partition("<details>")
    fence = re.search(r"^(`{3,})text$", rest, re.MULTILINE)
    assert fence is not None
    folded, _, after = rest.partition(f"\n{fence[1]}\n\n</details>")
    assert "<b>" not in before
    assert "<b>" not in after
    assert "@octocat" in folded
    assert text.count("\n</details>") == 1
    assert not any(line.startswith("::") for line in text.splitlines())


def test_a_long_list_is_cut_and_counted(make_run: Any) -> None:
    run = make_run({f"list-{i}": Sampling(96) for i in range(30)})
    for i in range(30):
        run.says("baseline", f"list-{i}", TEXT)
        ids = run.says("nextn", f"list-{i}", TEXT.replace("three", "seven", 1))
        run.scored(f"list-{i}", ids, {8: 3.0}, {8: run.ids(TEXT)[8]})
    text = shown(run)
    assert "### Failures (30)" in text
    assert "… and 10 more" in text
    assert text.count("<details>") == 10
    lines = github.annotations(run.analysis(), list(run.analysis().verdicts()))
    assert len(lines) == 10
    assert lines[-1] == "::error title=lossless::and 21 more; see the step summary"


def test_no_part_is_cut_in_two(divergent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shown(divergent)
    for limit in range(200, len(whole.encode()), 97):
        monkeypatch.setattr(github, "LIMIT", limit)
        text = shown(divergent)
        assert len(text.encode()) < limit + 100
        assert text.endswith("… cut: the summary is larger than GitHub shows\n")
        assert text.count("<details>") == text.count("</details>")
        assert len(re.findall(r"^```", text, re.MULTILINE)) % 2 == 0


def annotated(run: Any) -> list[str]:
    analysis = run.analysis()
    return github.annotations(analysis, list(analysis.verdicts()))


def test_annotations(divergent: Any) -> None:
    (line,) = annotated(divergent)
    assert line == (
        "::error title=divergent (gap)%3A copy-0 (nextn%2C plain)::"
        "the first difference is 3 nats from the baseline's argmax, epsilon is 0.125"
    )
    divergent.server("nextn", speculative_accept_threshold_single=0.5)
    control, answers = annotated(divergent)
    assert control.startswith("::error title=nextn%3A control pair failed::nextn: speculative_accept_threshold_single")
    assert answers.startswith("::error title=inconclusive (not-a-pair)%3A 3 answers of nextn::nextn: ")


def test_a_broken_rule_is_a_failure(divergent: Any) -> None:
    divergent.says("nextn", "list-1", TEXT, TOGETHER, completion_tokens=99)
    assert annotated(divergent)[1].startswith("::error title=nextn%3A list-1::length: together: ")
    assert "### Rules that speculation breaks (1)" in shown(divergent)


def test_a_failed_stress_test_is_a_failure(divergent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    died = Survived("nextn", ok=False, detail="it died | out of memory", facts=None, judged=())
    well = Survived("baseline", ok=True, detail="well", facts=None, judged=())
    monkeypatch.setattr(Analysis, "survival", (well, died))
    assert "| `nextn` | it died \\| out of memory |" in shown(divergent)
    assert annotated(divergent)[1:] == ["::error title=nextn%3A stress test failed::it died | out of memory"]


def test_a_command_is_one_line_that_the_runner_reads_back() -> None:
    line = github.command("error", "a:b, 100%\nc", "50% of\r\n::error::x")
    assert line == "::error title=a%3Ab%2C 100%25%0Ac::50%25 of%0D%0A::error::x"
    assert len(line.splitlines()) == 1


def test_the_command_appends(divergent: Any, tmp_path: Path) -> None:
    place = tmp_path / "summary.md"
    place.write_text("before\n", encoding="utf-8")
    path = str(divergent.store.path)
    done = invoke(path, "--github", "--append", "--annotations", env={"GITHUB_STEP_SUMMARY": str(place)})
    assert done.exit_code == 0
    assert place.read_text(encoding="utf-8") == f"before\n{shown(divergent)}\n"
    assert [line[:8] for line in done.output.splitlines()] == ["::error "]
    assert invoke(path, "--github").output == shown(divergent)
    refused = invoke(path, "--github", "--append")
    assert "GITHUB_STEP_SUMMARY is not set" in str(refused.exception)


def test_the_command_without_options_shows_the_table(divergent: Any) -> None:
    done = invoke(str(divergent.store.path))
    assert done.exit_code == 0
    assert done.output.strip().splitlines()[-1] == "divergent"
