"""A small copy of the suite that runs in a few seconds: five short prompts on the embedded engine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

REPOSITORY = Path(__file__).parents[2]
PROMPTS = """\
[[prompt]]
id = "sum"
user = "What is 98 - 5?"
category = "arithmetic"
group = "concurrent"
sampling = { max_new_tokens = 32 }

[[prompt]]
id = "table"
user = "Write the multiplication table of 5 up to 7."
category = "arithmetic"
group = "parity"
sampling = { max_new_tokens = 64 }

[[prompt]]
id = "story"
user = "Tell a short story about a fox."
category = "story"
group = "parity"
sampling = { max_new_tokens = 96 }

[[prompt]]
id = "list"
user = "List five animals, one on each line."
category = "list"
group = "parity"
sampling = { max_new_tokens = 64 }

[[prompt]]
id = "again"
user = "Compute 9 times 11."
category = "arithmetic"
group = "order"
sampling = { max_new_tokens = 32 }
"""


@dataclass
class Outcome:
    """One finished command."""

    status: int
    output: str

    def count(self, word: str) -> int:
        """The number pytest's last line gives for ``passed``, ``failed``, …"""
        words = self.output.strip().splitlines()[-1].replace(",", " ").split()
        return int(words[words.index(word) - 1]) if word in words else 0


@dataclass
class SmallSuite:
    """A folder with the suite's own tests, five prompts, and nothing recorded yet."""

    folder: Path
    options: tuple[str, ...] = ()
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    first: Outcome | None = None

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start ``pytest -m lossless`` there."""
        command = [sys.executable, "-m", "pytest", "-m", "lossless", "-p", "no:cacheprovider", *self.options, *args]
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
        process = subprocess.Popen(
            command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.running.append(process)
        return process

    def run(self, *args: str) -> Outcome:
        return self.finish(self.start(*args))

    def finish(self, process: subprocess.Popen[str]) -> Outcome:
        output, _ = process.communicate(timeout=300)
        return Outcome(process.returncode, output)

    def lossless(self, *args: str) -> Outcome:
        """The ``lossless`` command there."""
        done = subprocess.run(
            [sys.executable, "-m", "lossless", *args],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return Outcome(done.returncode, done.stdout)

    @property
    def runs(self) -> list[Path]:
        return sorted((self.folder / ".lossless" / "runs").glob("*"))

    @property
    def golden(self) -> Path:
        return self.folder / "golden" / "tiny"

    def evidence(self) -> Any:
        return json.loads((self.runs[-1] / "evidence.json").read_text(encoding="utf-8"))

    def servers(self) -> list[psutil.Process]:
        """Reference servers that were started in this folder's runs and still live."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if "lossless.reference" in words and process.is_running() and self._ours(process):
                found.append(process)
        return found

    def _ours(self, process: psutil.Process) -> bool:
        try:
            return process.cwd() == str(self.folder) and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def make_suite(folder: Path) -> Iterator[SmallSuite]:
    tests = folder / "tests" / "lossless"
    tests.mkdir(parents=True)
    for path in (REPOSITORY / "tests" / "lossless").glob("*.py"):
        (tests / path.name).write_bytes(path.read_bytes())
    (folder / "conftest.py").write_bytes((REPOSITORY / "conftest.py").read_bytes())
    (folder / "prompts.toml").write_text(PROMPTS, encoding="utf-8")
    (folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = "-ra"\n[tool.lossless]\nprofile = "tiny"\nprompts = "prompts.toml"\n',
        encoding="utf-8",
    )
    suite = SmallSuite(folder)
    yield suite
    for process in suite.running:
        if process.poll() is None:
            process.kill()
            process.wait()
    for process in suite.servers():
        process.kill()
