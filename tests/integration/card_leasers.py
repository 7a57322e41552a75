"""Processes that lease cards over and over, and see for themselves whether a card is ever held twice.

Run as a program: FOLDER CARDS COUNTS ROUNDS VICTIMS LOCKED. One process a number in COUNTS (``1,2,1``); the first
VICTIMS of them kill themselves with SIGKILL in the middle of their last lease. LOCKED 0 leases without a lock, to show
that an overlap would be seen.
"""

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from lossless.suite import cards


def log(folder: Path, line: str) -> None:
    """Append one line; one write with O_APPEND is never torn, and the order of lines is the order of events."""
    file = os.open(folder / "events.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def mark(folder: Path, card: str) -> None:
    """Leave a marker that only one may have. One whose owner is dead was left by a process that was killed."""
    path = folder / f"{card}.busy"
    while True:
        with contextlib.suppress(FileExistsError):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(file, str(os.getpid()).encode())
            os.close(file)
            return
        owner = path.read_text() if path.exists() else "gone"
        if owner == "gone" or not ends(int(owner or "0")):
            log(folder, f"overlap {card} {os.getpid()} {owner}")
        path.unlink(missing_ok=True)


def ends(pid: int) -> bool:
    """Whether a process is dead, or dies within seconds: its locks go a moment before it does."""
    for _ in range(500):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


@contextlib.contextmanager
def no_lease(_folder: Path, places: list[str], count: int, _waiting: object) -> Iterator[tuple[str, ...]]:
    yield tuple(places[:count])


def work(folder: Path, places: list[str], count: int, rounds: int, victim: bool, locked: bool) -> None:
    rng = random.Random(os.getpid())
    lease = cards.lease if locked else no_lease
    for number in range(rounds):
        with lease(folder / "locks", places, count, lambda line: log(folder, f"waiting {os.getpid()} {line}")) as held:
            for card in held:
                mark(folder, card)
                log(folder, f"start {card} {os.getpid()}")
            time.sleep(rng.uniform(0.001, 0.01))
            if victim and number == rounds - 1:
                log(folder, f"killed {os.getpid()}")
                os.kill(os.getpid(), signal.SIGKILL)
            for card in held:
                log(folder, f"stop {card} {os.getpid()}")
                (folder / f"{card}.busy").unlink(missing_ok=True)


def main(folder: Path, places: list[str], counts: list[int], rounds: int, victims: int, locked: bool) -> int:
    """Fork the processes and wait for all of them; the exit status is the number of unexpected ends."""
    cards.POLL_S = 0.005
    (folder / "locks").mkdir()
    children = []
    for number, count in enumerate(counts):
        child = os.fork()
        if child == 0:
            work(folder, places, count, rounds, number < victims, locked)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return sum(code != (-signal.SIGKILL if k < victims else 0) for k, code in enumerate(codes))


if __name__ == "__main__":
    _, where, names, wanted, times, dead, with_locks = sys.argv
    raise SystemExit(
        main(
            Path(where),
            names.split(","),
            [int(n) for n in wanted.split(",")],
            int(times),
            int(dead),
            with_locks == "1",
        )
    )
