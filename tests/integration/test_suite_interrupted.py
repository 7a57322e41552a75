"""Servers that die, commands that are interrupted, and going on afterwards."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from small_suite import SmallSuite


def _wait(what: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def _recorded(suite: SmallSuite, name: str) -> int:
    return sum(
        p.read_bytes().count(b"\n") for run in suite.runs for p in [run / "records" / f"{name}.jsonl"] if p.exists()
    )


def _server(suite: SmallSuite, word: str) -> list[psutil.Process]:
    return [p for p in suite.servers() if word in p.cmdline()]


def _gone(suite: SmallSuite) -> Callable[[], bool]:
    return lambda: not suite.servers()


def test_a_killed_server_is_inconclusive_and_the_next_run_goes_on(small_suite: SmallSuite) -> None:
    process = small_suite.start("tests/lossless/test_parity.py", "tests/lossless/test_controls.py")
    _wait(lambda: _recorded(small_suite, "dflash") >= 2)
    _server(small_suite, "DFLASH")[0].send_signal(signal.SIGKILL)
    outcome = small_suite.finish(process)
    assert outcome.status == 1, outcome.output
    assert "inconclusive" in outcome.output
    assert "SIGKILL" in outcome.output or "-9" in outcome.output
    evidence = small_suite.evidence()
    by_variant = {
        name: {v["verdict"] for v in evidence["verdicts"] if v["variant"] == name} for name in ("nextn", "dflash")
    }
    assert by_variant["nextn"] == {"identical"}
    assert "inconclusive" in by_variant["dflash"]
    assert "divergent" not in by_variant["dflash"]
    assert not small_suite.servers()

    kept = _lines(small_suite.runs[0], "nextn")
    again = small_suite.run()
    assert again.status == 0, again.output
    assert len(small_suite.runs) == 1, "the unfinished run is continued"
    assert _lines(small_suite.runs[0], "nextn") == kept, "finished answers are kept"
    assert small_suite.evidence()["status"] == "proven"


def _lines(run: Path, name: str) -> list[bytes]:
    return (run / "records" / f"{name}.jsonl").read_bytes().splitlines()


def test_ctrl_c_leaves_no_server_behind(small_suite: SmallSuite) -> None:
    process = small_suite.start("-x")
    _wait(lambda: _recorded(small_suite, "nextn") >= 1)
    assert small_suite.servers()
    process.send_signal(signal.SIGINT)
    outcome = small_suite.finish(process)
    assert outcome.status == 2, outcome.output
    assert "KeyboardInterrupt" in outcome.output
    assert not small_suite.servers()


def test_a_killed_command_leaves_no_server_behind(small_suite: SmallSuite) -> None:
    process = small_suite.start()
    _wait(lambda: _recorded(small_suite, "nextn") >= 1)
    process.kill()
    process.wait()
    _wait(_gone(small_suite), 10)
    assert not small_suite.servers()
