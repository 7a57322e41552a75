"""Ends a server with everything it started, and nothing else.

A server is started as the leader of a session of its own. What belongs to it: the processes of that session and their
descendants. All signals go through psutil handles, which refuse to signal a reused process id.
"""

import os
import time
from dataclasses import dataclass
from typing import Self

import psutil


@dataclass(frozen=True, slots=True)
class Session:
    """The session opened by process ``leader``; ``handle`` tells that process from a later one with the same id.

    The kernel gives out the id again only after the whole session is gone. So another process under the leader's id
    means that there is nothing left of ours.
    """

    leader: int
    handle: psutil.Process | None

    @classmethod
    def of(cls, leader: int) -> Self:
        """The session of a leader that was just started."""
        try:
            return cls(leader, psutil.Process(leader))
        except psutil.NoSuchProcess:
            return cls(leader, None)

    def members(self) -> list[psutil.Process]:
        """The live processes of the session and their descendants; never this process."""
        try:
            if psutil.Process(self.leader) != self.handle:
                return []
        except psutil.NoSuchProcess:
            pass
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.leader and _lives(process):
                    found[process.pid] = process
            except (ProcessLookupError, PermissionError):
                continue
        for process in list(found.values()):
            try:
                found.update({child.pid: child for child in process.children(recursive=True) if _lives(child)})
            except psutil.NoSuchProcess:
                continue
        found.pop(os.getpid(), None)
        return list(found.values())

    def end(self, *, grace_s: float, kill_s: float = 10.0) -> list[int]:
        """Ask the session to end (TERM), and after ``grace_s`` seconds make it (KILL).

        Only the leader is asked while it lives: it ends its own workers in order. Returns the ids that still run
        ``kill_s`` seconds after the first KILL: normally none.
        """
        known: dict[int, psutil.Process] = {}
        deadline = time.monotonic() + grace_s
        asked: set[int] = set()
        while (alive := self._alive(known)) and time.monotonic() < deadline:
            leads = [p for p in alive if p.pid == self.leader] or alive
            _signal([p for p in leads if p.pid not in asked], kill=False)
            asked.update(p.pid for p in leads)
            time.sleep(0.03)
        deadline = time.monotonic() + kill_s
        while (alive := self._alive(known)) and time.monotonic() < deadline:
            _signal(alive, kill=True)
            time.sleep(0.03)
        return sorted(p.pid for p in alive)

    def _alive(self, known: dict[int, psutil.Process]) -> list[psutil.Process]:
        # Once seen, a process stays known: one that left the session is still found.
        for process in self.members():
            known.setdefault(process.pid, process)
        return [p for p in known.values() if _lives(p)]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(processes: list[psutil.Process], *, kill: bool) -> None:
    for process in processes:
        try:
            if kill:
                process.kill()
            else:
                process.terminate()
        except psutil.NoSuchProcess:
            continue
