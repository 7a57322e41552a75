"""Free ports on the loopback interface, leased so that parallel workers of one user never get the same."""

import os
import random
import socket
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout

from lossless.errors import ServerError
from lossless.servers.argv import HOST

# Below Linux's ephemeral range (32768 up), so that no outgoing connection takes one. SGLang derives further ports
# from the one it is given (NCCL at 100 or more above it), hence the distance.
FIRST, LAST, APART = 20_000, 31_900, 100


class PortLease:
    """A port of ours until :meth:`release`; the lock goes with this process when it dies."""

    def __init__(self, port: int, lock: FileLock) -> None:
        self.port = port
        self._lock = lock

    def release(self) -> None:
        """Give the port back. Idempotent."""
        self._lock.release()


def lease_port(avoid: frozenset[int] = frozenset()) -> PortLease:
    """A port that nothing listens on, 100 apart from every other leased one.

    Raises:
        ServerError: all are taken.
    """
    candidates = [port for port in range(FIRST, LAST + 1, APART) if port not in avoid]
    random.shuffle(candidates)
    for port in candidates:
        # flock-based and not thread-local: released from whichever thread stops the server.
        lock = FileLock(_lock_folder() / f"{port}.lock", thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            continue
        if is_free(port):
            return PortLease(port, lock)
        lock.release()
    raise ServerError(f"no free port between {FIRST} and {LAST}", hint="stop other servers on this machine")


def is_free(port: int) -> bool:
    """Whether a server could bind the port on loopback, and on all interfaces, now."""
    for host in (HOST, ""):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As servers do; a listening socket still refuses, while one in TIME_WAIT does not.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True


def _lock_folder() -> Path:
    owner = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    folder = Path(tempfile.gettempdir()) / f"lossless-ports-{owner}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
