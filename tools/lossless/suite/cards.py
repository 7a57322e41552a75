"""Leasing cards (or places, where there are no cards) between the workers of this machine, by file lock."""

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from lossless.errors import UsageError

POLL_S = 0.2
TELL_EVERY_S = 60.0


def lock_folder() -> Path:
    """Where card locks live: one folder for every suite of this user on this machine."""
    folder = Path(tempfile.gettempdir()) / f"lossless-cards-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise UsageError(f"{folder} belongs to somebody else; card leases need a folder of your own", hint="set TMPDIR")
    return folder


def visible_cards(gpus: str | None) -> tuple[str, ...]:
    """The cards servers may use: ``gpus``, or the caller's CUDA_VISIBLE_DEVICES; empty when neither says.

    Raises:
        UsageError: an entry appears twice or is empty.
    """
    text = gpus if gpus is not None else os.environ.get("CUDA_VISIBLE_DEVICES", "")
    cards = tuple(c.strip() for c in text.split(",")) if text.strip() else ()
    if len(set(cards)) != len(cards) or "" in cards:
        raise UsageError(f"--lossless-gpus {text!r}: expected distinct cards such as 0,1")
    return cards


@contextlib.contextmanager
def lease(folder: Path, places: Sequence[str], count: int, waiting: Callable[[str], None]) -> Iterator[tuple[str, ...]]:
    """Hold ``count`` of ``places`` while the block runs. The operating system frees a lock whose holder dies.

    All or nothing: what was taken is given back before waiting, and only one worker chooses at a time, so two workers
    that need two cards never block each other. ``waiting`` is told which cards are taken and by which process, at once
    and then once a minute.

    Raises:
        UsageError: more places are needed than there are.
    """
    if count > len(places):
        raise UsageError(f"{count} cards are needed and there are {len(places)}: {', '.join(places) or 'none'}")
    began = time.monotonic()
    told = 0
    while not (held := _take(folder, places, count)):
        waited = time.monotonic() - began
        if waited >= told * TELL_EVERY_S:
            waiting(_waiting_line(folder, places, count, waited))
            told += 1
        time.sleep(POLL_S)
    try:
        yield tuple(place for place, _ in held)
    finally:
        _release(held)


Held = list[tuple[str, FileLock]]


def _take(folder: Path, places: Sequence[str], count: int) -> Held:
    """``count`` free places, locked; or none at all."""
    held: Held = []
    with FileLock(folder / ".choosing.lock", thread_local=False):
        for place in places:
            lock = FileLock(folder / f"{_file_name(place)}.lock", thread_local=False)
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=0)
                held.append((place, lock))
            if len(held) == count:
                for taken, _ in held:
                    _note(folder, taken).write_text(str(os.getpid()), encoding="utf-8")
                return held
        _release(held)
    return []


def _release(held: Held) -> None:
    for _, lock in held:
        lock.release()


def _waiting_line(folder: Path, places: Sequence[str], count: int, waited_s: float) -> str:
    """What is waited for, and which process took each card last (it may have ended just now)."""
    holders = []
    for place in places:
        with contextlib.suppress(OSError):
            holders.append(f"{place} by process {_note(folder, place).read_text(encoding='utf-8')}")
    line = f"waiting for {count} of {len(places)} cards ({', '.join(places)})"
    line += f"; last taken: {', '.join(holders)}" if holders else ""
    return line + (f"; {waited_s:.0f} s so far" if waited_s >= 1 else "")


def _note(folder: Path, place: str) -> Path:
    return folder / f"{_file_name(place)}.holder"


def _file_name(place: str) -> str:
    """A card may be called MIG-GPU-…/1/0; no separator becomes part of a path."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", place)
