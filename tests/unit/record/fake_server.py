"""A server, a client and a progress that live in memory: what the recorder asks is written down."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lossless.errors import LosslessError, ProtocolError, ServerDied
from lossless.protocol import Answer, GenerateRequest, Sampling
from lossless.record.recorder import WARM_UP, Recorder
from lossless.record.store import Golden, Manifest, RecordedPrompt, RunStore, ServerState

EOS = 1


@dataclass
class World:
    """All servers of one run. ``log`` holds (server, event) in the order in which things happened.

    ``dies_at`` and ``fails_at`` name the request (by server and count of its generating requests, from 0) at which a
    server dies or answers HTTP 500 (warming up does not count); ``outputs`` gives a variant other outputs, and
    ``logprob_outputs`` a server other ones when it is asked for logprobs.
    """

    log: list[tuple[str, str]] = field(default_factory=list)
    dies_at: dict[str, int] = field(default_factory=dict)
    fails_at: dict[str, int] = field(default_factory=dict)
    will_not_start: set[str] = field(default_factory=set)
    outputs: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    logprob_outputs: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    info: dict[str, dict[str, Any]] = field(default_factory=dict)
    interrupt_at: dict[str, int] = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)

    def events(self, server: str, *kinds: str) -> list[str]:
        return [event for name, event in self.log if name == server and (not kinds or event.split()[0] in kinds)]


@dataclass
class FakeServer:
    name: str
    world: World
    settings: Mapping[str, str] = field(default_factory=dict)
    dead: bool = False

    def start(self, on_progress: Callable[[str], None]) -> None:
        self.world.log.append((self.name, "start"))
        on_progress("loading weights")
        if self.name in self.world.will_not_start:
            raise ServerDied(f"{self.name} ended with exit status 1 while starting")

    def check(self) -> None:
        if self.dead:
            raise ServerDied(f"{self.name} is gone")

    def stop(self) -> None:
        self.world.log.append((self.name, "stop"))


@dataclass
class FakeClient:
    name: str
    server: FakeServer
    world: World

    def generate(self, request: GenerateRequest) -> Answer:
        world, count = self.world, self.world.sent[self.name]
        if request.sampling.max_new_tokens == WARM_UP:
            world.log.append((self.name, f"warm {request.input_ids[0]}"))
            return Answer.from_json(self._body(request))
        world.sent[self.name] += 1
        kind = "score" if request.sampling.max_new_tokens == 0 else "lp" if request.return_logprob else "ask"
        world.log.append((self.name, f"{kind} {request.input_ids[0]}"))
        if world.interrupt_at.get(self.name) == count:
            raise KeyboardInterrupt
        if world.dies_at.get(self.name) == count:
            self.server.dead = True
            raise ServerDied(f"{self.name} died")
        if world.fails_at.get(self.name) == count:
            raise ProtocolError("HTTP 500: out of memory")
        return Answer.from_json(self._body(request))

    def _body(self, request: GenerateRequest) -> dict[str, Any]:
        prompt = request.input_ids
        if request.sampling.max_new_tokens == 0:
            entries = [[None, 0, None], *([-0.5, i, None] for i in prompt[request.logprob_start_len + 1 :])]
            meta = {"input_token_logprobs": entries, "input_top_logprobs": [None, *([[e] for e in entries[1:]])]}
            return _answer((), "", len(prompt), {"type": "length", "length": 0}, meta)
        ids = self.world.outputs.get((self.name, prompt[0]), (prompt[0] + 100, prompt[0] + 101, EOS))
        if request.return_logprob:
            ids = self.world.logprob_outputs.get((self.name, prompt[0]), ids)
        meta = {} if self.name == "baseline" else {"spec_verify_ct": 1}
        if request.return_logprob:
            meta["output_token_logprobs"] = [[-0.5, i, None] for i in ids]
        return _answer(ids, "text", len(prompt), {"type": "stop", "matched": EOS}, meta)

    def generate_batch(
        self, requests: list[GenerateRequest], concurrency: int
    ) -> Iterable[tuple[int, Answer | LosslessError]]:
        """Answers in another order than asked, as real ones arrive."""
        self.world.log.append((self.name, f"batch {len(requests)} by {concurrency}"))
        for index in reversed(range(len(requests))):
            try:
                yield index, self.generate(requests[index])
            except LosslessError as problem:
                yield index, problem

    def cut_off(self, request: GenerateRequest, *, leave: bool) -> bool:
        self.world.log.append((self.name, f"{'leave' if leave else 'abort'} {request.input_ids[0]}"))
        return True

    def health(self) -> bool:
        self.world.log.append((self.name, "health"))
        return not self.server.dead

    def flush_cache(self) -> None:
        self.world.log.append((self.name, "flush"))

    def server_info(self) -> dict[str, Any]:
        default = {"version": "0.5.19", "model_path": "tiny"}
        if self.name != "baseline":
            default["speculative_algorithm"] = "EAGLE"
        return {**default, **self.world.info.get(self.name, {})}

    def model_info(self) -> dict[str, Any]:
        return {"model_path": "tiny"}


def _answer(
    ids: tuple[int, ...], text: str, prompt_tokens: int, finish: dict[str, Any], meta: dict[str, Any]
) -> dict[str, Any]:
    common = {"finish_reason": finish, "prompt_tokens": prompt_tokens, "completion_tokens": len(ids)}
    return {"text": text, "output_ids": list(ids), "meta_info": {**common, "e2e_latency": 0.25, **meta}}


@dataclass
class Watcher:
    """Progress that remembers."""

    stages: list[tuple[str, str, int, int]] = field(default_factory=list)
    ended: list[ServerState] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    tokens: int = 0

    def starting(self, server: str, line: str) -> None:
        self.lines.append(f"{server}: {line}")

    def stage(self, server: str, stage: str, total: int, done: int) -> None:
        self.stages.append((server, stage, total, done))

    def advance(self, server: str, stage: str, tokens: int) -> None:  # noqa: ARG002
        self.tokens += tokens

    def finished(self, state: ServerState) -> None:
        self.ended.append(state)


GROUPS = {"a": "parity", "b": "parity", "c": "cache", "d": "order", "e": "order", "f": "params"}


def make_store(
    folder: Path,
    *,
    goldens: dict[str, Golden] | None = None,
    groups: Mapping[str, str] = GROUPS,
    json_schema: str | None = None,
) -> RunStore:
    """Six prompts of one token each (10, 11, …), one of them with a penalty that cannot be scored, and two variants."""
    store = RunStore(folder)
    prompts = tuple(
        RecordedPrompt(name, "list", group, (10 + k,), sampling(group, json_schema), name)
        for k, (name, group) in enumerate(groups.items())
    )
    manifest = Manifest(
        "key", "p", "sglang", "tiny", "bfloat16", ("nextn", "dflash"), "s", "", "", None, (EOS,), 4, "0", "now"
    )
    store.create(manifest, prompts, goldens or {}, None)
    return store


def sampling(group: str, json_schema: str | None) -> Sampling:
    return Sampling(8, repetition_penalty=1.5 if group == "params" else 1.0, json_schema=json_schema)


def make_recorder(store: RunStore, world: World, attempt: str = "1", watcher: Watcher | None = None) -> Recorder:
    servers: dict[str, FakeServer] = {}

    def make(name: str, cards: tuple[str, ...]) -> FakeServer:
        world.log.append((name, f"cards {','.join(cards)}"))
        servers[name] = FakeServer(name, world)
        return servers[name]

    @contextmanager
    def lease(name: str) -> Iterator[tuple[str, ...]]:
        world.log.append((name, "lease"))
        try:
            yield ("0",)
        finally:
            world.log.append((name, "release"))

    return Recorder(
        store,
        make,
        lambda name, _server: FakeClient(name, servers[name], world),
        watcher or Watcher(),
        lease,
        attempt,
    )


def record_all(store: RunStore, world: World, attempt: str = "1") -> list[ServerState]:
    recorder = make_recorder(store, world, attempt)
    return [recorder.record(name) for name in ("nextn", "dflash", "baseline")]
