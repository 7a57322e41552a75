"""The HTTP side: SGLang's native routes on Starlette."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lossless.reference.engine import Engine
from lossless.reference.info import Startup, model_info, server_info
from lossless.reference.options import ServerOptions
from lossless.reference.requests import Batch, Limits, Malformed, Request, parse_body

FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
FLUSH_POLL_S = 0.01
_DONE = b"data: [DONE]\n\n"

Update = tuple[int, dict[str, Any], bool]


class Api:
    """The routes' handlers around one engine."""

    def __init__(self, engine: Engine, options: ServerOptions, limits: Limits, startup: Startup) -> None:
        self.engine, self.options, self.limits, self.startup = engine, options, limits, startup
        self.arrived = 0

    def routes(self) -> list[Route]:
        """All routes."""
        both = ["GET", "POST"]
        return [
            Route("/generate", self.generate, methods=["POST", "PUT"]),
            Route("/server_info", self.server_info),
            Route("/get_server_info", self.server_info),
            Route("/model_info", self.model_info),
            Route("/get_model_info", self.model_info),
            Route("/health", self.health),
            Route("/health_generate", self.health_generate),
            Route("/flush_cache", self.flush_cache, methods=both),
            Route("/abort_request", self.abort_request, methods=["POST"]),
        ]

    # -- generate ---------------------------------------------------------------------------------------------------
    async def generate(self, http: HttpRequest) -> Response:
        """POST /generate"""
        self.arrived += 1
        trouble = self.engine.fault.arriving(self.arrived)
        if trouble == "error":
            return JSONResponse({"error": {"message": "Internal server error"}}, status_code=500)
        if trouble == "hang":
            await http.body()
            await _disconnected(http)
            return Response(status_code=499)
        body = None
        try:
            body = await _json(http)
            batch = parse_body(body, self.engine.models.tokenizer, self.limits)
            updates = self._submit(batch.requests)
        except Malformed as problem:
            return _malformed(str(problem))
        except (ValueError, TypeError) as problem:
            streams = isinstance(body, dict) and bool(body.get("stream"))
            return _failed_stream(str(problem)) if streams else bad_request(str(problem))
        if batch.stream:
            return StreamingResponse(self._stream(batch, updates), media_type="text/event-stream")
        response = await self._collect(http, batch, updates)
        if trouble == "garbage":
            return Response(response.body[: len(response.body) // 2], media_type="application/json")
        if trouble == "trickle":
            return StreamingResponse(_trickle(bytes(response.body)), media_type="application/json")
        return response

    def _submit(self, requests: tuple[Request, ...]) -> "asyncio.Queue[Update]":
        loop = asyncio.get_running_loop()
        updates: asyncio.Queue[Update] = asyncio.Queue()
        for index, request in enumerate(requests):

            def sink(body: dict[str, Any], last: bool, index: int = index) -> None:
                with contextlib.suppress(RuntimeError):  # the server is shutting down, its loop is closed
                    loop.call_soon_threadsafe(updates.put_nowait, (index, body, last))

            try:
                self.engine.submit(request, sink)
            except ValueError:
                self._abort(requests[:index])
                raise
        return updates

    def _abort(self, requests: tuple[Request, ...]) -> None:
        for request in requests:
            self.engine.abort(request.rid)

    async def _collect(self, http: HttpRequest, batch: Batch, updates: "asyncio.Queue[Update]") -> Response:
        gone = asyncio.create_task(_disconnected(http))
        answers: dict[int, dict[str, Any]] = {}
        try:
            while len(answers) < len(batch.requests):
                waiting = asyncio.create_task(updates.get())
                await asyncio.wait({gone, waiting}, return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    waiting.cancel()
                    self._abort(batch.requests)
                    return Response(status_code=499)
                index, body, last = waiting.result()
                if last:
                    answers[index] = body
        finally:
            gone.cancel()
        broken = next((body for body in answers.values() if "error" in body), None)
        if broken is not None:
            return JSONResponse(broken, status_code=500)
        ordered = [answers[index] for index in range(len(answers))]
        return JSONResponse(ordered[0] if batch.single else ordered)

    async def _stream(self, batch: Batch, updates: "asyncio.Queue[Update]") -> AsyncIterator[bytes]:
        finished = 0
        try:
            while finished < len(batch.requests):
                index, body, last = await updates.get()
                finished += last
                if not batch.single:
                    body = {**body, "index": index}
                yield _event(body)
            yield _DONE
        finally:
            if finished < len(batch.requests):
                self._abort(batch.requests)

    # -- the rest ---------------------------------------------------------------------------------------------------
    async def server_info(self, http: HttpRequest) -> Response:
        """GET /server_info"""
        del http
        return JSONResponse(server_info(self.options, self.limits, self.engine, self.startup))

    async def model_info(self, http: HttpRequest) -> Response:
        """GET /model_info"""
        del http
        return JSONResponse(model_info(self.options, self.engine))

    async def health(self, http: HttpRequest) -> Response:
        """GET /health: passive, as SGLang's is with SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0."""
        del http
        return Response(status_code=200 if self.engine.alive else 503)

    async def health_generate(self, http: HttpRequest) -> Response:
        """GET /health_generate: computes one token from token id 0."""
        del http
        body = {"input_ids": [0], "sampling_params": {"max_new_tokens": 1, "temperature": 0.0}}
        updates = self._submit(parse_body(body, self.engine.models.tokenizer, self.limits).requests)
        _, answer, _ = await updates.get()
        return Response(status_code=503 if "error" in answer else 200)

    async def flush_cache(self, http: HttpRequest) -> Response:
        """GET or POST /flush_cache[?timeout=seconds]"""
        try:
            timeout = float(http.query_params.get("timeout", "0"))
        except ValueError:
            timeout = math.nan
        if not timeout >= 0:
            return _malformed(f"timeout must be a number of seconds >= 0, got {http.query_params['timeout']!r}")
        deadline = asyncio.get_running_loop().time() + timeout
        while not self.engine.flush():
            if asyncio.get_running_loop().time() >= deadline:
                return Response("Flush cache failed.\n", status_code=400)
            await asyncio.sleep(FLUSH_POLL_S)
        return Response(FLUSHED)

    async def abort_request(self, http: HttpRequest) -> Response:
        """POST /abort_request with ``{"rid": ...}`` or ``{"abort_all": true}``"""
        try:
            body = json.loads(await http.body())
            self.engine.abort(str(body.get("rid") or ""), everything=bool(body.get("abort_all", False)))
        except (ValueError, AttributeError) as problem:
            return bad_request(str(problem))
        return Response(status_code=200)


def bad_request(message: str) -> Response:
    """SGLang's shape of a 400."""
    return JSONResponse({"error": {"message": message}}, status_code=400)


def _malformed(message: str) -> Response:
    """SGLang's shape of a 400 where the types are wrong already."""
    error = {"object": "error", "message": f"1 validation error: {message}", "type": "Bad Request"}
    return JSONResponse({**error, "param": None, "code": 400}, status_code=400)


async def _json(http: HttpRequest) -> Any:
    """The body. Raises Malformed where it is no JSON, or not said to be."""
    if not http.headers.get("content-type", "").startswith("application/json"):
        raise Malformed("the content type must be application/json")
    try:
        return json.loads(await http.body())
    except ValueError as problem:
        raise Malformed(f"JSON decode error: {problem}") from problem


async def _not_served(_http: HttpRequest, problem: Exception) -> Response:
    """A wrong path or method, said as SGLang's web framework says it."""
    assert isinstance(problem, HTTPException)
    return JSONResponse({"detail": problem.detail}, status_code=problem.status_code, headers=problem.headers)


def _failed_stream(message: str) -> Response:
    """SGLang answers a bad streaming request with HTTP 200 and one event."""
    error = {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}
    return Response(_event({"error": error}) + _DONE, media_type="text/event-stream")


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


async def _disconnected(http: HttpRequest) -> None:
    """Return once the client is gone."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _trickle(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), 16):
        yield body[at : at + 16]
        await asyncio.sleep(0.05)


def make_app(engine: Engine, options: ServerOptions, limits: Limits, startup: Startup) -> Starlette:
    """The ASGI application around a started engine."""
    routes = Api(engine, options, limits, startup).routes()
    return Starlette(routes=routes, exception_handlers={HTTPException: _not_served})
