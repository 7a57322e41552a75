"""The suite on real SGLang 0.5.19 (CPU), as a user runs it, and what a user reads when a server cannot do its work.

Slow, because each server takes about a minute to start; so one recorded run serves several tests.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from filelock import FileLock
from small_suite import Outcome, SmallSuite, make_suite

from lossless.errors import ServerError
from lossless.profiles import load_profile
from lossless.servers import make_server
from lossless.servers.diagnosis import explain
from lossless.servers.ports import PortLease
from lossless.sglang_cpu import site_path

pytestmark = pytest.mark.sglang

PYTHON, SITE = "LOSSLESS_SGLANG_PYTHON", "LOSSLESS_SGLANG_CPU_SITE"
REAL = ("--lossless-profile", "tiny-sglang-cpu")
PATIENCE_S = 900.0
ONE_VARIANT = """\
description = "real SGLang on the CPU, NEXTN only"
kind = "sglang"
target = "{target}"
dtype = "float32"
parallel_servers = 2
args = {{ device = "cpu", {args} }}
env = {{ SGLANG_USE_CPU_ENGINE = "1", HF_HUB_OFFLINE = "1", PYTHONPATH = "${{LOSSLESS_SGLANG_CPU_SITE}}" }}
[variants.nextn]
algorithm = "NEXTN"
"""


@pytest.fixture(scope="module", autouse=True)
def sglang_environment() -> Iterator[None]:
    if not os.environ.get(PYTHON):
        pytest.skip(
            f"{PYTHON} is not set; it names the Python of an environment made by `python -m lossless.sglang_cpu DIR`"
        )
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get(SITE):
            patch.setenv(SITE, str(site_path()))
        yield


def _finish(process: "subprocess.Popen[str]") -> Outcome:
    output, _ = process.communicate(timeout=PATIENCE_S)
    return Outcome(process.returncode, output)


def _wait(what: Callable[[], object], process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.1)


def _processes(suite: SmallSuite) -> list[psutil.Process]:
    """Everything that runs in the suite's folder: servers and what they started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(suite.folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _scheduler(suite: SmallSuite, algorithm: str) -> psutil.Process:
    """The process that computes; of a server's processes it is the one the kernel ends when memory runs out."""
    server = next(p for p in _processes(suite) if {"sglang.launch_server", algorithm} <= set(p.cmdline()))
    return next(p for p in server.children() if "scheduler" in p.cmdline()[0])


def _recorded(suite: SmallSuite, name: str) -> list[bytes]:
    path = suite.runs[0] / "records" / f"{name}.jsonl" if suite.runs else None
    return path.read_bytes().splitlines() if path is not None and path.exists() else []


@pytest.fixture(scope="module")
def real_suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallSuite]:
    for suite in make_suite(tmp_path_factory.mktemp("real")):
        yield suite
        for left in _processes(suite):
            left.kill()


@pytest.fixture(scope="module")
def interrupted(real_suite: SmallSuite) -> Outcome:
    """A run in which NEXTN's scheduler was killed after two answers."""
    process = real_suite.start(*REAL)
    _wait(lambda: len(_recorded(real_suite, "nextn")) >= 2, process)
    _scheduler(real_suite, "NEXTN").send_signal(signal.SIGKILL)
    return _finish(process)


@pytest.fixture(scope="module")
def second_command(real_suite: SmallSuite, interrupted: Outcome) -> "subprocess.Popen[str]":
    """The same command once more, started; it records what is missing."""
    assert interrupted.status == 1, interrupted.output
    return real_suite.start(*REAL)


def test_a_killed_server_is_named_and_proves_nothing(real_suite: SmallSuite, interrupted: Outcome) -> None:
    suite, outcome = real_suite, interrupted
    assert outcome.status == 1, outcome.output
    assert "server 'nextn' ended while it was needed (killed by SIGKILL)" in outcome.output, outcome.output
    assert "the server was killed from outside (SIGKILL)" in outcome.output, outcome.output
    assert "inconclusive (missing)" in outcome.output, outcome.output
    verdicts = [v for v in suite.evidence()["verdicts"] if v["stage"] == "plain"]
    said = {name: {v["verdict"] for v in verdicts if v["variant"] == name} for name in ("nextn", "dflash")}
    assert said == {"nextn": {"identical", "inconclusive"}, "dflash": {"identical"}}, outcome.output
    assert not _processes(suite), "all servers are stopped"


@pytest.mark.usefixtures("second_command")  # which takes a minute, with one server: this one starts meanwhile
def test_a_taken_port_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang binds its port last of all, and when it cannot, it says so and stays."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        lock = FileLock(tmp_path / "port.lock", thread_local=False)
        monkeypatch.setattr("lossless.servers.launched.lease_port", lambda _avoid: PortLease(port, lock))
        monkeypatch.setattr("lossless.servers.launched._PORT_TRIES", 1)
        server = make_server(load_profile("tiny-sglang-cpu"), "baseline", log_dir=tmp_path, explain=explain)
        with pytest.raises(ServerError, match="server 'baseline' could not bind a port") as caught:
            server.start()
    assert "the server's port is taken by another process" in str(caught.value), caught.value
    assert "address already in use" in str(caught.value), caught.value


def test_a_second_command_goes_on_and_proves_both_variants(
    real_suite: SmallSuite, second_command: "subprocess.Popen[str]"
) -> None:
    suite, outcome = real_suite, _finish(second_command)
    assert outcome.status == 0, outcome.output
    evidence = suite.evidence()
    assert evidence["status"] == "proven", outcome.output
    assert len(suite.runs) == 1, "the unfinished run was continued"
    plain = [v for v in evidence["verdicts"] if v["stage"] == "plain"]
    assert {v["variant"] for v in plain} == {"nextn", "dflash"}
    assert len(plain) == 10
    assert {v["verdict"] for v in evidence["verdicts"]} == {"identical"}, outcome.output
    assert all(control["ok"] for control in evidence["controls"]), outcome.output
    assert not _processes(suite), "all servers are stopped"


def test_an_unknown_flag_is_named(small_suite: SmallSuite) -> None:
    profile = ONE_VARIANT.format(target="builtin:tiny", args="no-such-flag = true")
    (small_suite.folder / "flag.toml").write_text(profile, encoding="utf-8")
    outcome = _finish(small_suite.start("tests/lossless/test_parity.py", "--lossless-profile", "flag.toml"))
    assert outcome.status == 1, outcome.output
    assert "the server does not know --no-such-flag" in outcome.output, outcome.output
    assert "correct `args` in the profile" in outcome.output, outcome.output
    assert not _processes(small_suite)


def test_a_wrong_model_path_is_named_before_anything_starts(small_suite: SmallSuite) -> None:
    profile = ONE_VARIANT.format(target="./no-model", args="sleep-on-idle = true")
    (small_suite.folder / "path.toml").write_text(profile, encoding="utf-8")
    outcome = _finish(small_suite.start("tests/lossless/test_parity.py", "--lossless-profile", "path.toml"))
    assert outcome.status != 0, outcome.output
    assert str(small_suite.folder / "no-model") in outcome.output, outcome.output
    assert "model folder" in outcome.output, outcome.output
    assert "--lossless-target" in outcome.output, outcome.output
    assert not list(small_suite.folder.glob(".lossless/runs/*/logs/*")), "no server was started"
