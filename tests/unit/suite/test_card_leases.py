"""Leasing cards between processes: all or nothing, told when it waits, freed when the holder dies."""

import contextlib
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock, Timeout
from holding import holder

from lossless.errors import UsageError
from lossless.suite import cards
from lossless.suite.cards import lease, lock_folder, visible_cards

WAIT_S = 60.0  # how long a thread or process may take at most; nothing depends on how long it really takes

HOLDER = """
import sys
from pathlib import Path
from lossless.suite.cards import lease
with lease(Path(sys.argv[1]), ["0", "1"], 2, print):
    print("held", flush=True)
    sys.stdin.read()
"""


def nothing_to_tell(line: str) -> None:
    raise AssertionError(f"nobody should have to wait: {line}")


def free(folder: Path, place: str) -> bool:
    try:
        with FileLock(folder / f"{place}.lock", timeout=0, thread_local=False):
            return True
    except Timeout:
        return False


def test_one_card_is_held_while_the_block_runs(tmp_path: Path) -> None:
    with lease(tmp_path, ["0", "1"], 1, nothing_to_tell) as held:
        assert held == ("0",)
        assert not free(tmp_path, "0")
        assert free(tmp_path, "1")
        with lease(tmp_path, ["0", "1"], 1, nothing_to_tell) as other:
            assert other == ("1",)
    assert free(tmp_path, "0")


def test_a_card_is_given_back_when_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), lease(tmp_path, ["0"], 1, nothing_to_tell):
        raise RuntimeError
    assert free(tmp_path, "0")


@pytest.mark.parametrize("places", [[], ["0"]])
def test_more_than_there_is(tmp_path: Path, places: list[str]) -> None:
    with pytest.raises(UsageError, match=f"2 cards are needed and there are {len(places)}"):
        lease(tmp_path, places, 2, nothing_to_tell).__enter__()


def wait_in_thread(folder: Path, count: int, told: list[str], got: list[tuple[str, ...]]) -> threading.Thread:
    """Lease in another thread and give back at once."""

    def work() -> None:
        with lease(folder, ["0", "1", "2"], count, told.append) as held:
            got.append(held)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_all_or_nothing_and_a_word_while_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one of three taken, a worker that needs three holds none of the others while it waits."""
    told: list[str] = []
    got: list[tuple[str, ...]] = []
    seen: list[list[bool]] = []
    slept = threading.Event()
    real_sleep = cards.time.sleep

    def sleep(seconds: float) -> None:
        seen.append([free(tmp_path, place) for place in "012"])
        slept.set()
        real_sleep(seconds)

    monkeypatch.setattr(cards, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: 0.0))
    monkeypatch.setattr(cards, "POLL_S", 0.01)
    with lease(tmp_path, ["1"], 1, nothing_to_tell):
        thread = wait_in_thread(tmp_path, 3, told, got)
        assert slept.wait(WAIT_S)
        assert got == []
    thread.join(WAIT_S)
    assert seen[0] == [True, False, True]
    assert got == [("0", "1", "2")]
    assert len(told) == 1, "told once, not at every try"
    assert told[0].startswith(f"waiting for 3 of 3 cards (0, 1, 2); last taken: 1 by process {os.getpid()}")


def test_waiting_says_what_for_on_whom_and_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    told: list[str] = []
    stack = contextlib.ExitStack()

    def sleep(_seconds: float) -> None:
        now[0] += 25.0
        if now[0] > 150:
            stack.close()

    monkeypatch.setattr(cards, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now[0]))
    stack.enter_context(lease(tmp_path, ["0", "GPU-1"], 2, nothing_to_tell))
    with lease(tmp_path, ["0", "GPU-1"], 1, told.append) as held:
        assert held == ("0",)
    pid = os.getpid()
    line = f"waiting for 1 of 2 cards (0, GPU-1); last taken: 0 by process {pid}, GPU-1 by process {pid}"
    assert told == [line, f"{line}; 75 s so far", f"{line}; 125 s so far"]


def test_many_workers_that_need_two_of_three_all_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "POLL_S", 0.01)
    got: list[tuple[str, ...]] = []
    threads = [wait_in_thread(tmp_path, 2, [], got) for _ in range(6)]
    for thread in threads:
        thread.join(WAIT_S)
    assert len(got) == 6
    assert all(len(set(held)) == 2 for held in got)


def test_cards_of_a_killed_process_are_free_again(tmp_path: Path) -> None:
    with holder(HOLDER, tmp_path) as (process, printed):
        assert printed.readline() == "held\n"
        assert not free(tmp_path, "0")
        assert not free(tmp_path, "1")
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_S)
        with lease(tmp_path, ["0", "1"], 2, nothing_to_tell) as held:
            assert held == ("0", "1")


@pytest.mark.parametrize("place", ["MIG-GPU-8f6e/1/0", "../../escape", "GPU-8f6e4a2c"])
def test_names_of_cards_stay_inside_the_folder(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    with lease(folder, [place], 1, nothing_to_tell) as held:
        assert held == (place,)
        inside = {p.name for p in folder.iterdir() if p.name != ".choosing.lock"}
        assert {name.rpartition(".")[2] for name in inside} == {"lock", "holder"}
        assert len(inside) == 2
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b"]


def test_which_cards_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 3")
    assert visible_cards(None) == ("2", "3")
    assert visible_cards("0") == ("0",)
    assert visible_cards("") == ()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert visible_cards(None) == ()
    for text in ("0,0", "0,,1", ",0"):
        with pytest.raises(UsageError, match="expected distinct cards"):
            visible_cards(text)


def test_the_lock_folder_is_private_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = lock_folder()
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    assert lock_folder() == folder
