"""The HTTP client for SGLang's native API."""

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from lossless.errors import LosslessError, ProtocolError, ServerError, UsageError
from lossless.protocol.answers import Answer
from lossless.protocol.redact import redact_object
from lossless.protocol.requests import GenerateRequest, Sampling

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# SGLang's HTTP server closes idle connections after 5 s; a request sent into a closing one is lost. So ours go first.
_KEEP_ALIVE_S = 2.0
_RETRY_AFTER_S = 0.3
_DYING_S = 2.0
_QUICK_S = 30.0
_CONNECT_S = 10.0

_Sent = TypeVar("_Sent")


class Client:
    """Talks to one server. Thread-safe; a context manager that closes its connections.

    ``timeout_s`` is how long one generation may take. ``vocab_size`` (when known) bounds the ids that are sent: one
    id outside the vocabulary ends a whole SGLang 0.5.19 server. ``check`` is asked when a connection breaks and may
    raise ServerDied, with what the server's log says.

    Nothing is sent twice, with one exception: a refused connection, where nothing was sent at all, is tried once more
    after 0.3 s.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        vocab_size: int | None = None,
        check: Callable[[], None] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.vocab_size = vocab_size
        self._timeout_s = timeout_s
        self._check = check
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(timeout_s, connect=_CONNECT_S, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=_KEEP_ALIVE_S),
            # A proxy from the environment must not come between us and a local server.
            trust_env=urlsplit(self.url).hostname not in _LOOPBACK,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def generate(self, request: GenerateRequest) -> Answer:
        """Send one request and wait for its whole answer.

        Raises:
            UsageError: the prompt is empty or holds an id outside the vocabulary; nothing was sent.
            ServerDied: the connection broke because the server is gone.
            ServerError: the connection broke or timed out.
            ProtocolError: the server refused or aborted the request, or its answer is not what was promised.
        """
        self._check_ids(request)
        return self._answer(self._json("POST", "/generate", body=request.payload()), request)

    def cut_off(self, request: GenerateRequest, *, leave: bool) -> bool:
        """Start a request and end it at its first token: by closing the connection (``leave``) or ``/abort_request``.

        Returns whether it was ended in mid-answer; False where it came to its own end first. Raises as
        :meth:`generate` does.
        """
        self._check_ids(request)
        rid = request.rid or f"lossless-{uuid.uuid4().hex}"
        body = {**replace(request, rid=rid).payload(), "stream": True}
        kind: str | None = None
        asked = False
        try:
            with self._http.stream("POST", "/generate", json=body, timeout=self._timeout_s) as response:
                if response.status_code != 200:
                    response.read()
                    raise self._refused("POST", "/generate", response)
                for line in response.iter_lines():
                    if not line.startswith("data: {"):
                        continue
                    kind = _finish_type(line.removeprefix("data: "))
                    if kind is None and leave:
                        return True
                    if kind is None and not asked:
                        asked = True
                        self.abort(rid)
        except httpx.TransportError as problem:
            self._wait_for_death()
            raise ServerError(
                f"POST {self.url}/generate (streaming): the connection broke ({type(problem).__name__}: {problem})"
            ) from problem
        return asked and kind in (None, "abort")

    def generate_batch(
        self, requests: Iterable[GenerateRequest], concurrency: int
    ) -> Iterator[tuple[int, Answer | LosslessError]]:
        """Send requests, ``concurrency`` at a time, and yield (index, answer) in the order in which they finish.

        A request that fails yields its error, and the others go on. Leaving the loop early aborts what is running.
        """
        if concurrency < 1:
            raise UsageError(f"concurrency is {concurrency}; it must be at least 1")
        # Ids of our own, so that leaving early can abort these requests and nobody else's.
        named = [r if r.rid is not None else replace(r, rid=f"lossless-{uuid.uuid4().hex}") for r in requests]
        pool = ThreadPoolExecutor(concurrency, thread_name_prefix="lossless-request")
        futures: dict[Future[Answer], int] = {}
        try:
            futures.update({pool.submit(self.generate, request): index for index, request in enumerate(named)})
            for future in as_completed(futures):
                try:
                    yield futures[future], future.result()
                except LosslessError as problem:
                    yield futures[future], problem
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for future, index in futures.items():
                if not future.done():
                    self._abort_quietly(named[index].rid)

    def score(
        self, prompt_ids: Sequence[int], output_ids: Sequence[int], *, top: int = 5, token_ids: Sequence[int] = ()
    ) -> Answer:
        """Re-score an output (teacher forcing): a prefill of prompt + output, without generating.

        Entry 0 of the answer's input logprobs belongs to the last prompt token and is null; entry 1+i belongs to
        ``output_ids[i]``, given all before it (nats). ``top`` best tokens come with each; ``token_ids`` are scored at
        every position besides. Recipe: SGLang's ``logprob_start_len``, see `GenerateRequest`.

        Raises:
            UsageError: prompt or output is empty.
            ProtocolError: the entries are not those of the tokens sent. Otherwise as :meth:`generate`.
        """
        if not prompt_ids or not output_ids:
            raise UsageError("re-scoring needs at least one prompt token and one output token")
        answer = self.generate(
            GenerateRequest(
                input_ids=(*prompt_ids, *output_ids),
                sampling=Sampling(max_new_tokens=0),
                return_logprob=True,
                logprob_start_len=len(prompt_ids) - 1,
                top_logprobs_num=top,
                token_ids_logprob=tuple(token_ids),
            )
        )
        entries = answer.input_logprobs
        scored = None if entries is None else [entry.token_id for entry in entries]
        if scored != [prompt_ids[-1], *output_ids]:
            raise ProtocolError(
                f"{self.url}: re-scoring {len(output_ids)} tokens gave logprobs of other tokens: "
                + ("none at all" if scored is None else f"{len(scored)} entries, {scored[:8]}…")
            )
        for name, rows in (
            ("input_top_logprobs", answer.input_top if top else entries),
            ("input_token_ids_logprobs", answer.input_ids_logprobs if token_ids else entries),
        ):
            if rows is None or len(rows) != len(output_ids) + 1:
                count = "none" if rows is None else str(len(rows))
                raise ProtocolError(f"{self.url}: {name} has {count} entries where {len(output_ids) + 1} belong")
        return answer

    def server_info(self) -> dict[str, Any]:
        """``GET /server_info``: the resolved arguments, version and internal states; API keys in it are masked."""
        masked: dict[str, Any] = redact_object(self._object("/server_info", "/get_server_info"))
        return masked

    def model_info(self) -> dict[str, Any]:
        """``GET /model_info``: which model is served. Generates nothing."""
        return self._object("/model_info", "/get_model_info")

    def flush_cache(self, timeout_s: float = 30.0) -> None:
        """Empty the prefix cache (and reset the server's averages), waiting until no request is pending.

        Raises:
            ServerError: requests were still pending after ``timeout_s`` seconds.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            left = max(0.0, deadline - time.monotonic())
            response = self._send("POST", "/flush_cache", params={"timeout": f"{left:.1f}"}, timeout_s=left + _QUICK_S)
            if response.status_code == 200:
                return
            if response.status_code != 400:
                raise self._refused("POST", "/flush_cache", response)
            if time.monotonic() >= deadline:
                raise ServerError(
                    f"{self.url} did not flush its cache within {timeout_s:g} s: {_error_text(response)}",
                    hint="keep other traffic away from the server",
                )
            time.sleep(0.2)

    def health(self) -> bool:
        """``GET /health``: whether the server calls itself well. It may run a one-token request and fill the cache.

        Raises:
            ServerDied, ServerError: it cannot be reached.
        """
        return self._send("GET", "/health", timeout_s=_QUICK_S).status_code == 200

    def abort(self, rid: str | None) -> None:
        """Abort one request by its id; None aborts **all** requests of the server, also those of others."""
        body: dict[str, Any] = {"abort_all": True} if rid is None else {"rid": rid}
        response = self._send("POST", "/abort_request", body=body, timeout_s=_QUICK_S)
        if response.status_code != 200:
            raise self._refused("POST", "/abort_request", response)

    def _abort_quietly(self, rid: str | None) -> None:
        try:
            if rid is not None:
                self.abort(rid)
        except LosslessError:
            pass  # the caller is leaving already, and whatever made it leave matters more

    def _check_ids(self, request: GenerateRequest) -> None:
        if not request.input_ids:
            raise UsageError("a prompt needs at least one token")
        limit = self.vocab_size
        for what, ids in (("prompt", request.input_ids), ("token_ids_logprob", request.token_ids_logprob)):
            for position, token in enumerate(ids):
                if token < 0 or (limit is not None and token >= limit):
                    bound = "" if limit is None else f"; the vocabulary has {limit} ids, 0 to {limit - 1}"
                    raise UsageError(
                        f"{what} position {position}: token id {token} is outside the vocabulary{bound}",
                        hint="it was not sent (one such id ends a whole SGLang server): is the tokenizer the target's?",
                    )

    def _answer(self, body: dict[str, Any], request: GenerateRequest) -> Answer:
        answer = Answer.from_json(body)
        if answer.prompt_tokens != len(request.input_ids):
            raise ProtocolError(
                f"{self.url} read {answer.prompt_tokens} prompt tokens where {len(request.input_ids)} were sent",
                hint="the server must not truncate or extend prompts (--allow-auto-truncate)",
            )
        return answer

    def _object(self, path: str, old_path: str) -> dict[str, Any]:
        response = self._send("GET", path, timeout_s=_QUICK_S)
        if response.status_code == 404:
            path = old_path
            response = self._send("GET", path, timeout_s=_QUICK_S)
        body = self._body("GET", path, response)
        if not isinstance(body, dict):
            raise ProtocolError(f"GET {self.url}{path} answered {_shown(response.text)} instead of a JSON object")
        return body

    def _json(self, method: str, path: str, *, body: dict[str, Any]) -> Any:
        return self._body(method, path, self._send(method, path, body=body))

    def _body(self, method: str, path: str, response: httpx.Response) -> Any:
        if response.status_code != 200:
            raise self._refused(method, path, response)
        try:
            return response.json()
        except ValueError as problem:
            raise ProtocolError(
                f"{method} {self.url}{path} answered something that is not JSON: {_shown(response.text)}"
            ) from problem

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: dict[str, Any] | None = None,
        params: dict[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        seconds = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        request = self._http.build_request(
            method,
            path,
            json=body,
            params=params,
            timeout=http_timeout(seconds),
        )
        with self._errors(f"{method} {self.url}{path}", seconds):
            return self._twice(lambda: self._http.send(request))

    def _twice(self, send: Callable[[], _Sent]) -> _Sent:
        """Send; where the connection was refused, so that nothing was sent, once more."""
        try:
            return send()
        except httpx.ConnectError:
            self._ask_check()
            time.sleep(_RETRY_AFTER_S)
            return send()

    @contextmanager
    def _errors(
        self, call: str, seconds: float, *, late: str = "no answer", broken: str = "the connection"
    ) -> Iterator[None]:
        """Transport errors as this package's own. ``call`` names method and address, ``late`` says what was not there
        within ``seconds``, ``broken`` what broke."""
        try:
            yield
        except httpx.ConnectTimeout as problem:
            self._ask_check()
            raise ServerError(
                f"cannot connect to {self.url}: no reaction for {min(_CONNECT_S, seconds):g} s",
                hint="is the address right, and the way there open?",
            ) from problem
        except httpx.TimeoutException as problem:
            self._ask_check()
            raise too_slow(call, late, seconds) from problem
        except httpx.ConnectError as problem:
            self._ask_check()
            raise ServerError(
                f"cannot connect to {self.url}: {problem}", hint="is the server running, and the address right?"
            ) from problem
        except httpx.TransportError as problem:
            self._wait_for_death()
            raise ServerError(f"{call}: {broken} broke ({type(problem).__name__}: {problem})") from problem

    def _refused(self, method: str, path: str, response: httpx.Response) -> ProtocolError:
        if response.status_code >= 500:
            # A dying server answers 500 to what it was working on: then its log says more than this answer.
            self._wait_for_death(0.5)
        hint = None
        if response.status_code in (401, 403):
            hint = "the server wants an API key: set api_key_env in the profile"
        return ProtocolError(
            f"{method} {self.url}{path} was refused with HTTP {response.status_code}: {_error_text(response)}",
            hint=hint,
        )

    def _ask_check(self) -> None:
        if self._check is not None:
            self._check()

    def _wait_for_death(self, seconds: float = _DYING_S) -> None:
        """Ask ``check`` for a while: a process closes its connections shortly before its exit status can be read."""
        if self._check is None:
            return
        deadline = time.monotonic() + seconds
        while True:
            self._check()
            if time.monotonic() > deadline:
                return
            time.sleep(0.1)


def http_timeout(seconds: float) -> httpx.Timeout:
    """Limits of one request: to connect, and for any other silence."""
    return httpx.Timeout(seconds, connect=min(_CONNECT_S, seconds), pool=None)


def too_slow(call: str, late: str, seconds: float) -> ServerError:
    """The error for what was not there within ``seconds``."""
    return ServerError(
        f"{call}: {late} within {seconds:g} s",
        hint="raise request_timeout_s in the profile, or see whether the server hangs",
    )


def _finish_type(event: str) -> str | None:
    """The finish reason's type in one event of a stream; None while the request runs.

    Raises:
        ProtocolError: the event is an error, or of another shape.
    """
    try:
        body = json.loads(event)
        if "error" in body and "meta_info" not in body:
            raise ProtocolError(f"the server refused a streaming request: {_shown(str(body['error']))}")
        reason = body["meta_info"]["finish_reason"]
        return None if reason is None else str(reason["type"])
    except (ValueError, KeyError, TypeError) as problem:
        raise ProtocolError(f"an event of a stream is not of the expected shape: {_shown(event)}") from problem


def _error_text(response: httpx.Response) -> str:
    """What an error answer says: ``{"error": {"message": …}}``, older shapes, or the text itself."""
    try:
        body = response.json()
    except ValueError:
        return _shown(response.text) or "(no text)"
    if isinstance(body, dict):
        error = body.get("error", body)
        if isinstance(error, dict):
            error = error.get("message") or error.get("detail") or error
        return _shown(str(error))
    return _shown(str(body))


def _shown(text: str) -> str:
    text = text.strip()
    return f"{text[:500]}…" if len(text) > 500 else text
