"""A server run as a child process: the embedded reference engine, or SGLang."""

import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from lossless.errors import ServerError, UsageError
from lossless.profiles.models import check_models
from lossless.profiles.profile import Profile
from lossless.protocol.redact import redact, secrets_of
from lossless.servers import cleanup
from lossless.servers.argv import HOST, own_python_path, public_settings, server_argv, server_env
from lossless.servers.base import no_progress
from lossless.servers.failure import Explain, Failure, exit_words
from lossless.servers.log_tail import READY, LogTail, log_text, stage_of
from lossless.servers.ports import PortLease, lease_port
from lossless.servers.process_tree import Session

STOP_GRACE_S = 10.0
_POLL_S = 0.1
_ASK_EVERY_S = 2.0
_PORT_TRIES = 3
_PORT_TAKEN = re.compile(
    r"address already in use|port \d+ is (?:not available|already in use)|port is not available", re.I
)


class _PortTaken(Exception):
    """Another process took the port between our look and the server's bind."""


class LaunchedServer:
    """See :class:`lossless.servers.base.Server`. One process, one session, one log file a start."""

    def __init__(
        self,
        profile: Profile,
        name: str,
        *,
        log_dir: Path,
        gpus: Sequence[str] = (),
        fault: str | None = None,
        explain: Explain | None = None,
    ) -> None:
        self.name = name
        self.kind: str = profile.kind
        self.url = ""
        self.log_path: Path | None = None
        self.api_key: str | None = None
        self._profile = profile
        self._log_dir = log_dir
        self._fault = fault
        self._explain = explain
        self._env = server_env(profile, name, gpus)
        self.settings: Mapping[str, str] | None = public_settings(self._env)
        self._lock = threading.RLock()  # re-entrant: a signal handler may stop what is being stopped
        self._argv: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._session: Session | None = None
        self._lease: PortLease | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = f"pid {self._process.pid}, {self.url}" if self._process else "not running"
        return f"<LaunchedServer {self.name!r} ({self.kind}): {state}>"

    @property
    def pid(self) -> int | None:
        """The process id while it is started."""
        return self._process.pid if self._process else None

    def start(self, on_progress: Callable[[str], None] = no_progress) -> None:
        """See :meth:`Server.start`. Should another process snatch the port, another port is tried, twice."""
        if self._process is not None:
            raise ServerError(f"server {self.name!r} is running already at {self.url}")
        check_models(self._profile, self.name)
        taken: set[int] = set()
        try:
            while True:
                self._spawn(frozenset(taken))
                try:
                    self._wait_ready(on_progress)
                    return
                except _PortTaken:
                    taken.add(self._lease.port if self._lease else 0)
                    if len(taken) >= _PORT_TRIES:
                        raise self._failure("could not bind a port, three times").start_error(self._explain) from None
                    on_progress("the port was taken; trying another")
                    self.stop()
        except BaseException:  # also Ctrl-C: nothing may be left running
            self.stop()
            raise

    def check(self) -> None:
        """See :meth:`Server.check`."""
        process = self._process
        if process is None:
            raise ServerError(f"server {self.name!r} is not running", hint="start it first")
        code = process.poll()
        if code is not None:
            raise self._failure(f"ended while it was needed ({exit_words(code)})", code).died(self._explain)

    def stop(self) -> None:
        """See :meth:`Server.stop`. TERM first, KILL after 10 s.

        Raises:
            ServerError: a process could not be ended even so (it would keep the card).
        """
        self._end(STOP_GRACE_S)

    def kill(self) -> None:
        """End the server at once."""
        self._end(0.0)

    def _end(self, grace_s: float) -> None:
        with self._lock:
            process, session, watchdog, lease = self._process, self._session, self._watchdog, self._lease
            left = session.end(grace_s=grace_s) if session is not None else []
            if process is not None:
                process.poll()
            if watchdog is not None and watchdog.stdin is not None:
                if not left:
                    watchdog.kill()  # nothing is left for it to end
                watchdog.stdin.close()
                _reap(watchdog)
            if lease is not None:
                lease.release()
            self._process = self._session = self._watchdog = self._lease = None
            cleanup.unwatch(self)
        if left:
            raise ServerError(f"server {self.name!r} could not be ended; still running: {', '.join(map(str, left))}")

    def _spawn(self, avoid: frozenset[int]) -> None:
        self._lease = lease_port(avoid)
        self.url = f"http://{HOST}:{self._lease.port}"
        argv = server_argv(self._profile, self.name, self._lease.port)
        if self._profile.kind == "reference":
            argv += ["--parent-pid", str(os.getpid())]
            argv += ["--fault", self._fault] if self._fault else []
        self._argv = argv
        if self.log_path is None or not avoid:
            self.log_path = _fresh_log(self._log_dir, self.name)
        with self.log_path.open("ab") as log:
            log.write(f"$ {redact(shlex.join(argv), secrets_of(self._env))}\n".encode())
            log.flush()
            self._log_start = log.tell()
            with self._lock:
                try:
                    self._process = subprocess.Popen(
                        argv,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env=self._env,
                        start_new_session=True,
                    )
                except OSError as problem:
                    raise UsageError(
                        f"profile {self._profile.name!r}: cannot run {argv[0]!r}: {problem.strerror}",
                        hint="correct `command` in the profile, or set LOSSLESS_SGLANG_PYTHON",
                    ) from problem
                self._session = Session.of(self._process.pid)
                cleanup.watch(self)
        if self._profile.kind == "sglang":
            self._watchdog = subprocess.Popen(
                [sys.executable, "-m", "lossless.servers.watchdog", str(os.getpid()), str(self._process.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": own_python_path(os.environ)},
                start_new_session=True,
            )

    def _wait_ready(self, on_progress: Callable[[str], None]) -> None:
        process = self._process
        assert process is not None
        assert self.log_path is not None
        began = time.monotonic()
        deadline = began + self._profile.start_deadline_s
        tail, stage, said_ready, next_ask = (
            LogTail(self.log_path, self._log_start),
            "starting",
            False,
            began + _ASK_EVERY_S,
        )
        on_progress(stage)
        with httpx.Client(base_url=self.url, timeout=2.0, trust_env=False) as http:
            while True:
                for line in tail.new_lines():
                    if _PORT_TAKEN.search(line):
                        raise _PortTaken  # SGLang 0.5.19 says so and then hangs, and whoever has the port may answer
                    said_ready = said_ready or READY in line
                    now = stage_of(line)
                    if now is not None and now != stage:
                        stage = now
                        on_progress(stage)
                code = process.poll()
                if code is not None:
                    failure = self._failure(f"ended while starting ({exit_words(code)}; last stage: {stage})", code)
                    if _PORT_TAKEN.search(failure.log_text):
                        raise _PortTaken
                    raise failure.start_error(self._explain)
                now_s = time.monotonic()
                if said_ready or now_s >= next_ask:
                    next_ask = now_s + _ASK_EVERY_S
                    if _answers(http, said_ready):
                        on_progress(f"ready after {now_s - began:.0f} s")
                        return
                if now_s > deadline:
                    raise self._failure(
                        f"was not ready after start_deadline_s = {self._profile.start_deadline_s:g} s, at: {stage}"
                    ).start_error(self._explain)
                time.sleep(_POLL_S)

    def _failure(self, happened: str, code: int | None = None) -> Failure:
        assert self.log_path is not None
        return Failure(
            name=self.name,
            happened=happened,
            command=tuple(self._argv),
            exit_code=code,
            log_text=log_text(self.log_path, self._log_start),
            log_path=self.log_path,
            secrets=secrets_of(self._env),
        )


def _answers(http: httpx.Client, said_ready: bool) -> bool:
    """Whether the server is ready, asked by requests that generate nothing.

    A server whose log has no ready line (another version, another launcher) is believed by its own status and by
    /health, which is 503 while SGLang warms up, and may generate a token: so it is asked last.
    """
    try:
        info = http.get("/model_info")
        if info.status_code == 404:
            info = http.get("/get_model_info")
        if info.status_code != 200:
            return False
        return said_ready or (_status(http.get("/server_info")) == "ready" and http.get("/health").status_code == 200)
    except httpx.TransportError:
        return False


def _status(response: httpx.Response) -> Any:
    try:
        body = response.json() if response.status_code == 200 else None
    except ValueError:
        return None
    return body.get("status") if isinstance(body, dict) else None


def _fresh_log(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, 10_000):
        path = folder / (f"{name}.log" if number == 1 else f"{name}-{number}.log")
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        return path
    raise ServerError(f"too many logs of {name!r} in {folder}", hint="empty that folder")


def _reap(watchdog: subprocess.Popen[bytes]) -> None:
    # poll(), not wait(): its lock may be held by the very frame that a signal handler interrupted.
    deadline = time.monotonic() + 5.0
    while watchdog.poll() is None:
        if time.monotonic() > deadline:
            watchdog.kill()
            deadline += 5.0
        time.sleep(0.02)
