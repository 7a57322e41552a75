"""No launched server outlives this process: not at a normal exit, not at SIGTERM.

(Being killed outright cannot be caught here: the reference server watches ``--parent-pid``, SGLang gets a watchdog.)
"""

import atexit
import contextlib
import os
import signal
import threading
import weakref
from types import FrameType
from typing import Protocol


class Stoppable(Protocol):
    """What the registry needs of a server."""

    def stop(self) -> None:
        """End it in order."""

    def kill(self) -> None:
        """End it at once, without waiting for anything that a signal handler may not wait for."""


_live: "weakref.WeakSet[Stoppable]" = weakref.WeakSet()
_owner = 0


def watch(server: Stoppable) -> None:
    """Stop the server when this process exits or gets SIGTERM."""
    global _owner
    if _owner != os.getpid():
        _live.clear()
        _owner = os.getpid()
        atexit.register(_stop_all)
    _live.add(server)
    # Only where nobody else handles it, and only where Python allows it.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def unwatch(server: Stoppable) -> None:
    """The server is stopped."""
    _live.discard(server)


def _stop_all() -> None:
    if _owner != os.getpid():  # a forked child inherits the handler, not the servers
        return
    for server in list(_live):
        with contextlib.suppress(Exception):
            server.stop()


def _on_sigterm(signum: int, _frame: FrameType | None) -> None:
    if _owner == os.getpid():
        for server in list(_live):
            with contextlib.suppress(Exception):
                server.kill()
    # Then end as if nobody had caught it. Raising instead would be taken for a failed test and swallowed.
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
