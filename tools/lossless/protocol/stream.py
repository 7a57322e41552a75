"""Streamed answers of ``POST /generate``, with the time at which each piece arrived.

With ``stream: true`` SGLang sends server-sent events: ``data: {...}`` for each piece, ``data: [DONE]`` at the end
(``entrypoints/http_server.py:generate_request``). Each piece holds all tokens so far, or only the new ones where the
server runs with ``--incremental-streaming-output``; a refused request is one event with ``error``, under HTTP 200.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from lossless.errors import ProtocolError, UsageError
from lossless.protocol.answers import Answer
from lossless.protocol.client import Client, http_timeout, too_slow
from lossless.protocol.redact import redact
from lossless.protocol.requests import GenerateRequest

_PATH = "/generate"
_DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of a stream: seconds after the request was sent, and output tokens so far."""

    at_s: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Streamed:
    """One streamed answer. ``sent_s`` is the client's clock when it was sent, ``chunks`` the pieces with tokens."""

    answer: Answer
    sent_s: float
    chunks: tuple[Chunk, ...]

    @property
    def first(self) -> Chunk | None:
        """The first piece with a token; None for an answer without tokens."""
        return self.chunks[0] if self.chunks else None

    @property
    def last(self) -> Chunk | None:
        """The piece that ended the answer."""
        return self.chunks[-1] if self.chunks else None


class StreamingClient(Client):
    """A `Client` that can also stream. ``clock`` gives seconds; only differences matter."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        vocab_size: int | None = None,
        check: Callable[[], None] | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(
            url, api_key=api_key, timeout_s=timeout_s, vocab_size=vocab_size, check=check, transport=transport
        )
        self._clock = clock

    def stream(self, request: GenerateRequest, *, seed: int | None = None, namespace: str | None = None) -> Streamed:
        """Send one request and note when each piece of its answer arrives.

        ``seed`` is SGLang's ``sampling_seed``, which it heeds only with ``--enable-deterministic-inference``.
        ``namespace`` is its ``extra_key``: prompts in different namespaces share no cached prefix. Pieces are read as
        bytes and decoded after the last one, so that decoding delays no time stamp.

        Raises:
            UsageError: logprobs were asked for, or as `Client.generate`.
            ServerError: the answer was not complete in time (the limit is looked at with every piece, and a silence
                as long as the limit ends it, too), or the connection broke.
            ServerDied, ProtocolError: as `Client.generate`; also for a stream that ends early.
        """
        if request.return_logprob:
            raise UsageError("logprobs cannot be streamed here: ask for them with generate")
        self._check_ids(request)
        events: list[tuple[float, bytes]] = []
        finished = False
        call, late = f"POST {self.url}{_PATH}", "the stream was not complete"
        with (
            self._errors(call, self._timeout_s, late=late, broken="the stream"),
            self._opened(_payload(request, seed, namespace)) as (response, sent),
        ):
            if response.status_code != 200:
                response.read()
                raise self._refused("POST", _PATH, response)
            for line in _lines(response.iter_bytes()):
                now = self._clock() - sent
                if now > self._timeout_s:
                    raise too_slow(call, late, self._timeout_s)
                if not line.startswith(b"data:"):
                    continue
                event = line[5:].strip()
                if event == _DONE:
                    finished = True
                    break
                events.append((now, event))
        if not finished:
            self._wait_for_death()
            raise ProtocolError(f"{call}: the stream ended after {len(events)} events without [DONE]")
        return Streamed(*self._read(events, request, sent))

    def _read(
        self, events: Sequence[tuple[float, bytes]], request: GenerateRequest, sent: float
    ) -> tuple[Answer, float, tuple[Chunk, ...]]:
        bodies = [self._decoded(event) for _, event in events]
        if not bodies:
            raise ProtocolError(f"POST {self.url}{_PATH}: the stream holds no event")
        try:
            body, counts = _joined(bodies)
        except (KeyError, TypeError, ValueError) as problem:
            raise ProtocolError(
                f"POST {self.url}{_PATH}: the stream's events do not fit together ({type(problem).__name__}: {problem})"
            ) from problem
        answer = self._answer(body, request)
        chunks = (Chunk(at, count) for (at, _), count in zip(events, counts, strict=True) if count)
        return answer, sent, tuple(chunks)

    def _decoded(self, event: bytes) -> dict[str, Any]:
        try:
            body = json.loads(event)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            shown = redact(event[:300].decode(errors="replace"))
            raise ProtocolError(f"POST {self.url}{_PATH}: an event is not a JSON object: {shown}")
        if "error" in body:
            error = body["error"]
            message = error.get("message", error) if isinstance(error, dict) else error
            raise ProtocolError(f"POST {self.url}{_PATH} was refused in the stream: {redact(str(message)[:500])}")
        return body

    @contextmanager
    def _opened(self, body: dict[str, Any]) -> Iterator[tuple[httpx.Response, float]]:
        """The response, and the clock when its request was sent."""
        request = self._http.build_request("POST", _PATH, json=body, timeout=http_timeout(self._timeout_s))

        def send() -> tuple[httpx.Response, float]:
            sent = self._clock()
            return self._http.send(request, stream=True), sent

        response, sent = self._twice(send)
        try:
            yield response, sent
        finally:
            response.close()


def _payload(request: GenerateRequest, seed: int | None, namespace: str | None) -> dict[str, Any]:
    body = {**request.payload(), "stream": True}
    if seed is not None:
        body["sampling_params"] = {**body["sampling_params"], "sampling_seed": seed}
    if namespace is not None:
        body["extra_key"] = namespace
    return body


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines as they become complete. Only a line feed ends one: JSON may hold U+2028 and others unescaped."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _joined(bodies: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
    """The whole answer, and the output tokens after each event."""
    last = bodies[-1]
    total = int(last["meta_info"].get("completion_tokens") or 0)
    sizes = [len(body["output_ids"]) for body in bodies]
    if sizes[-1] == total:  # each event holds everything so far
        if sizes != sorted(sizes):
            raise ValueError(f"tokens so far went down: {sizes}")
        return last, sizes
    if sum(sizes) != total:
        raise ValueError(f"{sum(sizes)} tokens arrived where completion_tokens is {total}")
    ids = [token for body in bodies for token in body["output_ids"]]
    text = "".join(body["text"] for body in bodies)
    counts = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return {**last, "output_ids": ids, "text": text}, counts
