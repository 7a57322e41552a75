"""What a person sees while a run is recorded."""

import io

import pytest

from lossless.record.store import ServerState
from lossless.report.progress import RecordingProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_through(progress: RecordingProgress) -> None:
    with progress:
        progress.starting("nextn", "loading [weights]")
        progress.stage("nextn", "plain", 3, 1)
        progress.advance("nextn", "plain", 20)
        progress.finished(ServerState("nextn", complete=True, start_s=1.25, generate_s=2.5, score_s=0.75))
        progress.finished(ServerState("dflash", complete=False, problem="it died"))


def test_one_line_a_stage_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    progress = RecordingProgress(stream)
    assert not progress.on_terminal
    run_through(progress)
    assert stream.getvalue().splitlines() == [
        "lossless: nextn: loading [weights]",
        "lossless: nextn: plain, 3 requests, 1 kept from before",
        "lossless: nextn: recorded (start 1.2 s, generation 2.5 s, re-scoring 0.8 s)",
        "lossless: dflash: NOT COMPLETE: it died",
    ]


def test_quiet_says_nothing() -> None:
    stream = io.StringIO()
    run_through(RecordingProgress(stream, quiet=True))
    assert stream.getvalue() == ""


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    stream = Terminal()
    progress = RecordingProgress(stream)
    assert progress.on_terminal
    run_through(progress)
    text = stream.getvalue()
    assert "nextn: recorded" in text
    assert "NOT COMPLETE: it died" in text
