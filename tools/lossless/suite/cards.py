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
    that need two cards never block each other. ``waiting`` is told once when no place is free.

    Raises:
        UsageError: more places are needed than there are.
    """
    if count > len(places):
        raise UsageError(f"{count} cards are needed and there are {len(places)}: {', '.join(places) or 'none'}")
    told = False
    while True:
        held: list[tuple[str, FileLock]] = []
        with FileLock(folder / ".choosing.lock", thread_local=False):
            for place in places:
                lock = FileLock(folder / f"{_file_name(place)}.lock", thread_local=False)
                with contextlib.suppress(Timeout):
                    lock.acquire(timeout=0)
                    held.append((place, lock))
                if len(held) == count:
                    break
            if len(held) == count:
                break
            for _, lock in held:
                lock.release()
        if not told:
            waiting(f"waiting for {count} of {len(places)} cards ({', '.join(places)})")
            told = True
        time.sleep(POLL_S)
    try:
        yield tuple(place for place, _ in held)
    finally:
        for _, lock in held:
            lock.release()


def _file_name(place: str) -> str:
    """A card may be called MIG-GPU-…/1/0; no separator becomes part of a path."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", place)
