"""Many processes lease few cards, and some are killed in the middle of it: no card twice, none lost, no deadlock."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import card_leasers
import pytest

import lossless
from lossless.suite.cards import lease

CARDS = ["0", "1", "2"]


def run(folder: Path, places: list[str], counts: list[int], rounds: int, victims: int, *, locked: bool = True) -> None:
    """Let the processes finish; a deadlock shows as the time limit."""
    environment = {**os.environ, "PYTHONPATH": str(Path(lossless.__file__).parents[1])}
    words = [",".join(places), ",".join(map(str, counts)), str(rounds), str(victims), str(int(locked))]
    done = subprocess.run(
        [sys.executable, card_leasers.__file__, str(folder), *words], env=environment, timeout=240, check=False
    )
    assert done.returncode == 0, "a process ended otherwise than it should"


def events(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "events.log").read_text(encoding="utf-8").splitlines()]


def overlaps(found: list[list[str]]) -> list[list[str]]:
    """Starts of a card that somebody has already; the cards of a process that was killed are free from then on."""
    holder: dict[str, str] = {}
    bad = []
    for kind, *rest in found:
        if kind == "overlap":
            bad.append([kind, *rest])
        elif kind == "start":
            if rest[0] in holder:
                bad.append([kind, *rest])
            holder[rest[0]] = rest[1]
        elif kind == "stop":
            holder.pop(rest[0], None)
        elif kind == "killed":
            holder = {card: pid for card, pid in holder.items() if pid != rest[0]}
    return bad


def check(folder: Path, places: list[str], counts: list[int], rounds: int, victims: int) -> None:
    run(folder, places, counts, rounds, victims)
    found = events(folder)
    assert overlaps(found) == []
    leases = Counter(kind for kind, *_ in found)
    assert leases["start"] == rounds * sum(counts)
    assert leases["killed"] == victims

    def nobody_waits(line: str) -> None:
        raise AssertionError(f"a card was not given back: {line}")

    with lease(folder / "locks", places, len(places), nobody_waits) as held:
        assert held == tuple(places)


@pytest.mark.parametrize(
    ("places", "counts", "victims"),
    [(CARDS, [1, 2, 1, 2, 1, 2, 1, 2], 3), (CARDS[:2], [2, 2, 2, 2], 1), (CARDS, [3, 1, 1, 2], 0)],
    ids=["eight-on-three", "all-need-both", "one-needs-all"],
)
def test_no_card_twice_none_lost_no_deadlock(
    tmp_path: Path, places: list[str], counts: list[int], victims: int
) -> None:
    check(tmp_path, places, counts, rounds=6, victims=victims)


@pytest.mark.slow
def test_the_same_a_thousand_times(tmp_path: Path) -> None:
    check(tmp_path, CARDS, [1, 2, 1, 2, 1, 2, 1, 2], rounds=125, victims=4)


def test_an_overlap_would_be_seen(tmp_path: Path) -> None:
    run(tmp_path, CARDS, [1, 2, 1, 2], rounds=6, victims=0, locked=False)
    assert overlaps(events(tmp_path))
