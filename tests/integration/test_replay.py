"""``lossless replay``: a planted fault is shown again, made smaller, and still fails when it is sent once more."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from click.testing import Result
from fault_runs import CHUNK, VARIANTS, FaultRuns, fault_runs
from typer.testing import CliRunner

from lossless.cli import app
from lossless.errors import UsageError
from lossless.reference.background import background

FAULT = "accept-unverified:1.0"
PROMPT = "unicode-mask-token"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultRuns]:
    with fault_runs(tmp_path_factory.mktemp("replay"), (PROMPT,), cap=16) as made:
        made.run("nextn", FAULT, (PROMPT,))
        yield made


def run_folder(runs: FaultRuns) -> Path:
    return runs.folder / f"nextn-{FAULT.replace(':', '-')}"


def words(runs: FaultRuns, *more: str, prompt: str = PROMPT) -> list[str]:
    return ["replay", str(run_folder(runs)), "--prompt", prompt, "--variant", "nextn", *more]


def replayed(runs: FaultRuns, *more: str) -> Result:
    """The command in this process: starting Python again takes longer than the replay."""
    return CliRunner().invoke(app, words(runs, *more), catch_exceptions=False)


@pytest.fixture(scope="module")
def faulty() -> Iterator[str]:
    with background([*CHUNK, *VARIANTS["nextn"], "--fault", FAULT]) as url:
        yield url


@pytest.fixture(scope="module")
def shortened(runs: FaultRuns, faulty: str) -> Any:
    done = replayed(runs, "--json", "--tries", "24", "--baseline-url", runs.url, "--variant-url", faulty)
    assert done.exit_code == 1, done.stderr
    assert "still divergent" in done.stderr, "progress is shown"
    return json.loads(done.stdout)


def test_a_fault_is_shown_again_and_made_smaller(shortened: Any) -> None:
    assert shortened["status"] == "divergent"
    assert shortened["first"]["verdict"] == "divergent"
    assert shortened["smallest"]["verdict"] == "divergent"
    assert 0 < len(shortened["request"]["input_ids"]) < 31
    assert shortened["request"]["sampling_params"]["max_new_tokens"] < 16
    assert 0 < shortened["tries"] <= 24
    assert shortened["hints"][0]["kind"] == "first draft token unverified"


def test_the_curl_commands_show_it_once_more(shortened: Any, runs: FaultRuns, faulty: str) -> None:
    """Each command is what a shell would send: run here without one."""
    said = []
    for line in shortened["curl"]:
        sent = shlex.split(line)
        url = next(w for w in sent if w.startswith("http"))
        assert "Authorization" not in line
        assert url.startswith("http://127.0.0.1:3000")
        url = url.replace("http://127.0.0.1:30000", runs.url).replace("http://127.0.0.1:30001", faulty)
        answer = httpx.post(url, json=json.loads(sent[sent.index("-d") + 1]) if "-d" in sent else None)
        assert answer.status_code == 200
        if "-d" in sent:
            said.append(answer.json()["output_ids"])
    baseline, variant = said
    assert baseline != variant
    assert [baseline, variant] == [shortened["outputs"][name]["ids"] for name in ("baseline", "nextn")]


def test_an_honest_variant_does_not_reproduce_it(runs: FaultRuns) -> None:
    with background([*CHUNK, *VARIANTS["nextn"]]) as url:
        done = replayed(runs, "--baseline-url", runs.url, "--variant-url", url)
    assert done.exit_code == 0, done.stderr
    assert "identical" in done.stdout
    assert done.stdout.splitlines()[-1] == "proven"


def test_two_servers_that_are_no_pair_prove_nothing(runs: FaultRuns) -> None:
    done = replayed(runs, "--baseline-url", runs.url, "--variant-url", runs.url)
    assert done.exit_code == 3, done.stderr
    assert "inconclusive (not-a-pair)" in done.stdout


def test_it_launches_the_runs_own_servers_with_the_fault(runs: FaultRuns) -> None:
    done = replayed(runs, "--no-shorten", "--curl")
    assert done.exit_code == 1, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("curl -s ") for line in lines)
    assert not ours(runs)


def test_ctrl_c_leaves_no_server(runs: FaultRuns) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "lossless", *words(runs)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "still divergent" in line:
            break
    assert ours(runs)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not ours(runs)


def ours(runs: FaultRuns) -> list[psutil.Process]:
    """Servers that were launched from this run's folder and still live."""
    return [p for p in psutil.process_iter() if belongs(p, run_folder(runs))]


def belongs(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(f.path.startswith(str(folder)) for f in process.open_files()) and "lossless.reference" in (
            process.cmdline()
        )
    except psutil.Error:
        return False


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--baseline-url", "http://127.0.0.1:1"), "give both --baseline-url and --variant-url"),
        (("--profile", "no-such-profile"), "the profile of this run cannot be read again"),
    ],
)
def test_bad_input_is_refused(runs: FaultRuns, more: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replayed(runs, *more)


def test_an_unknown_prompt_is_refused(runs: FaultRuns) -> None:
    with pytest.raises(UsageError, match="no prompt 'no-such-prompt'") as problem:
        CliRunner().invoke(app, words(runs, prompt="no-such-prompt"), catch_exceptions=False)
    assert problem.value.exit_code == 2
