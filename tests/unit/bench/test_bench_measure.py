"""Measuring against a client that answers at known times."""

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from lossless.bench.measure import measure, room_of
from lossless.bench.plan import Plan, Settings, Task, make_plan
from lossless.bench.sample import Sample
from lossless.errors import LosslessError, ProtocolError, ServerDied
from lossless.profiles.request_room import Room
from lossless.protocol import Answer, GenerateRequest, Sampling
from lossless.protocol.stream import Chunk, Streamed
from lossless.record.store import RecordedPrompt

PROMPTS = [RecordedPrompt(name, name, "parity", (k,), Sampling(96), name) for k, name in enumerate(("code", "list"))]


def answer(tokens: int, prompt_tokens: int = 1, **meta: Any) -> Answer:
    return Answer.from_json(
        {
            "text": "x",
            "output_ids": list(range(tokens)),
            "meta_info": {
                "finish_reason": {"type": "length", "length": tokens},
                "prompt_tokens": prompt_tokens,
                "completion_tokens": tokens,
                **meta,
            },
        }
    )


@dataclass
class Client:
    """Every answer: the first token 0.5 s after sending, 21 tokens after 2.5 s."""

    meta: dict[str, Any] = field(default_factory=dict)
    problems: dict[int, LosslessError] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    namespaces: list[str | None] = field(default_factory=list)
    seeds: list[int | None] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)
    now: float = 0.0

    def stream(self, request: GenerateRequest, *, seed: int | None = None, namespace: str | None = None) -> Streamed:
        with self.lock:
            self.now += 10.0
            number = len(self.namespaces)
            self.log.append("stream")
            self.namespaces.append(namespace)
            self.seeds.append(seed)
            self.temperatures.append(request.sampling.temperature)
        if number in self.problems:
            raise self.problems[number]
        chunks = (Chunk(0.5, 1), Chunk(2.5, 21))
        return Streamed(answer(21, len(request.input_ids), **self.meta), self.now, chunks)

    def flush_cache(self) -> None:
        self.log.append("flush")

    def abort(self, rid: str | None) -> None:
        self.log.append(f"abort {rid}")


@dataclass
class Quiet:
    lines: list[str] = field(default_factory=list)
    stages: list[tuple[str, str, int, int]] = field(default_factory=list)
    done: int = 0

    def starting(self, server: str, line: str) -> None:
        self.lines.append(f"{server}: {line}")

    def stage(self, server: str, stage: str, total: int, done: int) -> None:
        self.stages.append((server, stage, total, done))

    def advance(self, server: str, stage: str, tokens: int) -> None:  # noqa: ARG002
        self.done += 1


def plan(**settings: Any) -> Plan:
    made = make_plan(PROMPTS, (), Settings(**{"repeats": 1, "streams": (1,), "temperatures": (0.0,), **settings}))
    return Plan(made.settings, made.categories, (), made.rounds)


def run(client: Client, plan: Plan, room: Room = Room(None), **more: Any) -> list[Sample]:  # noqa: B008
    return list(measure("nextn", plan, client, lambda: None, Quiet(), room, **more))


def test_a_sample_holds_exactly_what_the_stream_said() -> None:
    first, second = run(Client(meta={"spec_verify_ct": 6}), plan())
    assert first == Sample(
        "speed", "code", "code", 1, 0, 0, None, 0.0,
        prompt_tokens=1, tokens=21, first_tokens=1, sent_s=0.0, first_s=0.5, last_s=2.5, verify_steps=6,
    )  # fmt: skip
    assert second.category == "list"


def test_every_round_is_flushed_and_every_request_has_a_cache_of_its_own() -> None:
    client = Client()
    run(client, plan(streams=(1, 2)))
    assert client.log == ["flush", "stream", "flush", "stream", "flush", *["stream"] * 2, "flush", *["stream"] * 2]
    assert None not in client.namespaces
    assert len(set(client.namespaces)) == len(client.namespaces) == 6


def test_times_of_a_round_start_with_its_first_request() -> None:
    samples = run(Client(), plan(streams=(2,)))
    begins = sorted(s.sent_s for s in samples if s.category == "code")
    assert begins[0] == 0.0
    assert all(s.last_s - s.first_s == 2.0 and s.first_s - s.sent_s == 0.5 for s in samples)


def test_a_prompt_out_of_the_cache_is_no_measurement() -> None:
    samples = run(Client(meta={"cached_tokens": 5}), plan())
    assert [s.problem for s in samples] == ["5 prompt tokens came from the prefix cache"] * 2


def test_a_failed_request_is_kept_with_its_problem_and_the_others_go_on() -> None:
    samples = run(Client(problems={0: ProtocolError("HTTP 500: out of memory")}), plan())
    assert samples[0].failed
    assert samples[0].problem == "HTTP 500: out of memory"
    assert samples[1].ok


def test_a_dead_server_ends_the_measuring_and_keeps_what_was_there() -> None:
    client = Client(problems={1: ServerDied("server 'nextn' ended")})
    steps = measure("nextn", plan(), client, lambda: None, Quiet(), Room(None))
    assert next(steps).category == "code"
    with pytest.raises(ServerDied, match="'nextn' ended"):
        next(steps)


def test_the_server_is_looked_at_after_a_failure() -> None:
    def check() -> None:
        raise ServerDied("server 'nextn' is gone")

    client = Client(problems={0: ProtocolError("HTTP 500")})
    with pytest.raises(ServerDied, match="is gone"):
        list(measure("nextn", plan(), client, check, Quiet(), Room(None)))


def test_what_does_not_fit_is_not_sent() -> None:
    client = Client()
    samples = run(client, plan(), Room(64))
    assert client.log == []
    assert all(s.unfit and not s.failed and not s.ok for s in samples)
    assert "context length is 64 tokens" in (samples[0].problem or "")


def test_temperatures_are_left_out_where_the_server_cannot_sample() -> None:
    client = Client()
    both = run(client, plan(temperatures=(0.0, 0.6)))
    assert [s.temperature for s in both] == [0.0, 0.0, 0.6, 0.6]
    assert client.temperatures == [0.0, 0.0, 0.6, 0.6]
    assert client.seeds == [None, None, 1, 1]
    assert [s.temperature for s in run(Client(), plan(temperatures=(0.0, 0.6)), sampled=False)] == [0.0, 0.0]


def test_warm_up_answers_are_not_kept() -> None:
    client = Client()
    made = make_plan(PROMPTS, (), Settings(repeats=1, streams=(1, 2), temperatures=(0.0,)))
    samples = run(client, made)
    assert len(samples) == made.requests == 6
    assert client.log.count("stream") == 6 + 3


def test_progress_counts_the_requests_of_each_part() -> None:
    progress = Quiet()
    list(measure("nextn", plan(streams=(1, 2)), Client(), lambda: None, progress, Room(None)))
    assert progress.stages == [("nextn", "bench, alone", 2, 0), ("nextn", "bench, 2 at once", 4, 0)]
    assert progress.done == 6


def test_leaving_a_round_ends_its_requests() -> None:
    class Interrupted(Client):
        def stream(self, *_: Any, **__: Any) -> Streamed:
            raise KeyboardInterrupt

    client = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        run(client, plan(streams=(2,)))
    assert sum(line.startswith("abort lossless-bench-") for line in client.log) == 2


def test_room_is_read_from_what_the_server_says() -> None:
    assert room_of({"context_length": 4096, "max_total_num_tokens": 20000}) == Room(4096, 20000)
    assert room_of({"context_length": None, "max_req_input_len": 4090}) == Room(4096)
    assert room_of({}) == Room(None)


def test_an_answer_without_a_token_is_no_measurement() -> None:
    class Silent(Client):
        def stream(self, *_: Any, **__: Any) -> Streamed:
            return Streamed(answer(0), 0.0, ())

    assert [s.problem for s in run(Silent(), plan())] == ["the answer has no tokens"] * 2


def test_a_task_of_a_length_keeps_it() -> None:
    long = (Task("needle-256", "needle", tuple(range(256)), Sampling(32), 256),)
    made = make_plan(PROMPTS, long, Settings(repeats=1, streams=(1,), temperatures=(0.0,)))
    found = [s for s in run(Client(), made) if s.stage == "context"]
    assert [(s.length, s.prompt_tokens) for s in found] == [(256, 256)]
