"""The two engines that keep one contract: the embedded reference engine, and real SGLang (0.5.19, 0.5.23) on a CPU."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest
from packaging.version import Version

from lossless.profiles import Profile, load_profile
from lossless.protocol import Client
from lossless.servers import Server, make_server
from lossless.sglang_cpu import site_path

EMBEDDED, SGLANG = "embedded", "sglang"
NAMES = ("baseline", "nextn", "dflash")
VOCABULARY = 4096
PYTHON, SITE = "LOSSLESS_SGLANG_PYTHON", "LOSSLESS_SGLANG_CPU_SITE"

Key = tuple[str, str]
"""Engine and server, such as ``("sglang", "nextn")``."""


def servers_of(*names: str, kinds: Sequence[str] = (EMBEDDED, SGLANG)) -> pytest.MarkDecorator:
    """Run a test against these servers of both engines; those of real SGLang are marked ``sglang``."""
    params = [
        pytest.param((kind, name), id=f"{kind}-{name}", marks=[pytest.mark.sglang] if kind == SGLANG else [])
        for kind in kinds
        for name in names
    ]
    return pytest.mark.parametrize("engine", params, indirect=True)


every_server = servers_of(*NAMES)
baselines = servers_of("baseline")
embedded_servers = servers_of(*NAMES, kinds=(EMBEDDED,))
sglang_servers = servers_of(*NAMES, kinds=(SGLANG,))


@dataclass(frozen=True)
class Engine:
    """One running server. ``client`` is the suite's own; ``http`` opens a new connection for each request, because
    SGLang closes one on which it answered 500."""

    kind: str
    name: str
    server: Server
    client: Client
    http: httpx.Client

    @cached_property
    def since_0_5_23(self) -> bool:
        """Real SGLang 0.5.23 or newer, which differs here and there; the embedded engine keeps to 0.5.19."""
        return self.kind == SGLANG and Version(str(self.client.server_info()["version"])) >= Version("0.5.23")

    @property
    def speculates(self) -> bool:
        return self.name != "baseline"

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request as it is. Raises ServerDied, with the log, if it ends the server."""
        if self.kind == SGLANG:
            _refuse_deadly(options.get("json"))
        try:
            return self.http.request(method, path, **options)
        except httpx.TransportError:
            self.server.check()
            raise

    def body(self, source: Any, params: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """A greedy ``/generate`` body; ``source`` is ids, a text, or a list of either."""
        first = source[0] if isinstance(source, list) and source else source
        key = "text" if isinstance(first, str) else "input_ids"
        sampling = {"temperature": 0, **(params or {})}
        return {key: source, "sampling_params": sampling, **options}

    def generate(self, source: Any, params: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """The JSON of an answer that must be 200."""
        response = self.send("POST", "/generate", json=self.body(source, params, **options))
        assert response.status_code == 200, response.text
        return response.json()


def _refuse_deadly(body: Any) -> None:
    """SGLang ends the whole server on these (recorded from 0.5.19; the empty text from 0.5.23, which 0.5.19 refuses);
    the tests must never send them to it."""
    if not isinstance(body, dict) or not {"input_ids", "text"} & set(body):
        return
    assert body.get("text") != "", "an empty text"
    ids = body.get("input_ids")
    flat = [i for row in (ids if isinstance(ids, list) else []) for i in (row if isinstance(row, list) else [row])]
    assert all(0 <= i < VOCABULARY for i in flat if isinstance(i, int)), "a token id outside the vocabulary"
    assert (body.get("top_logprobs_num") or 0) <= VOCABULARY, "top_logprobs_num above the vocabulary"
    starts = body.get("logprob_start_len")
    for start in starts if isinstance(starts, list) else [starts]:
        assert start is None or start >= -1, "logprob_start_len below -1"
        assert start is None or not body.get("top_logprobs_num") or start <= len(flat), "logprob_start_len too large"
    params = body.get("sampling_params")
    for one in params if isinstance(params, list) else [params]:
        if isinstance(one, dict):
            assert not isinstance(one.get("max_new_tokens"), float), "a fractional max_new_tokens"
    assert params is not None, "without sampling_params it samples, which DFLASH on the CPU does not survive"


def profile_of(kind: str) -> Profile:
    """The shipped profile, set so that both engines have the same prefix cache and room for four requests."""
    if kind == EMBEDDED:
        return replace(load_profile("tiny"), args={"chunked-prefill-size": 2048, "max-running-requests": 4})
    profile = load_profile("tiny-sglang-cpu")
    args = {
        **profile.args,
        "disable-radix-cache": False,
        "mamba-radix-cache-strategy": "extra_buffer",
        "decode-log-interval": 1,  # /server_info's averages are as old as the last logged step
    }
    # The extra_buffer strategy belongs to overlapped scheduling.
    overlapped = {
        name: replace(variant, args={**variant.args, "disable-overlap-schedule": False})
        for name, variant in profile.variants.items()
    }
    return replace(profile, args=args, variants=overlapped)


class Fleet:
    """Starts servers when they are first asked for, and stops those of real SGLang after their last test.

    A real server takes a minute to start, so the next one starts in the background: never more than two are alive.
    ``wanted`` holds the key of every test to come, in order.
    """

    def __init__(self, logs: Path, wanted: Sequence[Key]) -> None:
        self._logs = logs
        self._left = Counter(wanted)
        self._order = list(dict.fromkeys(key for key in wanted if key[0] == SGLANG))
        self._running: dict[Key, Future[Engine]] = {}
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="start-server")

    def get(self, kind: str, name: str) -> Engine:
        """The running server. Raises what starting it raised."""
        key = (kind, name)
        engine = self._begin(key)
        if key in self._order:
            engine.result()
            for following in self._order[self._order.index(key) + 1 :][:1]:
                self._begin(following)
        return engine.result()

    def used(self, kind: str, name: str) -> None:
        """A test is done with it."""
        key = (kind, name)
        self._left[key] -= 1
        if kind == SGLANG and self._left[key] <= 0:
            self._end(key)

    def close(self) -> None:
        """Stop all."""
        for key in list(self._running):
            self._end(key)
        self._pool.shutdown()

    def _begin(self, key: Key) -> "Future[Engine]":
        if key not in self._running:
            self._running[key] = self._pool.submit(self._start, *key)
        return self._running[key]

    def _start(self, kind: str, name: str) -> Engine:
        server = make_server(profile_of(kind), name, log_dir=self._logs / kind)
        server.start()
        client = Client(server.url, vocab_size=VOCABULARY, check=server.check)
        # /server_info says "ready" while SGLang still warms up, and the launcher believes it;
        # /health is 503 until then.
        deadline = time.monotonic() + 120
        while not client.health():
            assert time.monotonic() < deadline, f"{kind} {name} does not get well"
            time.sleep(0.2)
        return Engine(
            kind,
            name,
            server,
            client,
            httpx.Client(
                base_url=server.url,
                timeout=120.0,
                trust_env=False,
                limits=httpx.Limits(max_keepalive_connections=0),
            ),
        )

    def _end(self, key: Key) -> None:
        future = self._running.pop(key, None)
        if future is None or future.exception() is not None:
            return
        engine = future.result()
        engine.client.close()
        engine.http.close()
        engine.server.stop()


@contextmanager
def real_sglang() -> Iterator[None]:
    """The environment in which the profile ``tiny-sglang-cpu`` loads; skips where there is no real SGLang."""
    if not os.environ.get(PYTHON):
        pytest.skip(
            f"{PYTHON} is not set; it names the Python of an environment made by `python -m lossless.sglang_cpu DIR`"
        )
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get(SITE):
            patch.setenv(SITE, str(site_path()))
        yield
