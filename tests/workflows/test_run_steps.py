"""The stand-in for GitHub's runner does what GitHub's runner does, where the workflows rely on it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from expressions import evaluate, fill
from run_steps import Refused, Runner

CONTEXTS = {
    "github": {"event_name": "schedule"},
    "inputs": {"record": False, "n": "2", "text": ""},
    "vars": {"SET": "x"},
    "needs": {"plan": {"result": "success", "outputs": {"list": '["a", "b"]'}}},
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("github.event_name == 'schedule' || inputs.record", True),
        ("inputs.record || vars.SET", "x"),
        ("inputs.text && vars.SET", ""),
        ("vars.NONE != ''", False),  # null is the empty text
        ("!inputs.record && needs.plan.result == 'success'", True),
        ("fromJSON(needs.plan.outputs.list)", ["a", "b"]),
        ("fromJSON(vars.NONE || '[\"self-hosted\"]')", ["self-hosted"]),
        ("inputs.n == 2", True),
        ("'it''s'", "it's"),
        ("('a' == 'A') == true", True),
        ("needs.none.outputs.x", None),
    ],
)
def test_expressions(text: str, value: Any) -> None:
    assert evaluate(text, CONTEXTS, {}) == value
    assert evaluate(f"${{{{ {text} }}}}", CONTEXTS, {}) == value


@pytest.mark.parametrize("text", ["a ==", "nowhere.x", "(vars.SET", "vars.SET vars.SET", "#", "'a' == == 'b'"])
def test_expressions_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        evaluate(text, CONTEXTS, {})


def test_filling() -> None:
    text = "${{ vars.SET }}-${{ inputs.record }}-${{ vars.NONE }}"
    assert fill({"k": [text, 1]}, CONTEXTS, {}) == {"k": ["x-false-", 1]}


def run(folder: Path, text: str, **more: Any) -> Any:
    data = yaml.safe_load(text)
    jobs = data["jobs"] if isinstance(data, dict) else {"job": {"runs-on": "x", "steps": data}}
    return Runner(folder, paths=(".github",)).run({"on": {}, "jobs": jobs}, **more)


def test_steps_share_what_they_write(tmp_path: Path) -> None:
    (job,) = run(
        tmp_path,
        """
        - id: one
          run: 'echo "A=1" >>"$GITHUB_ENV"; echo "b=2" >>"$GITHUB_OUTPUT"; echo "# s" >>"$GITHUB_STEP_SUMMARY"'
        - {name: two, env: {B: "${{ steps.one.outputs.b }}"}, run: 'echo "$A$B"'}
        - {name: three, if: "${{ env.A == '2' }}", run: exit 1}
        """,
    )["job"]
    assert (job.result, job.summary, job.step("two").output) == ("success", "# s\n", "12\n")
    assert job.step("three").conclusion == "skipped"


def test_a_failed_step_skips_what_does_not_ask_for_it(tmp_path: Path) -> None:
    (job,) = run(
        tmp_path,
        """
        - {name: bad, run: "false; echo not reached"}
        - {name: next, run: "true"}
        - {name: always, if: "${{ !cancelled() }}", run: "echo here"}
        - {name: only, if: "${{ failure() }}", run: "true"}
        """,
    )["job"]
    assert job.result == "failure"
    assert [s.conclusion for s in job.steps] == ["failure", "skipped", "success", "success"]
    assert job.output == "here\n"


def test_pipefail_only_where_bash_is_named(tmp_path: Path) -> None:
    for shell, result in (("", "success"), ("shell: bash,", "failure")):
        (tmp_path / result).mkdir()
        (job,) = run(tmp_path / result, f"- {{{shell} run: 'false | true'}}")["job"]
        assert job.result == result


def test_jobs_wait_for_what_they_need(tmp_path: Path) -> None:
    jobs = run(
        tmp_path,
        """
        jobs:
          c: {runs-on: x, needs: b, steps: [{run: "true"}]}
          d:
            runs-on: x
            needs: [a, b]
            if: ${{ !cancelled() && needs.a.result == 'success' }}
            steps: [{run: "true"}]
          b:
            runs-on: x
            needs: a
            strategy: {matrix: "${{ fromJSON(needs.a.outputs.m) }}"}
            steps: [{run: "exit $M", env: {M: "${{ matrix.n }}"}}]
          a:
            runs-on: x
            outputs: {m: "${{ steps.s.outputs.m }}"}
            steps:
              - id: s
                run: 'echo "m={\\"n\\": [0, 1]}" >>"$GITHUB_OUTPUT"'
        """,
    )
    assert {name: [j.result for j in found] for name, found in jobs.items()} == {
        "a": ["success"],
        "b": ["success", "failure"],
        "c": ["skipped"],
        "d": ["success"],
    }


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("{uses: actions/upload-artifact@v4, with: {name: x, path: none, if-no-files-found: error}}", "no files found"),
        ("{uses: actions/download-artifact@v4, with: {name: x, path: in}}", "no artifact x"),
        ("{uses: someone/else@v1}", "no stand-in"),
        ("{uses: actions/checkout}", "no version"),
    ],
)
def test_wrong_uses_are_refused(tmp_path: Path, step: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        run(tmp_path, f"- {step}")
