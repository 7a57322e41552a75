"""Ends a server whose owner is gone: ``python -m lossless.servers.watchdog PARENT_PID PGID``.

SGLang does not notice when the process that launched it is killed outright, and would keep the card. This small
process waits for its own standard input to close (the launcher holds the other end and the kernel closes it, however
the launcher ends) or for the launcher's id to be gone or reused, then ends what is left of the server's session.
"""

import os
import select
import sys

import psutil

from lossless.servers.process_tree import Session


def main(argv: list[str]) -> int:
    """Watch until the parent or the server is gone. Exit status 0, or 2 for wrong arguments."""
    if len(argv) != 2 or not all(word.isdigit() for word in argv):
        print("usage: python -m lossless.servers.watchdog PARENT_PID PGID", file=sys.stderr)
        return 2
    parent_pid, leader = int(argv[0]), int(argv[1])
    if leader == os.getsid(0) or leader <= 1:
        print(f"refusing to watch session {leader}: it is not a server's own", file=sys.stderr)
        return 2
    session = Session.of(leader)
    try:
        # is_running() compares creation times, so a reused id does not pass for the parent.
        parent = psutil.Process(parent_pid)
    except psutil.NoSuchProcess:
        session.end(grace_s=2.0)
        return 0
    while session.members():
        readable, _, _ = select.select([sys.stdin.buffer], [], [], 2.0)
        closed = bool(readable) and not os.read(sys.stdin.fileno(), 1)
        if closed or os.getppid() != parent_pid or not parent.is_running():
            session.end(grace_s=2.0)
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
