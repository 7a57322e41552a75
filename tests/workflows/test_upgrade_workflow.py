"""The upgrade workflow, job by job: what is proven is proposed, and nothing else reaches the repository."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from run_steps import REPOSITORY, Job, Runner, git, load, make_remote
from stub_suite import STATUS

WORKFLOW = load(REPOSITORY / ".github" / "workflows" / "upgrade.yml")
PROFILE = "tiny-sglang-gpu"
BRANCH = f"lossless/sglang-0.6.0-{PROFILE}"
GH = """#!/usr/bin/env bash
for word in "$@"; do printf '%s\\0' "$word"; done >>"$GH_CALLS"
printf '\\n' >>"$GH_CALLS"
if [[ $1 == api ]]; then [[ -n ${GH_BRANCH:-} ]]; fi
"""


class Repository:
    """A bare repository, a stand-in for the suite, and a ``gh`` that notes its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.remote = folder, make_remote(folder, (".github", f"golden/{PROFILE}"))
        tools = folder / "tools"
        tools.mkdir()
        self._program(tools / "gh", GH)
        stub = Path(__file__).with_name("stub_suite.py")
        self._program(tools / "suite-python", f'#!/bin/sh\nexec "{sys.executable}" "{stub}" "$@"\n')
        self._program(
            tools / "sglang-python", '#!/bin/sh\n[ "$2" != venv ] || { mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; }\n'
        )
        env = {
            "STUB_CALLS": str(folder / "calls"),
            "GH_CALLS": str(folder / "gh-calls"),
            "PYTHON": str(tools / "sglang-python"),
        }
        variables = {"LOSSLESS_PYTHON": str(tools / "suite-python")}
        self.runner = Runner(folder, env=env, variables=variables, remote=self.remote, programs=tools)

    @staticmethod
    def _program(path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def upgrade(self, status: int = 0, **inputs: Any) -> dict[str, list[Job]]:
        self.runner.env[STATUS] = str(status)
        return self.runner.run(WORKFLOW, inputs={"profile": PROFILE, "sglang": "0.6.0", **inputs})

    def proposed(self, patch: str) -> Job:
        """What the last job makes of a patch."""
        artifact = self.folder / "artifacts" / "upgrade"
        artifact.mkdir(parents=True)
        (artifact / "golden.patch").write_text(patch, encoding="utf-8")
        (artifact / "report.md").write_text("report\n", encoding="utf-8")
        outputs = {"profile": PROFILE, "old": "0.5.19", "new": "0.6.0", "branch": BRANCH}
        needs = {"check": Job("check", "success", outputs=outputs), "prove": Job("prove", "success")}
        needs["prove"].outputs = {"status": "proven"}
        return self.runner.run(WORKFLOW, needs=needs, only=("propose",))["propose"][0]

    @property
    def gh(self) -> list[list[str]]:
        path = self.folder / "gh-calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return [line.split("\0")[:-1] for line in lines]

    @property
    def branches(self) -> list[str]:
        return git("branch", "--format=%(refname:short)", where=self.remote).split()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def results(jobs: dict[str, list[Job]]) -> dict[str, str]:
    return {name: job.result for name, (job,) in jobs.items()}


@pytest.mark.parametrize(("status", "word"), [(0, "proven"), (1, "divergent")])
def test_an_upgrade_becomes_a_pull_request(repository: Repository, status: int, word: str) -> None:
    jobs = repository.upgrade(status)
    assert results(jobs) == dict.fromkeys(("check", "prove", "propose"), "success"), jobs["prove"][0].output
    assert jobs["prove"][0].summary == "# stub report\n"
    calls = [json.loads(line)[1:] for line in (repository.folder / "calls").read_text(encoding="utf-8").splitlines()]
    state = repository.folder / "runner" / "lossless-state"
    first, second, update = calls
    assert first[first.index("--from-env") + 1] == f"{state}/sglang-0.5.19/bin/python"
    assert first[first.index("--to-env") + 1] == f"{state}/sglang-0.6.0/bin/python"
    assert second[2:4] == ["run-old", "run-new"]
    assert update[update.index("--lossless-resume") + 1] == "run-new"
    changed = git("diff", "--name-only", "main", BRANCH, where=repository.remote).split()
    assert changed == [".github/sglang-verified.json", f"golden/{PROFILE}/stub.json"]
    create = repository.gh[-1]
    assert create[:2] == ["pr", "create"]
    assert create[create.index("--title") + 1] == f"SGLang 0.5.19 to 0.6.0 on {PROFILE}: {word}"
    assert ("--draft" in create) == (word != "proven")


def test_the_same_version_is_not_proposed_twice(repository: Repository) -> None:
    repository.runner.env["GH_BRANCH"] = "there"
    assert results(repository.upgrade()) == {"check": "success", "prove": "skipped", "propose": "skipped"}
    assert repository.gh == [["api", "--silent", f"repos/owner/name/branches/{BRANCH.replace('/', '%2F')}"]]


def test_no_new_version_is_nothing_to_do(repository: Repository) -> None:
    assert results(repository.upgrade(sglang="0.5.19")) == {
        "check": "success",
        "prove": "skipped",
        "propose": "skipped",
    }


def test_a_broken_upgrade_proposes_nothing(repository: Repository) -> None:
    assert results(repository.upgrade(2)) == {"check": "success", "prove": "failure", "propose": "skipped"}
    assert repository.branches == ["main"]


@pytest.mark.parametrize("text", ["0.6; id", "$(id)", "--upload-pack=x", "../x"])
def test_no_other_text_becomes_a_branch(repository: Repository, text: str) -> None:
    assert results(repository.upgrade(sglang=text))["check"] == "failure"
    assert repository.branches == ["main"]


def added(path: str, mode: str = "100644", text: str = "{}") -> str:
    return f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}\n"


def test_a_patch_with_goldens_is_taken(repository: Repository) -> None:
    assert repository.proposed(added(f"golden/{PROFILE}/new.json")).result == "success"
    assert BRANCH in repository.branches


@pytest.mark.parametrize(
    "patch",
    [
        added(".github/workflows/evil.yml"),
        added("golden/other/x.json"),
        added(f"golden/{PROFILE}/x.sh"),
        added(f"golden/{PROFILE}/x.json", mode="100755"),
        added(f"golden/{PROFILE}/x.json", mode="120000", text="/etc/passwd"),
        added("../outside.json"),
        added(f"golden/{PROFILE}/ok.json") + added("conftest2.py"),
        f"diff --git a/golden/{PROFILE}/code.json b/golden/{PROFILE}/code.json\ndeleted file mode 100644\n",
        "nonsense",
    ],
    ids=["workflow", "other-profile", "script", "executable", "link", "outside", "two", "deletion", "nonsense"],
)
def test_a_patch_with_anything_else_is_refused(repository: Repository, patch: str) -> None:
    job = repository.proposed(patch)
    assert job.step("Take the goldens").conclusion == "failure"
    assert job.step("Propose them").conclusion == "skipped"
    assert repository.branches == ["main"]
    assert repository.gh == []
