"""Runs a plan on one server and yields a sample for each request."""

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from lossless.bench.plan import Ask, Plan, Round
from lossless.bench.sample import Sample
from lossless.errors import LosslessError, ServerDied, ServerError
from lossless.profiles.request_room import Room
from lossless.protocol import GenerateRequest
from lossless.protocol.stream import Streamed
from lossless.servers.resolved_facts import resolved_facts

# max_req_input_len is the context less 6 (see profiles/request_room.py).
_INPUT_RESERVE = 6


class BenchClient(Protocol):
    """What measuring needs of a client (`lossless.protocol.stream.StreamingClient`)."""

    def stream(
        self, request: GenerateRequest, *, seed: int | None = None, namespace: str | None = None
    ) -> Streamed: ...

    def flush_cache(self) -> None: ...

    def abort(self, rid: str | None) -> None: ...


class BenchProgress(Protocol):
    """Told what happens; the terminal shows it (`lossless.report.progress`)."""

    def starting(self, server: str, line: str) -> None: ...

    def stage(self, server: str, stage: str, total: int, done: int) -> None: ...

    def advance(self, server: str, stage: str, tokens: int) -> None: ...


def room_of(server_info: Mapping[str, Any]) -> Room:
    """What bounds one request of a server, by its ``/server_info``."""
    facts = resolved_facts(server_info)
    context = facts.context_length
    if facts.max_input_tokens is not None:
        longest = facts.max_input_tokens + _INPUT_RESERVE
        context = longest if context is None else min(context, longest)
    return Room(context, facts.kv_pool_tokens)


def measure(
    name: str,
    plan: Plan,
    client: BenchClient,
    check: Callable[[], None],
    progress: BenchProgress,
    room: Room,
    *,
    sampled: bool = True,
) -> Iterator[Sample]:
    """Warm up, then ask everything of the plan; a sample for each request, failed ones too.

    ``check`` raises ServerDied when the server is gone. ``sampled`` False leaves the temperatures out. Every round
    starts on a flushed cache and every request has a cache namespace of its own, so that each prompt is computed.

    Raises:
        ServerDied: the server is gone; what was yielded before stays good.
        ServerError: it cannot be flushed.
    """
    progress.starting(name, "bench: warming up")
    for round_ in plan.warm_up:
        if _unfit(round_, room) is None:
            for sample in _run(round_, client):
                if sample.problem is not None:
                    check()
    rounds = [r for r in plan.rounds if sampled or r.stage != "temperature"]
    label = ""
    for round_ in rounds:
        if round_.label != label:
            label = round_.label
            total = sum(len(r.asks) for r in rounds if r.label == label)
            progress.stage(name, label, total, 0)
        unfit = _unfit(round_, room)
        samples = [_failed(round_, k, unfit, unfit=True) for k in range(len(round_.asks))] if unfit else None
        for sample in samples if samples is not None else _run(round_, client):
            if sample.failed:
                check()
            progress.advance(name, label, sample.tokens)
            yield sample


def _unfit(round_: Round, room: Room) -> str | None:
    problems = (room.problem(len(a.task.ids), a.task.sampling.max_new_tokens) for a in round_.asks)
    return next((p for p in problems if p is not None), None)


def _run(round_: Round, client: BenchClient) -> list[Sample]:
    client.flush_cache()
    results = _send(round_, client)
    begin = min((r.sent_s for r in results if isinstance(r, Streamed)), default=0.0)
    samples = []
    for slot, result in enumerate(results):
        if isinstance(result, Streamed):
            samples.append(_sample(round_, slot, result, begin))
        elif isinstance(result, ServerDied):
            raise result
        else:
            samples.append(_failed(round_, slot, str(result)))
    return samples


def _send(round_: Round, client: BenchClient) -> list[Streamed | LosslessError]:
    """All requests of a round, released together; their answers in the round's order."""
    requests = [
        GenerateRequest(ask.task.ids, ask.task.sampling, rid=f"lossless-bench-{uuid.uuid4().hex}")
        for ask in round_.asks
    ]
    together = threading.Barrier(len(requests))

    def send(request: GenerateRequest, ask: Ask) -> Streamed | LosslessError:
        together.wait()
        try:
            return client.stream(request, seed=ask.seed, namespace=request.rid)
        except ServerError as problem:
            return problem

    if len(requests) == 1:
        return [send(requests[0], round_.asks[0])]
    pool = ThreadPoolExecutor(len(requests), thread_name_prefix="lossless-bench")
    try:
        futures = [pool.submit(send, request, ask) for request, ask in zip(requests, round_.asks, strict=True)]
        return [future.result() for future in futures]
    except BaseException:  # Ctrl-C: the streams end when the server drops their requests
        together.abort()
        for request in requests:
            _abort_quietly(client, request.rid)
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _abort_quietly(client: BenchClient, rid: str | None) -> None:
    try:
        if rid is not None:
            client.abort(rid)
    except LosslessError:
        pass  # the caller is leaving already, and whatever made it leave matters more


def _sample(round_: Round, slot: int, streamed: Streamed, begin: float) -> Sample:
    answer, first, last = streamed.answer, streamed.first, streamed.last
    if first is None or last is None:
        return _failed(round_, slot, "the answer has no tokens")
    if answer.cached_tokens:
        return _failed(round_, slot, f"{answer.cached_tokens} prompt tokens came from the prefix cache")
    sent = streamed.sent_s - begin
    return Sample(
        **_place(round_, slot),
        prompt_tokens=answer.prompt_tokens,
        tokens=last.tokens,
        first_tokens=first.tokens,
        sent_s=round(sent, 6),
        first_s=round(sent + first.at_s, 6),
        last_s=round(sent + last.at_s, 6),
        verify_steps=answer.spec_verify_ct,
    )


def _failed(round_: Round, slot: int, problem: str, *, unfit: bool = False) -> Sample:
    return Sample(**_place(round_, slot), problem=problem, unfit=unfit)


def _place(round_: Round, slot: int) -> dict[str, Any]:
    task = round_.asks[slot].task
    return {
        "stage": round_.stage,
        "category": task.category,
        "task": task.id,
        "streams": len(round_.asks) if round_.stage == "speed" else 1,
        "repeat": round_.repeat,
        "slot": slot,
        "length": task.length,
        "temperature": task.sampling.temperature,
    }
