"""Runs the jobs of a GitHub workflow on this machine: every ``run:`` step by bash as GitHub's runner would, with
stand-ins for the actions. Each job gets a copy of the working tree; artifacts and caches are folders.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from expressions import Functions, evaluate, fill, text_of, truthy

REPOSITORY = Path(__file__).parents[2]
SHELLS = {None: ["bash", "-e"], "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"]}
CHECKED_OUT = (".github", ".ci", "golden", "tests/lossless", "conftest.py", "pyproject.toml")
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


class Refused(AssertionError):
    """An action was used in a way that GitHub would fail, or that no stand-in knows."""


@dataclass
class Step:
    """What became of one step."""

    name: str
    conclusion: str
    output: str = ""
    outputs: dict[str, str] = field(default_factory=dict)


@dataclass
class Job:
    """What became of one job (one entry of its matrix)."""

    name: str
    result: str
    steps: list[Step] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    workspace: Path = Path()

    @property
    def output(self) -> str:
        return "".join(step.output for step in self.steps)

    def step(self, name: str) -> Step:
        return next(s for s in self.steps if s.name == name)


def load(path: Path) -> dict[str, Any]:
    """A workflow. YAML 1.1 reads the key ``on`` as true."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {("on" if key is True else key): value for key, value in data.items()}


@dataclass
class Runner:
    """One repository's runners: ``folder`` holds what outlives a job (artifacts, caches, the runners' own state).

    With ``remote``, a bare repository, every job's checkout is a clone of it; without, it is no repository at all.
    """

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    remote: Path | None = None
    paths: tuple[str, ...] = CHECKED_OUT
    programs: Path | None = None  # a folder that comes first in PATH
    run_id: int = 0

    def run(
        self,
        workflow: Mapping[str, Any],
        *,
        event: str = "workflow_dispatch",
        inputs: Mapping[str, Any] | None = None,
        needs: Mapping[str, Job] | None = None,
        only: tuple[str, ...] | None = None,
    ) -> dict[str, list[Job]]:
        """All jobs in the order of their needs. ``only`` runs some, with ``needs`` standing for those before."""
        self.run_id += 1
        declared = (workflow["on"].get("workflow_dispatch") or {}).get("inputs", {}) if event != "schedule" else {}
        contexts: dict[str, Any] = {
            "github": {
                "event_name": event,
                "ref": "refs/heads/main",
                "repository": "owner/name",
                "run_id": str(self.run_id),
                "run_attempt": "1",
                "token": "token",
            },
            "inputs": {**{k: v.get("default", "") for k, v in declared.items()}, **(inputs or {})},
            "vars": self.variables,
            "runner": {},
        }
        done: dict[str, list[Job]] = {name: [job] for name, job in (needs or {}).items()}
        for name in _order(workflow["jobs"]):
            if name not in done and (only is None or name in only):
                done[name] = self._job(name, workflow, contexts, done)
        return done

    # ------------------------------------------------------------------------ jobs
    def _job(
        self, name: str, workflow: Mapping[str, Any], contexts: dict[str, Any], done: Mapping[str, list[Job]]
    ) -> list[Job]:
        job = workflow["jobs"][name]
        before = {n: done[n] for n in _needs(job)}
        contexts = {
            **contexts,
            "needs": {n: {"result": _result(j), "outputs": j[-1].outputs} for n, j in before.items()},
        }
        well = all(_result(j) == "success" for j in before.values())
        if not _wanted(job.get("if"), contexts, well=well):
            return [Job(name, "skipped")]
        matrix = fill(job.get("strategy", {}).get("matrix", {}), contexts, {})
        return [self._one(name, workflow, job, {**contexts, "matrix": entry}) for entry in _entries(matrix)]

    def _one(self, name: str, workflow: Mapping[str, Any], job: Mapping[str, Any], contexts: dict[str, Any]) -> Job:
        number = len(list(self.folder.glob("work-*")))
        found = Job(name, "success", workspace=self.folder / f"work-{number}" / "name")
        temporary = found.workspace.parent / "temp"
        temporary.mkdir(parents=True)
        if self.remote is None:
            copy_tree(found.workspace, self.paths)
        else:
            git("clone", "-q", str(self.remote), str(found.workspace), where=self.folder)
        shell = (job.get("defaults") or workflow.get("defaults") or {}).get("run", {}).get("shell")
        env = {
            **{k: os.environ[k] for k in KEPT if k in os.environ},
            **({"PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}"} if self.programs else {}),
            **self.env,
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(found.workspace),
            "RUNNER_TEMP": str(temporary),
            "RUNNER_WORKSPACE": str(self.folder / "runner"),
            **{k: text_of(fill(v, contexts, {})) for k, v in {**workflow.get("env", {}), **job.get("env", {})}.items()},
        }
        (self.folder / "runner").mkdir(exist_ok=True)
        contexts = {**contexts, "env": env, "steps": {}}
        for index, step in enumerate(job["steps"]):
            well = found.result == "success"
            ran = self._step(step, index, contexts, env, found, temporary, shell, well=well)
            found.steps.append(ran)
            if "id" in step:
                contexts["steps"][step["id"]] = {"outputs": ran.outputs, "conclusion": ran.conclusion}
            if ran.conclusion == "failure":
                found.result = "failure"
        found.outputs = {k: text_of(fill(v, contexts, {})) for k, v in job.get("outputs", {}).items()}
        return found

    # ----------------------------------------------------------------------- steps
    def _step(
        self,
        step: Mapping[str, Any],
        index: int,
        contexts: dict[str, Any],
        env: dict[str, str],
        job: Job,
        temporary: Path,
        shell: str | None,
        *,
        well: bool,
    ) -> Step:
        name = step.get("name") or step.get("uses") or f"step {index}"
        if not _wanted(step.get("if"), contexts, well=well):
            return Step(name, "skipped")
        if "uses" in step:
            self._use(step["uses"], fill(step.get("with", {}), contexts, {}), job.workspace)
            return Step(name, "success")
        files = {
            key: temporary / f"{index}-{key.lower()}" for key in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")
        }
        for path in files.values():
            path.touch()
        script = temporary / f"{index}.sh"
        script.write_text(step["run"], encoding="utf-8")
        own = {k: text_of(fill(v, contexts, {})) for k, v in step.get("env", {}).items()}
        process = subprocess.run(
            [*SHELLS[step.get("shell", shell)], str(script)],
            cwd=job.workspace,
            env={**env, **own, **{k: str(v) for k, v in files.items()}},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        env.update(_pairs(files["GITHUB_ENV"]))
        job.summary += files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8")
        conclusion = "failure" if process.returncode else "success"
        return Step(name, conclusion, process.stdout, _pairs(files["GITHUB_OUTPUT"]))

    # --------------------------------------------------------------------- actions
    def _use(self, action: str, given: Mapping[str, Any], workspace: Path) -> None:
        name, _, version = action.partition("@")
        if not version:
            raise Refused(f"{action}: no version")
        known = {
            "actions/checkout": lambda: None,
            "actions/setup-python": lambda: None,
            "actions/upload-artifact": lambda: self._upload(given, workspace),
            "actions/download-artifact": lambda: self._download(given, workspace),
            "actions/cache/restore": lambda: self._restore(given, workspace),
            "actions/cache/save": lambda: self._save(given, workspace),
        }
        if name not in known:
            raise Refused(f"{action}: there is no stand-in")
        known[name]()

    def _upload(self, given: Mapping[str, Any], workspace: Path) -> None:
        source, target = workspace / given["path"], self.folder / "artifacts" / given["name"]
        if not source.exists() or not any(source.iterdir()):
            if given.get("if-no-files-found") == "error":
                raise Refused(f"no files found in {given['path']}")
            return
        if target.exists() and not given.get("overwrite"):
            raise Refused(f"there is an artifact {given['name']} already")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(".*"))

    def _download(self, given: Mapping[str, Any], workspace: Path) -> None:
        everything = self.folder / "artifacts"
        if "name" in given:
            if not (everything / given["name"]).is_dir():
                raise Refused(f"no artifact {given['name']}")
            shutil.copytree(everything / given["name"], workspace / given["path"], dirs_exist_ok=True)
            return
        for artifact in sorted(everything.glob(given["pattern"])):
            shutil.copytree(artifact, workspace / given["path"] / artifact.name, dirs_exist_ok=True)

    def _restore(self, given: Mapping[str, Any], workspace: Path) -> None:
        caches = sorted((self.folder / "caches").glob("*"), key=lambda p: p.stat().st_mtime_ns, reverse=True)
        prefixes = [given["key"], *given.get("restore-keys", "").split()]
        found = next((c for p in prefixes for c in caches if c.name.startswith(p)), None)
        if found is not None:
            shutil.copytree(found, workspace / given["path"], dirs_exist_ok=True)

    def _save(self, given: Mapping[str, Any], workspace: Path) -> None:
        target = self.folder / "caches" / given["key"]
        if not target.exists():  # a cache is never written twice
            shutil.copytree(workspace / given["path"], target)
            target.touch()


def copy_tree(target: Path, paths: tuple[str, ...] = CHECKED_OUT) -> None:
    """The part of the working tree that jobs use where the package itself is installed already."""
    listed = git("ls-files", "-co", "--exclude-standard", "-z", "--", *paths, where=REPOSITORY)
    for name in filter(None, listed.split("\0")):
        source = REPOSITORY / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def make_remote(folder: Path, paths: tuple[str, ...]) -> Path:
    """A bare repository with these files as its only commit."""
    copy_tree(folder / "tree", paths)
    git("init", "-q", "-b", "main", where=folder / "tree")
    git("add", "-A", where=folder / "tree")
    git("commit", "-q", "-m", "tree", where=folder / "tree")
    git("clone", "-q", "--bare", "tree", "remote.git", where=folder)
    return folder / "remote.git"


def git(*words: str, where: Path) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
    return subprocess.run(["git", *identity, *words], cwd=where, check=True, capture_output=True, text=True).stdout


def _wanted(condition: str | None, contexts: Mapping[str, Any], *, well: bool) -> bool:
    functions: Functions = {
        "success": lambda: well,
        "failure": lambda: not well,
        "always": lambda: True,
        "cancelled": lambda: False,
    }
    if condition is None:
        return well
    said = any(f"{name}(" in condition for name in functions)
    return (said or well) and truthy(evaluate(str(condition), contexts, functions))


def _needs(job: Mapping[str, Any]) -> list[str]:
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else list(needs)


def _order(jobs: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    while len(found) < len(jobs):
        found += [n for n in jobs if n not in found and all(m in found for m in _needs(jobs[n]))]
    return found


def _entries(matrix: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not matrix:
        return [{}]
    if set(matrix) == {"include"}:
        return list(matrix["include"])
    return [dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())]


def _result(jobs: list[Job]) -> str:
    results = {job.result for job in jobs}
    return "failure" if "failure" in results else "skipped" if results == {"skipped"} else "success"


def _pairs(path: Path) -> dict[str, str]:
    """NAME=value lines of GITHUB_ENV and GITHUB_OUTPUT; this project writes no other form."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition("=")
        if not equals:
            raise Refused(f"{path.name}: {line!r} is not NAME=value")
        found[name] = value
    return found
