"""Servers as processes: starting, failing, dying, and leaving nothing behind, whatever ends the suite.

The processes run `fake_sglang.py`, which has SGLang's flags, log lines and endpoints, and no model.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from lossless.errors import ProtocolError, ServerDied, ServerError, UsageError
from lossless.profiles import Baseline, Kind, Profile, Variant
from lossless.protocol import Client, GenerateRequest, Sampling
from lossless.servers import Server, make_server
from lossless.servers.argv import own_python_path
from lossless.servers.launched import LaunchedServer

FAKE = Path(__file__).parent / "fake_sglang.py"
MakeProfile = Callable[..., Profile]


@pytest.fixture
def make_profile(tmp_path: Path) -> MakeProfile:
    """Builds a profile that launches the fake; keywords become its flags."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")

    def build(
        kind: Kind = "sglang", deadline_s: float = 60, env: dict[str, str] | None = None, **flags: Any
    ) -> Profile:
        return Profile(
            name="fake",
            description="",
            kind=kind,
            target=str(model),
            command=(sys.executable, str(FAKE)),
            variants={"nextn": Variant(name="nextn", algorithm="NEXTN")},
            args={flag.replace("_", "-"): value for flag, value in flags.items()},
            env=env or {},
            start_deadline_s=deadline_s,
        )

    return build


@pytest.fixture
def launch(make_profile: MakeProfile, tmp_path: Path) -> Iterator[Callable[..., LaunchedServer]]:
    started: list[Server] = []

    def build(name: str = "nextn", fault: str | None = None, gpus: tuple[str, ...] = (), **options: Any) -> Server:
        explain = options.pop("explain", None)
        server = make_server(
            make_profile(**options), name, log_dir=tmp_path / "logs", gpus=gpus, fault=fault, explain=explain
        )
        started.append(server)
        return server

    yield build  # type: ignore[misc]
    for server in started:
        server.stop()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def ask(server: Server, *ids: int) -> tuple[int, ...]:
    with Client(server.url, check=server.check) as client:
        return client.generate(GenerateRequest(ids, Sampling(max_new_tokens=4))).output_ids


# -- starting and stopping


@pytest.mark.parametrize("kind", ["sglang", "reference"])
def test_a_server_starts_answers_and_stops(launch: Callable[..., LaunchedServer], kind: Kind) -> None:
    server = launch(kind=kind)
    progress: list[str] = []
    server.start(progress.append)
    assert progress[:-1] == [
        "starting",
        "loading weights",
        "weights loaded: Qwen3_5ForConditionalGeneration, 17.67 GB",
        "KV pool: 20000 tokens",
        "capturing graphs 3/8",
    ]
    assert progress[-1].startswith("ready after ")
    assert server.url.startswith("http://127.0.0.1:")
    assert ask(server, 1, 2, 3) == (3, 2, 1)
    server.check()
    pid = server.pid
    assert pid is not None
    assert os.getsid(pid) == pid, "a session of its own, so that Ctrl-C does not reach it behind our back"
    server.stop()
    server.stop()
    assert not alive(pid)
    with pytest.raises(ServerError, match="is not running"):
        server.check()


def test_a_server_is_a_context_manager_and_can_start_again(launch: Callable[..., LaunchedServer]) -> None:
    server = launch()
    with server:
        first = server.pid
        with pytest.raises(ServerError, match="is running already"):
            server.start()
        assert server.pid == first
    with server:
        assert ask(server, 5, 6) == (6, 5)
    assert server.log_path is not None
    assert sorted(path.name for path in server.log_path.parent.iterdir()) == ["nextn-2.log", "nextn.log"]


def test_without_a_ready_line_the_status_and_health_say_when(
    launch: Callable[..., LaunchedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lossless.servers.launched._ASK_EVERY_S", 0.1)
    with launch(behavior="no-ready-line") as server:
        assert server.log_path is not None
        assert "health asked 3 times" in server.log_path.read_text(), "two answers said that it was warming up"
        assert ask(server, 1, 2) == (2, 1)


def test_environment_reaches_the_server_and_not_us(launch: Callable[..., LaunchedServer]) -> None:
    names = ("CUDA_VISIBLE_DEVICES", "SGLANG_X")
    before = dict(os.environ)
    server = launch(gpus=("3",), env={"SGLANG_X": "on"}, print_env=names)
    with server:
        assert server.log_path is not None
        log = server.log_path.read_text()
    assert "CUDA_VISIBLE_DEVICES=3\nSGLANG_X=on\n" in log
    assert dict(os.environ) == before
    assert (server.settings or {})["SGLANG_X"] == "on"


def test_faults_are_passed_to_the_reference_engine_only(launch: Callable[..., LaunchedServer]) -> None:
    with launch(kind="reference", fault="skip-verify:0.5") as server:
        command = psutil.Process(server.pid).cmdline()
    assert command[-2:] == ["--fault", "skip-verify:0.5"]
    assert f"--parent-pid {os.getpid()}" in " ".join(command)
    with pytest.raises(UsageError, match="only the reference engine has faults"):
        launch(kind="sglang", fault="x")


def test_stubborn_processes_are_all_ended(
    launch: Callable[..., LaunchedServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lossless.servers.launched.STOP_GRACE_S", 0.3)
    state = tmp_path / "pids"
    server = launch(behavior="stubborn", state=str(state))
    server.start()
    pids = [server.pid, *(int(pid) for pid in state.read_text().split())]
    assert len(pids) == 3
    assert all(pid is not None and alive(pid) for pid in pids)
    server.stop()
    assert not any(alive(pid) for pid in pids if pid is not None)


# -- failing to start


def test_a_server_that_exits_while_starting(launch: Callable[..., LaunchedServer]) -> None:
    server = launch(behavior="exit-3")
    with pytest.raises(ServerError) as caught:
        server.start()
    message = str(caught.value)
    assert "server 'nextn' ended while starting (exit status 3; last stage: starting)" in message
    assert "RuntimeError: something is missing" in message
    assert "--speculative-algorithm NEXTN" in message
    assert str(server.log_path) in message
    assert not isinstance(caught.value, ServerDied)


def test_an_unknown_flag(launch: Callable[..., LaunchedServer]) -> None:
    with pytest.raises(ServerError) as caught:
        launch(page_sise=1).start()
    assert "exit status 2" in caught.value.message
    assert "does not know --page-sise 1: correct `args` in the profile" in (caught.value.hint or "")


def test_an_explanation_can_be_plugged_in(launch: Callable[..., LaunchedServer]) -> None:
    def explain(log: str) -> str | None:
        return "it was told to" if "something is missing" in log else None

    with pytest.raises(ServerError, match="exit status 3; last stage: starting\\): it was told to"):
        launch(behavior="exit-3", explain=explain).start()


def test_the_deadline(launch: Callable[..., LaunchedServer]) -> None:
    server = launch(behavior="never-ready", deadline_s=0.5)
    with pytest.raises(ServerError) as caught:
        server.start()
    assert "was not ready after start_deadline_s = 0.5 s, at: " in caught.value.message
    assert server.pid is None
    (log,) = [p for p in psutil.Process().children(recursive=True) if str(FAKE) in " ".join(p.cmdline())] or [None]
    assert log is None, "nothing may be left running"


def test_a_command_that_does_not_exist(make_profile: MakeProfile, tmp_path: Path) -> None:
    profile = replace(make_profile(), command=("/no/such/python", "-m", "sglang.launch_server"))
    with pytest.raises(UsageError, match="cannot run '/no/such/python': No such file") as caught:
        make_server(profile, "nextn", log_dir=tmp_path).start()
    assert "LOSSLESS_SGLANG_PYTHON" in str(caught.value)


def test_a_missing_model_folder(make_profile: MakeProfile, tmp_path: Path) -> None:
    gone = replace(make_profile(), target=str(tmp_path / "gone"))
    with pytest.raises(UsageError, match=r"profile 'fake', target: there is no model folder .*gone"):
        make_server(gone, "baseline", log_dir=tmp_path)
    (tmp_path / "empty").mkdir()
    draft = Variant(name="d", algorithm="DFLASH", draft=str(tmp_path / "empty"))
    with pytest.raises(UsageError, match=r"variants.d.draft: .*empty has no config.json"):
        make_server(replace(make_profile(), variants={"d": draft}), "d", log_dir=tmp_path)


@pytest.mark.parametrize(
    ("kind", "target", "expected"),
    [
        ("sglang", "builtin:huge", "no built-in model 'builtin:huge'; there is: builtin:tiny"),
        ("reference", "builtin:huge", "no built-in model 'builtin:huge'; there is: builtin:tiny"),
        ("reference", "org/model", "reads only folders"),
        ("sglang", "a/b/c", "neither an existing folder nor a hub id"),
        ("sglang", "a b", "neither an existing folder nor a hub id"),
    ],
)
def test_impossible_models(make_profile: MakeProfile, tmp_path: Path, kind: Kind, target: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        make_server(replace(make_profile(kind=kind), target=target), "baseline", log_dir=tmp_path)


def test_an_unknown_server_name(make_profile: MakeProfile, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no server 'nexten'"):
        make_server(make_profile(), "nexten", log_dir=tmp_path)


def test_a_snatched_port_is_replaced_by_another(launch: Callable[..., LaunchedServer], tmp_path: Path) -> None:
    state = tmp_path / "first-port"
    progress: list[str] = []
    server = launch(behavior="port-taken-once", state=str(state))
    server.start(progress.append)
    assert "the port was taken; trying another" in progress
    assert not server.url.endswith(state.read_text())
    assert ask(server, 1, 2) == (2, 1)


def test_ports_that_are_always_taken(launch: Callable[..., LaunchedServer]) -> None:
    server = launch(behavior="port-taken")
    with pytest.raises(ServerError, match="could not bind a port, three times") as caught:
        server.start()
    assert "is already in use" in str(caught.value)
    assert server.log_path is not None
    assert server.log_path.read_text().count("\n$ ") == 2, "one log, three commands"


def test_ctrl_c_while_starting_leaves_nothing(launch: Callable[..., LaunchedServer]) -> None:
    server = launch()
    pids: list[int | None] = []

    def interrupt(_: str) -> None:
        pids.append(server.pid)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        server.start(interrupt)
    assert pids[0] is not None
    assert not alive(pids[0])


# -- dying while needed


def test_a_death_is_reported_with_status_and_log(launch: Callable[..., LaunchedServer]) -> None:
    with launch() as server:
        with pytest.raises(ServerDied) as caught:
            ask(server, 1, 666)
        message = str(caught.value)
        assert "server 'nextn' ended while it was needed (exit status 7)" in message
        assert "AssertionError: Can not alloc mamba cache" in message
        with pytest.raises(ServerDied):
            server.check()
        with pytest.raises(ServerDied):
            ask(server, 1)


def test_a_killed_server_is_noticed_by_the_request_that_waits_for_it(launch: Callable[..., LaunchedServer]) -> None:
    with launch() as server:
        outcome: list[BaseException] = []

        def wait_for_answer() -> None:
            try:
                ask(server, 555)
            except ServerError as problem:
                outcome.append(problem)

        thread = threading.Thread(target=wait_for_answer)
        thread.start()
        time.sleep(0.2)  # the request is (most likely) on its way; the outcome is the same if it is not
        os.kill(server.pid or 0, signal.SIGKILL)
        thread.join(30)
        assert [type(problem) for problem in outcome] == [ServerDied]
        assert "killed by SIGKILL" in str(outcome[0])


def test_a_batch_on_a_dying_server_fails_request_by_request(launch: Callable[..., LaunchedServer]) -> None:
    requests = [GenerateRequest((i,), Sampling(1)) for i in (1, 666, 2)]
    with launch() as server, Client(server.url, check=server.check) as client:
        results = dict(client.generate_batch(requests, 1))
    assert [type(results[i]).__name__ for i in range(3)] == ["Answer", "ServerDied", "ServerDied"]


# -- the end of the process that started it


SCRIPT = """
import json, os, sys, threading, time
from dataclasses import replace
from pathlib import Path
from lossless.profiles import Profile, Variant
from lossless.servers import make_server
kind, how, model, fake, logs = sys.argv[1:]
profile = Profile(name="fake", description="", kind=kind, target=model, command=(sys.executable, fake),
                  variants={"nextn": Variant(name="nextn", algorithm="NEXTN")})
server = make_server(profile, "nextn", log_dir=Path(logs))
server.start()
print(server.pid, flush=True)
if how == "exit": sys.exit(3)
if how == "error": raise RuntimeError("on purpose")
time.sleep(60)
"""


def owner(make_profile: MakeProfile, tmp_path: Path, kind: str, how: str) -> tuple[subprocess.Popen[str], int]:
    """A process that launches a server; the server's id."""
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, kind, how, make_profile().target, str(FAKE), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": own_python_path(os.environ)},
    )
    assert child.stdout is not None
    return child, int(child.stdout.readline())


@pytest.mark.parametrize(
    ("kind", "how", "sent", "status"),
    [
        ("sglang", "exit", None, 3),
        ("sglang", "error", None, 1),
        ("sglang", "wait", signal.SIGTERM, -signal.SIGTERM),
        ("sglang", "wait", signal.SIGINT, -signal.SIGINT),
        ("sglang", "wait", signal.SIGKILL, -signal.SIGKILL),  # the watchdog's case
        ("reference", "wait", signal.SIGKILL, -signal.SIGKILL),  # --parent-pid's case
    ],
)
def test_the_server_goes_with_its_owner(
    make_profile: MakeProfile, tmp_path: Path, kind: str, how: str, sent: signal.Signals | None, status: int
) -> None:
    child, pid = owner(make_profile, tmp_path, kind, how)
    if sent is not None:
        assert alive(pid)
        child.send_signal(sent)
    child.communicate(timeout=60)
    assert child.returncode == status
    assert wait_until(lambda: not alive(pid))


def test_a_forked_child_does_not_take_the_server_along(launch: Callable[..., LaunchedServer]) -> None:
    """A fork inherits exit handlers, not servers."""
    from lossless.servers import cleanup

    with launch() as server:
        child = os.fork()
        if child == 0:
            cleanup._stop_all()
            os._exit(0)
        os.waitpid(child, 0)
        assert ask(server, 1, 2) == (2, 1)


# -- attached servers


@pytest.fixture
def other_server() -> Iterator[Callable[[Any], str]]:
    """Something else that speaks HTTP: answers every GET with the given JSON (or text), status 200."""
    running: list[ThreadingHTTPServer] = []

    def start(body: Any) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                data = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def attach(url: str, **options: Any) -> Server:
    profile = Profile(
        name="mine",
        description="",
        kind="attach",
        target="auto",
        command=(),
        baseline=Baseline(url=url),
        variants={"x": Variant(name="x", algorithm=None, url=url)},
        **options,
    )
    return make_server(profile, "baseline", log_dir=Path())


def test_attaching_to_a_running_server(launch: Callable[..., LaunchedServer]) -> None:
    with launch() as running, attach(running.url) as server:
        assert (server.kind, server.url, server.log_path) == ("attach", running.url, None)
        assert server.settings is None
        assert ask(server, 1, 2) == (2, 1)
        server.check()
        server.stop()
        running.check()  # stop() left it alone
        running.stop()
        with pytest.raises(ServerDied, match=r"server 'baseline' is gone: .*cannot connect"):
            server.check()


def test_attaching_where_nothing_listens() -> None:
    with pytest.raises(ServerError, match=r"server 'baseline' cannot be reached: cannot connect to http://127.0.0.1:9"):
        attach("http://127.0.0.1:9").start()


@pytest.mark.parametrize("body", ["<html>hello</html>", {"hello": 1}, [1], {"model_path": 3}])
def test_attaching_to_something_else(other_server: Callable[[Any], str], body: Any) -> None:
    with pytest.raises(ProtocolError, match=r"something answers at http://127\.0\.0\.1:") as caught:
        attach(other_server(body)).start()
    assert "address of an SGLang server" in str(caught.value)


def test_attaching_to_an_embedding_server(other_server: Callable[[Any], str]) -> None:
    with pytest.raises(ServerError, match="embedding model"):
        attach(other_server({"model_path": "m", "is_generation": False})).start()


def test_an_attached_server_that_is_replaced(other_server: Callable[[Any], str]) -> None:
    body = {"model_path": "m", "weight_version": "1"}
    server = attach(other_server(body))
    server.start()
    server.check()
    body["weight_version"] = "2"
    with pytest.raises(ServerDied, match="was replaced: its weight_version was '1', now '2'"):
        server.check()


def test_the_key_of_an_attached_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(UsageError, match=r"MY_KEY .* is not set"):
        attach("http://127.0.0.1:9", api_key_env="MY_KEY")
    monkeypatch.setenv("MY_KEY", "very-secret")
    server = attach("http://127.0.0.1:9", api_key_env="MY_KEY")
    assert server.api_key == "very-secret"
    with pytest.raises(ServerError) as caught:
        server.start()
    assert "very-secret" not in str(caught.value) + repr(server)
