"""Ending a session: all of it, and nothing else."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from lossless.servers import watchdog
from lossless.servers.argv import own_python_path
from lossless.servers.process_tree import Session

IGNORE = "import signal,time,sys,subprocess,os;signal.signal(signal.SIGTERM,signal.SIG_IGN);"


@contextmanager
def python(code: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """A Python child in a session of its own that prints a line when it is set up."""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True, **options
    )  # type: ignore[call-overload]
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return gone(pid)


def test_a_polite_process_gets_to_clean_up() -> None:
    code = (
        "import signal,sys,time;signal.signal(signal.SIGTERM,lambda *_:sys.exit(5));print(1,flush=True);time.sleep(60)"
    )
    with python(code) as child:
        child.stdout.readline()
        assert Session.of(child.pid).end(grace_s=20) == []
        assert child.wait() == 5


def test_children_that_ignore_term_are_killed_with_their_own() -> None:
    inner = f"[sys.executable,'-c',{IGNORE + 'time.sleep(60)'!r}]"
    code = f"{IGNORE}p=subprocess.Popen({inner});print(p.pid,flush=True);time.sleep(60)"
    with python(code) as child:
        grandchild = int(child.stdout.readline())
        session = Session.of(child.pid)
        assert {p.pid for p in session.members()} == {child.pid, grandchild}
        assert session.end(grace_s=0.2) == []
        assert child.wait() == -signal.SIGKILL
        assert gone(grandchild)


def test_orphans_of_a_dead_leader_are_ended() -> None:
    code = "import subprocess,sys;p=subprocess.Popen([sys.executable,'-c','import time;time.sleep(60)']);print(p.pid)"
    with python(code) as child:
        orphan = int(child.stdout.readline())
        session = Session.of(child.pid)
        child.wait()
        assert not gone(orphan)
        assert session.end(grace_s=20) == []
        assert gone(orphan)


def test_a_child_that_left_the_session_is_ended_too() -> None:
    inner = "[sys.executable,'-c','import time;time.sleep(60)'],start_new_session=True"
    code = f"import subprocess,sys,time;p=subprocess.Popen({inner});print(p.pid,flush=True);time.sleep(60)"
    with python(code) as child:
        escaped = int(child.stdout.readline())
        assert Session.of(child.pid).end(grace_s=5) == []
        assert gone(escaped)


def test_nobody_elses_processes_are_members() -> None:
    with python("import time;print(1,flush=True);time.sleep(60)") as other, python("pass") as child:
        other.stdout.readline()
        session = Session.of(child.pid)
        child.wait()
        assert session.end(grace_s=0) == []
        assert other.poll() is None


def test_a_reused_id_is_not_ours() -> None:
    """The same id, another process than the one that was started: the session is long gone."""
    with python("import time;print(1,flush=True);time.sleep(60)") as child:
        child.stdout.readline()
        stale = Session(child.pid, psutil.Process(os.getpid()))
        assert stale.members() == []
        assert stale.end(grace_s=0.1) == []
        assert Session(child.pid, None).end(grace_s=0.1) == []
        assert child.poll() is None


# -- the watchdog


def start_watchdog(parent: int, leader: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "lossless.servers.watchdog", str(parent), str(leader)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": own_python_path(os.environ)},
        start_new_session=True,
    )


def finish(dog: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, err = dog.communicate(timeout=30)
    return dog.returncode, err.decode()


def test_the_watchdog_ends_the_server_when_its_owners_pipe_closes() -> None:
    with python("import time;print(1,flush=True);time.sleep(60)") as server:
        server.stdout.readline()
        dog = start_watchdog(os.getpid(), server.pid)
        assert dog.poll() is None
        assert finish(dog) == (0, "")  # communicate() closes the pipe
        assert server.wait() == -signal.SIGTERM


def test_the_watchdog_ends_the_server_of_a_parent_that_is_gone() -> None:
    with python("pass") as parent, python("import time;print(1,flush=True);time.sleep(60)") as server:
        server.stdout.readline()
        parent.wait()
        dog = start_watchdog(parent.pid, server.pid)
        assert dog.wait(timeout=30) == 0
        assert wait_gone(server.pid)
        finish(dog)


def test_the_watchdog_leaves_when_the_server_is_gone() -> None:
    with python("pass") as server:
        server.wait()
        dog = start_watchdog(os.getpid(), server.pid)
        assert dog.wait(timeout=30) == 0
        finish(dog)


@pytest.mark.parametrize("argv", [[], ["1"], ["x", "5"], ["1", "-5"], ["1", "1"], ["1", "0"]])
def test_the_watchdog_refuses_nonsense(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert watchdog.main(argv) == 2
    assert capsys.readouterr().err


def test_the_watchdog_refuses_its_own_session(capsys: pytest.CaptureFixture[str]) -> None:
    assert watchdog.main([str(os.getpid()), str(os.getsid(0))]) == 2
    assert "refusing" in capsys.readouterr().err
