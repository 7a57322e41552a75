"""The reference server as a process: starting, refusing, ending; and the faults that only HTTP can show."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from lossless.errors import UsageError
from lossless.reference.background import background
from lossless.reference.server import serve

TOOLS = Path(__file__).resolve().parents[3] / "tools"
READY = "The server is fired up and ready to roll!"
NEXTN = ["--speculative-algorithm", "NEXTN"]


def body(ids, tokens=1, **sampling):
    return {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": tokens, **sampling}}


def ask(url, ids, tokens=1, **sampling):
    return httpx.post(f"{url}/generate", json=body(ids, tokens, **sampling), timeout=60)


def launch(*options):
    environment = {**os.environ, "PYTHONPATH": str(TOOLS), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "lossless.reference", "--port", "0", *options],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def running(*options):
    """A server in a process of its own: the process, its URL and what it logged until it was ready."""
    started = launch("--parent-pid", str(os.getpid()), *options)
    try:
        log = []
        for line in started.stderr:
            log.append(line)
            if READY in line:
                break
        assert READY in log[-1], "".join(log)
        yield started, re.search(r"url=(\S+)", "".join(log)).group(1), log
    finally:
        started.kill()
        started.communicate()


# -- starting and stopping --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fault", "nonsense"], "unknown fault 'nonsense': choose one of accept-length-halved, accept-one"),
        (["--model-path", "nowhere"], "model folder 'nowhere' does not exist"),
        (["--host", "0.0.0.0"], "loopback addresses only"),
        (["--speculative-draft-model-path", "builtin:tiny"], "without --speculative-algorithm"),
        (["--parent-pid", "999999999"], "no such process"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        serve(["--port", "0", *options])


def test_a_refusal_ends_the_process_with_status_2_and_one_message():
    refused = launch("--host", "0.0.0.0")
    _, log = refused.communicate(timeout=20)
    assert refused.returncode == 2
    assert log.startswith("error: --host 0.0.0.0: the reference server has no access control")
    assert "Traceback" not in log


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match=r"cannot listen on 127\.0\.0\.1:"):
            serve(["--port", str(taken.getsockname()[1])])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_requests_in_flight(number):
    with running() as (server, url, log), ThreadPoolExecutor(1) as pool:
        assert any("Load weight end. elapsed=" in line for line in log)
        asked = pool.submit(ask, url, [5, 6], 3000, ignore_eos=True)
        while httpx.get(f"{url}/flush_cache").status_code == 200:
            assert not asked.done()
        server.send_signal(number)
        assert server.wait(10) in (0, -number)
        with pytest.raises(httpx.TransportError):
            asked.result()


def test_it_leaves_when_its_parent_is_gone():
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with running("--parent-pid", str(parent.pid)) as (server, url, _):
        assert httpx.get(f"{url}/health").status_code == 200
        parent.kill()
        parent.communicate()
        assert server.wait(10) == 0


# -- faults over HTTP -------------------------------------------------------------------------------------------------
def test_die_at_request():
    with running("--fault", "die-at-request:2") as (server, url, _):
        assert ask(url, [5]).status_code == 200
        with pytest.raises(httpx.TransportError):
            ask(url, [5])
        assert server.wait(10) == 1


def test_error_at_request():
    with background(["--fault", "error-at-request:2"]) as url:
        assert [ask(url, [5]).status_code for _ in range(3)] == [200, 500, 200]


def test_garbage_at_request():
    with background(["--fault", "garbage-at-request:1"]) as url:
        with pytest.raises(json.JSONDecodeError):
            ask(url, [5]).json()
        assert ask(url, [5]).json()["output_ids"]


def test_hang_at_request_holds_only_that_request():
    with background(["--fault", "hang-at-request:1"]) as url:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/generate", json=body([5]), timeout=0.5)
        assert ask(url, [5]).json()["output_ids"]


def test_a_trickling_answer_arrives_whole():
    with background(["--fault", "trickle"]) as url:
        assert len(ask(url, [5], 2, ignore_eos=True).json()["output_ids"]) == 2


def test_requests_mix_when_several_are_in_flight(prompts):
    ids = [prompts[i]["ids"] for i in (48, 12, 0)]
    with background(["--fault", "batch-mixed", *NEXTN]) as url:
        alone, again = ([ask(url, one, 24).json()["output_ids"] for one in ids] for _ in "ab")
        assert alone == again
        assert [row["output_ids"] for row in ask(url, ids, 24).json()] != alone
