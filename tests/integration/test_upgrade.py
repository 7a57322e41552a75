"""``lossless upgrade`` between two environments: interrupted, resumed, and with what the new one changed.

The environments are two interpreters that start the embedded engine; the new one starts it with another chunk size.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

PROFILE = """\
description = "two servers, two short prompts"
kind = "reference"
target = "builtin:tiny"
dtype = "float32"
parallel_servers = 2
concurrency = 2
prompts = "./prompts.toml"
args = { chunked-prefill-size = 64 }

[variants.nextn]
algorithm = "NEXTN"
args = { speculative-num-steps = 3, speculative-num-draft-tokens = 4 }
"""
PROMPTS = "".join(
    f'[[prompt]]\nid = "{name}"\nuser = "{text}"\ncategory = "arithmetic"\ngroup = "json"\n'
    "sampling = { max_new_tokens = 12 }\n\n"
    for name, text in (("sum", "What is 98 - 5?"), ("product", "Compute 9 times 11."))
)

WRAPPER = """#!/bin/sh
if [ "$1" = "-m" ]; then exec "{python}" "$@" {more}; fi
exec "{python}" "$@"
"""


@dataclass
class Workshop:
    """A folder with a profile and two environments."""

    folder: Path

    def start(self, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "lossless", "upgrade", "--profile", "small.toml", "--from-env", "old"]
        command += ["--to-env", "new/bin/python", *more]
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
        return subprocess.Popen(
            command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*more)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def runs(self) -> list[Path]:
        return sorted((self.folder / ".lossless" / "runs").glob("2*"))

    def servers(self) -> list[psutil.Process]:
        """Servers that were started here and still live."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            try:
                ours = "lossless.reference" in (process.info["cmdline"] or []) and process.cwd() == str(self.folder)
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    folder = tmp_path_factory.mktemp("upgrade")
    for name, more in (("old", ""), ("new", "--chunked-prefill-size 32")):
        python = folder / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        # The flag given last wins; anything but a module (the question for versions) goes through as it is.
        python.write_text(WRAPPER.format(python=sys.executable, more=more), encoding="utf-8")
        python.chmod(0o755)
    (folder / "small.toml").write_text(PROFILE, encoding="utf-8")
    (folder / "prompts.toml").write_text(PROMPTS, encoding="utf-8")
    made = Workshop(folder)
    yield made
    for process in made.servers():
        process.kill()


def wait_for(process: subprocess.Popen[str], word: str) -> str:
    """What the command said up to a word; fails where it ends without."""
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if word in line:
            return seen
    raise AssertionError(f"{word!r} was never said:\n{seen}")


@pytest.fixture(scope="module")
def report(workshop: Workshop) -> Any:
    """Interrupted while the new environment is recorded, then run again."""
    process = workshop.start("--json")
    try:
        seen = wait_for(process, "lossless: new: ")
        wait_for(process, "ready after")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (130, "")
    assert "lossless: old: " in seen
    deadline = time.monotonic() + 10
    while workshop.servers() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert workshop.servers() == []
    done = workshop.run("--json")
    assert done.returncode == 0, done.stderr
    assert f"recorded already, {workshop.runs[0].name}" in done.stderr
    assert len(workshop.runs) == 2, "the interrupted run was resumed"
    return json.loads(done.stdout)


def test_the_report_of_two_environments(report: Any, workshop: Workshop) -> None:
    assert report["status"] == "proven"
    assert {p["verdict"] for p in report["baseline"]["prompts"]} == {"identical"}
    assert [(v["variant"], v["old"], v["new"]) for v in report["variants"]] == [("nextn", "proven", "proven")]
    facts = {f["name"]: (f["old"], f["new"]) for f in report["facts"]}
    assert facts["interpreter"] == tuple(str(workshop.folder / n / "bin" / "python") for n in ("old", "new"))
    assert [(c["name"], c["old"], c["new"], c["servers"]) for c in report["arguments"]["changed"]] == [
        ("chunked_prefill_size", 64, 32, ["baseline", "nextn"])
    ]
    assert report["next"][0]["command"].startswith(
        "pytest -m lossless --snapshot-update --lossless-profile small.toml --lossless-resume .lossless/runs/"
    )


def test_the_new_run_rescored_what_the_old_one_said(report: Any, workshop: Workshop) -> None:
    old, new = workshop.runs
    goldens = json.loads((new / "goldens.json").read_text(encoding="utf-8"))
    assert sorted(goldens) == ["product", "sum"]
    assert json.loads((old / "goldens.json").read_text(encoding="utf-8")) == {}
    scored = [json.loads(line) for line in (new / "records" / "baseline.jsonl").read_text().splitlines()]
    assert {r["prompt"] for r in scored if r["stage"] == "score"} == set(goldens)
    assert report["old"] == old.name


def test_a_third_time_starts_nothing(report: Any, workshop: Workshop) -> None:
    folder = workshop.folder / "golden" / "small"
    folder.mkdir(parents=True)
    (folder / "sum.json").write_text("{", encoding="utf-8")  # goldens that were written meanwhile change nothing
    done = workshop.run("--markdown")
    assert done.returncode == 0
    assert done.stderr.count("recorded already") == 2
    assert len(workshop.runs) == 2
    assert f"### {report['status']}: " in done.stdout
    assert "| sum | rewritten | " in done.stdout
