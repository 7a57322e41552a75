"""Two commands on the same cards: none holds a card while it waits for one, so both end."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lossless.record.store import ServerState
from lossless.suite import cards, session
from lossless.suite.options import Options
from lossless.suite.session import SuiteSession

WAIT_S = 60.0


@dataclass(frozen=True)
class Slow:
    """In place of the recorder: leases like it and waits like it, and answers nothing. Variants are slow to ask for a
    card, so a baseline that does not let them go first has one before them."""

    store: Any
    make: Any
    connect: Any
    progress: Any
    lease: Callable[[str], Any]
    attempt: str
    before_scoring: Callable[[], None] = lambda: None

    def record(self, name: str) -> ServerState:
        state: ServerState | None = self.store.server(name)
        if state is not None and state.ended_in(self.attempt):
            return state
        if name != "baseline":
            time.sleep(0.1)
        with self.lease(name):
            if name == "baseline":
                self.before_scoring()
            time.sleep(0.02)
        state = ServerState(name, True, attempt=self.attempt)
        self.store.write_server(state)
        return state


class Told:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def starting(self, server: str, line: str) -> None:
        self.lines.append(f"{server}: {line}")


@pytest.fixture
def two_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cards"
    folder.mkdir()
    monkeypatch.setattr(session, "lock_folder", lambda: folder)
    monkeypatch.setattr(session, "Recorder", Slow)
    for module in (session, cards):
        monkeypatch.setattr(module, "POLL_S", 0.01)


@contextmanager
def commands(root: Path, count: int) -> Iterator[list[SuiteSession]]:
    found = []
    for k in range(count):
        options = Options(prompts="quick", gpus="0,1", runs=root / f"runs-{k}", golden=root / "none")
        one = SuiteSession(options, attempt=f"attempt-{k}")
        one.hold()
        found.append(one)
    yield found
    for one in found:
        one.release()


@pytest.mark.usefixtures("two_cards")
def test_two_commands_on_two_cards_both_end(tmp_path: Path) -> None:
    with commands(tmp_path, 2) as both:
        told = [Told(), Told()]
        threads = [
            threading.Thread(target=lambda s=s, t=t: s.record(t), daemon=True)  # type: ignore[misc]
            for s, t in zip(both, told, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert not any(thread.is_alive() for thread in threads), "they wait for each other"
        assert all(one.store.complete for one in both)


@pytest.mark.usefixtures("two_cards")
def test_workers_of_one_command_share_its_servers(tmp_path: Path) -> None:
    with commands(tmp_path, 1) as (first,):
        workers = [SuiteSession(first.options, attempt=first.attempt, run=first.store.path) for _ in range(3)]
        threads = [threading.Thread(target=w.record, args=(Told(),), daemon=True) for w in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert not any(thread.is_alive() for thread in threads)
        assert first.store.complete


@pytest.mark.usefixtures("two_cards")
def test_the_baseline_says_what_it_waits_for(tmp_path: Path) -> None:
    with commands(tmp_path, 1) as (one,):
        told = Told()
        one.record(told)  # type: ignore[arg-type]
        assert one.store.complete
        waits = [line for line in told.lines if "to start first" in line]
        assert len(waits) == len(set(waits)), "told once"
        assert all(line.startswith("baseline: waiting for ") for line in waits)
