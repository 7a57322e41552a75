"""Servers under several workers get cards of their own, and a killed worker costs no more than it was doing."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from small_suite import SmallSuite

from lossless.record.store import Record, RunStore
from lossless.suite.cards import lease
from lossless.suite.session import in_use

VISIBLE = "CUDA_VISIBLE_DEVICES"
WORKERS = ("-n", "3", "--dist", "loadgroup")
OWN_ENVIRONMENT = """\
import os

import pytest


@pytest.mark.lossless
def test_cards_are_set_for_servers_only(lossless_run):
    assert lossless_run.manifest.variants
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
"""


def wait(what: Callable[[], object], *, running: psutil.Process | None = None, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert running is None or running.is_running(), "the command ended before it happened"
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def _own_cards(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Card locks of this test only, and no cards from outside."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("locks")))
    monkeypatch.delenv(VISIBLE, raising=False)


@contextlib.contextmanager
def card_taken(card: str) -> Iterator[None]:
    """Another program of this user has a card."""
    folder = Path(os.environ["TMPDIR"]) / f"lossless-cards-{os.getuid()}"
    folder.mkdir(mode=0o700)
    with lease(folder, [card], 1, print):
        yield


def cards_now(suite: SmallSuite) -> dict[int, str | None]:
    """``CUDA_VISIBLE_DEVICES`` of each server that runs, by process id."""
    found = {}
    for server in suite.servers():
        try:
            found[server.pid] = server.environ().get(VISIBLE)
        except psutil.Error:
            continue  # it ended just now
    return found


@pytest.mark.slow
def test_servers_of_three_workers_share_two_cards(small_suite: SmallSuite) -> None:
    (small_suite.folder / "tests" / "lossless" / "test_own_environment.py").write_text(OWN_ENVIRONMENT)
    seen: list[dict[int, str | None]] = []
    with card_taken("0"):
        process = small_suite.start(*WORKERS, "--lossless-gpus", "0,1")
        wait(
            lambda: any(records(run, "nextn").exists() or records(run, "baseline").exists() for run in small_suite.runs)
        )
        assert list(cards_now(small_suite).values()) == ["1"], "the other card belongs to somebody else"
    while process.poll() is None:
        if (now := cards_now(small_suite)) and now not in seen:
            seen.append(now)
        time.sleep(0.05)
    outcome = small_suite.finish(process)
    assert outcome.status == 0, outcome.output
    assert all(len(set(now.values())) == len(now) for now in seen), f"two servers on one card at once: {seen}"
    used = {pid: card for now in seen for pid, card in now.items()}
    assert len(used) == 3, "baseline and two variants"
    assert set(used.values()) == {"0", "1"}
    assert max(len(now) for now in seen) == 2, "two cards, two servers side by side"
    message = f"waiting for 1 of 2 cards (0, 1); last taken: 0 by process {os.getpid()}"
    assert message in outcome.output


def records(run: Path, name: str) -> Path:
    return run / "records" / f"{name}.jsonl"


def lines(suite: SmallSuite, name: str) -> int:
    return sum(records(run, name).read_bytes().count(b"\n") for run in suite.runs if records(run, name).exists())


def whole_lines(path: Path) -> bytes:
    """What a reader gets: a crash may have cut the last line short."""
    text = path.read_bytes() if path.exists() else b""
    return text[: text.rfind(b"\n") + 1]


@pytest.mark.slow
def test_a_killed_worker_costs_only_what_it_was_doing(small_suite: SmallSuite) -> None:
    process = small_suite.start("-n", "2", "--dist", "loadgroup", "--max-worker-restart", "0", "--lossless-gpus", "0")
    command = psutil.Process(process.pid)
    wait(lambda: lines(small_suite, "dflash") >= 2, running=command)
    (run,) = small_suite.runs
    assert in_use(run), "the controlling process holds the run"
    for worker in {parent for s in small_suite.servers() if (parent := s.parent())} | set(command.children()):
        worker.kill()
    outcome = small_suite.finish(process)
    assert outcome.status != 0
    wait(lambda: not small_suite.servers())
    assert not in_use(run)

    store = RunStore(run)
    kept = {name: whole_lines(records(run, name)) for name in ("nextn", "dflash")}
    finished = records(run, "nextn").stat().st_mtime_ns
    assert kept["dflash"].count(b"\n") < kept["nextn"].count(b"\n")
    again = small_suite.run("-n", "2", "--dist", "loadgroup", "--lossless-gpus", "0")
    assert again.status == 0, again.output
    assert small_suite.runs == [run], "the unfinished run is continued"
    assert records(run, "nextn").stat().st_mtime_ns == finished, "a finished server is not touched"
    assert records(run, "nextn").read_bytes() == kept["nextn"]
    now = records(run, "dflash").read_bytes()
    assert now.startswith(kept["dflash"]), "what was kept is the same byte for byte"
    asked = [r.key for r in store.records("dflash")]
    assert len(asked) == len(set(asked)) == kept["nextn"].count(b"\n"), "nothing was asked twice"
    assert {r.key for r in store.records("nextn")} == set(asked)
    assert all(isinstance(r, Record) and r.answer is not None for r in store.records("dflash"))
    assert small_suite.evidence()["status"] == "proven"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadgroup")], ids=["alone", "workers"])
def test_a_second_command_starts_its_own_run(small_suite: SmallSuite, workers: tuple[str, ...]) -> None:
    """Beside a command that runs, then after that one was killed."""
    tests = ("tests/lossless/test_controls.py", "-k", "floor or repeat or itself")
    process = small_suite.start(*workers, *tests)
    wait(lambda: lines(small_suite, "nextn") >= 1, running=psutil.Process(process.pid))
    (first,) = small_suite.runs
    assert in_use(first)
    beside = small_suite.start(*tests)
    wait(
        lambda: len([run for run in small_suite.runs if (run / "run.json").exists()]) == 2,
        running=psutil.Process(beside.pid),
    )
    second = small_suite.runs[-1]
    assert second != first
    assert in_use(second)
    for running in (beside, process):
        running.kill()
    line = f"run {first.name} is unfinished and another command is recording it: starting a new run"
    assert small_suite.finish(beside).output.count(line) == 1
    process.wait()
    wait(lambda: not small_suite.servers())
    assert not in_use(first)
    outcome = small_suite.run(*tests)
    assert outcome.status == 0, outcome.output
    assert small_suite.runs == [first, second], "the run of a killed command is resumed, the newest first"
    assert RunStore(second).complete
