"""Runs the plan of one server: starts it, sends the prompts, keeps every answer as it arrives.

One call records one server. Several workers may each record another one; a file lock a server keeps them apart, and
the baseline's turn comes when all variants are recorded, because it re-scores what they said.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

from lossless.errors import LosslessError, ProtocolError, ServerDied, ServerError
from lossless.protocol import Answer, GenerateRequest, Sampling
from lossless.record.plan import (
    AFTER,
    AGAIN,
    LOGPROBS,
    PLAIN,
    SCORE,
    STRESS,
    Item,
    Stage,
    adjusted,
    not_scorable,
    stages,
)
from lossless.record.room import no_room
from lossless.record.store import Record, RecordedPrompt, RunStore, ServerState, output_digest
from lossless.record.stress import StressedClient, stress, stress_plan
from lossless.record.survival import Survival
from lossless.servers.pair_arguments import MATTER

BASELINE = "baseline"
TOP = 5  # candidates a position: both sides of a flip, with room for three-way ties
WARM_UP = 16  # tokens
TOP_ADJUSTED = 128  # penalties reach far down the list


class RecordingServer(Protocol):
    """What the recorder needs of a server (``lossless.servers``)."""

    name: str
    settings: Mapping[str, str] | None

    def start(self, on_progress: Callable[[str], None]) -> None: ...

    def check(self) -> None: ...

    def stop(self) -> None: ...


class RecordingClient(StressedClient, Protocol):
    """What the recorder needs of a client (``lossless.protocol.client.Client``)."""

    def model_info(self) -> dict[str, Any]: ...


class Progress(Protocol):
    """Told what happens; the terminal shows it."""

    def starting(self, server: str, line: str) -> None: ...

    def stage(self, server: str, stage: str, total: int, done: int) -> None: ...

    def advance(self, server: str, stage: str, tokens: int) -> None: ...

    def finished(self, state: ServerState) -> None: ...


@dataclass(frozen=True, slots=True)
class Recorder:
    """Records servers into one run folder.

    ``make_server`` gets the cards that ``lease`` holds while the server runs; ``connect`` makes the client once it is
    ready. A server that failed is tried again only in another ``attempt``. ``before_scoring`` returns once all variants
    are recorded, for a baseline that is recorded beside them. ``measure`` gets a server that has answered everything,
    while it is up, if its name is still ``unmeasured``.
    """

    store: RunStore
    make_server: Callable[[str, tuple[str, ...]], RecordingServer]
    connect: Callable[[str, RecordingServer], RecordingClient]
    progress: Progress
    lease: Callable[[str], AbstractContextManager[tuple[str, ...]]] = lambda _name: nullcontext(())
    attempt: str = ""
    before_scoring: Callable[[], None] = lambda: None
    unmeasured: Callable[[str], bool] = lambda _name: False
    measure: Callable[[RecordingServer, tuple[str, ...], float], None] = lambda _server, _cards, _start_s: None

    def record(self, name: str) -> ServerState:
        """Record one server to its end, continuing what is already there.

        A server that cannot be started or dies ends in a state with ``problem`` set: what it did not answer stays
        missing, and missing evidence is inconclusive. Only bad input (UsageError) and interrupts are raised.
        """
        old = self.store.server(name)
        done = old is not None and old.complete and old.problem is None and not self._left_to_score(name)
        done = done and not self.unmeasured(name)
        if old is not None and (done or old.ended_in(self.attempt)):
            return old
        # What the server said of itself stays until it says it again: it belongs to the answers already on disk.
        state = replace(old or ServerState(name, False), complete=False, problem=None, attempt=self.attempt)
        self.store.write_server(state)
        started = time.monotonic()
        try:
            with self.lease(name) as cards:
                server = self.make_server(name, cards)
                try:
                    server.start(lambda line: self.progress.starting(name, line))
                    state = replace(state, start_s=time.monotonic() - started)
                    client = self.connect(name, server)
                    state = replace(
                        state,
                        server_info=client.server_info(),
                        model_info=client.model_info(),
                        settings=None if server.settings is None else dict(server.settings),
                    )
                    self._continue_or_forget(name, old, state)
                    state = self._run(name, server, client, state)
                    if self.unmeasured(name):
                        self.measure(server, cards, state.start_s)
                finally:
                    server.stop()
        except ServerError as problem:
            state = replace(state, complete=False, problem=str(problem))
        self.store.write_server(state)
        self.progress.finished(state)
        return state

    def _continue_or_forget(self, name: str, old: ServerState | None, new: ServerState) -> None:
        """Answers of another SGLang version, model or configuration are no part of this recording."""
        if old is not None and old.server_info and _identity(old) != _identity(new):
            self.store.forget(name)
        self.store.write_server(new)

    def _run(self, name: str, server: RecordingServer, client: RecordingClient, state: ServerState) -> ServerState:
        manifest, prompts = self.store.manifest, {p.id: p for p in self.store.prompts}
        no_grammar = state.server_info.get("grammar_backend") in (None, "none")
        sendable = tuple(p for p in prompts.values() if p.sampling.json_schema is None or not no_grammar)
        # A prompt that was built to a length is left out where it does not fit; any other is meant to fit.
        sendable = tuple(p for p in sendable if p.depth is None or no_room(state.server_info, p) is None)
        plan = stages(sendable, baseline=name == BASELINE, concurrency=manifest.concurrency)
        self.store.drop_stages(name, self._half_finished(name, plan))
        for prompt in sendable:
            if problem := no_room(state.server_info, prompt):
                raise ServerError(f"{name}: prompt {prompt.id}: {problem}")
        self._warm_up(name, sendable, client)
        took: dict[str, float] = {}
        failed = 0
        for stage in plan:
            begin = time.monotonic()
            failed += self._stage(name, stage, prompts, server, client)
            took[stage.name] = time.monotonic() - begin
        generate_s = sum(took.values())
        if name == BASELINE:
            self.before_scoring()
            begin = time.monotonic()
            failed += self._score(prompts, manifest.concurrency, server, client)
            took[SCORE] = time.monotonic() - begin
        begin = time.monotonic()
        survival = self._stress(name, prompts, sendable, server, client, state)
        if survival is not None:
            took[STRESS] = time.monotonic() - begin
            if name == BASELINE and survival.problem is None and self._left_to_score(name):
                failed += self._score(prompts, manifest.concurrency, server, client)
        problem = f"{failed} requests failed" if failed else None
        return replace(
            state,
            complete=True,
            problem=problem,
            generate_s=generate_s,
            score_s=took.get(SCORE, 0.0),
            stage_s={stage: round(seconds, 3) for stage, seconds in took.items()},
            survival=survival,
        )

    def _stress(
        self,
        name: str,
        prompts: Mapping[str, RecordedPrompt],
        sendable: Sequence[RecordedPrompt],
        server: RecordingServer,
        client: RecordingClient,
        state: ServerState,
    ) -> Survival | None:
        """The stress test, unless it was done before; None where the set has none."""
        plan = stress_plan(sendable, state.server_info, concurrency=self.store.manifest.concurrency)
        if plan is None or (state.survival is not None and any(r.stage == STRESS for r in self.store.records(name))):
            return None if plan is None else state.survival
        self.store.drop_stages(name, frozenset({STRESS, AFTER}))
        self.progress.stage(name, STRESS, plan.kept, 0)

        def keep(item: Item, result: Answer | LosslessError, wall_s: float) -> None:
            said, why = (result.raw, None) if isinstance(result, Answer) else (None, str(result))
            self.store.append(name, Record(item.stage, item.prompt, item.turn, None, round(wall_s, 4), said, why))
            self.progress.advance(name, STRESS, len(result.output_ids) if isinstance(result, Answer) else 0)

        return stress(plan, prompts, client, keep, server.check, log=getattr(server, "log_path", None))

    def _warm_up(self, name: str, prompts: Sequence[RecordedPrompt], client: RecordingClient) -> None:
        """A few short answers that nobody keeps: kernels are compiled at their first use, and no prompt should pay."""
        chosen = sorted((p for p in prompts if p.depth is None), key=lambda p: len(p.ids))
        self.progress.starting(name, "warming up")
        for prompt in dict.fromkeys((*chosen[:1], *chosen[len(chosen) // 2 :][:1], *chosen[-1:])):
            with contextlib.suppress(ProtocolError):
                client.generate(GenerateRequest(prompt.ids, Sampling(max_new_tokens=WARM_UP)))

    def _half_finished(self, name: str, plan: tuple[Stage, ...]) -> frozenset[str]:
        answers = self.store.answers(name)
        half = set()
        for stage in plan:
            have = sum(
                (r := answers.get((i.stage, i.prompt, i.turn, None))) is not None and r.answer is not None
                for i in stage.items
            )
            if stage.stateful and 0 < have < len(stage.items):
                half.add(stage.name)
        return frozenset(half)

    def _stage(
        self,
        name: str,
        stage: Stage,
        prompts: Mapping[str, RecordedPrompt],
        server: RecordingServer,
        client: RecordingClient,
    ) -> int:
        """Run what is missing of a stage; the number of failed requests."""
        answers = self.store.answers(name)
        todo = [
            item
            for item in stage.items
            if (r := answers.get((item.stage, item.prompt, item.turn, None))) is None or r.answer is None
        ]
        if stage.name == AGAIN:
            todo = [item for item in todo if not _repeated(answers, item.prompt)]
        self.progress.stage(name, stage.name, len(stage.items), len(stage.items) - len(todo))
        if not todo:
            return 0
        requests = [plan_request(prompts[item.prompt], stage) for item in todo]
        if stage.flush == "once":
            client.flush_cache()
        failed = 0
        result: Answer | LosslessError
        if stage.concurrency > 1:
            for index, result, wall in _timed(client.generate_batch(requests, stage.concurrency)):
                failed += self._keep(name, stage.name, todo[index], result, wall, server)
            return failed
        for item, request in zip(todo, requests, strict=True):
            if stage.flush == "each":
                client.flush_cache()
            begin = time.monotonic()
            try:
                result = client.generate(request)
            except ServerError as problem:
                result = problem
            failed += self._keep(name, stage.name, item, result, time.monotonic() - begin, server)
        return failed

    def _keep(
        self,
        name: str,
        stage: str,
        item: Item,
        result: Answer | LosslessError,
        wall_s: float,
        server: RecordingServer,
        output: str | None = None,
    ) -> int:
        """Put one result on disk; 1 if it failed. Raises ServerDied when the server is gone."""
        tokens = 0
        if isinstance(result, Answer):
            record = Record(item.stage, item.prompt, item.turn, output, round(wall_s, 4), answer=result.raw)
            tokens = len(result.output_ids)
        else:
            record = Record(item.stage, item.prompt, item.turn, output, round(wall_s, 4), error=str(result))
        self.store.append(name, record)
        self.progress.advance(name, stage, tokens)
        if isinstance(result, ServerDied):
            raise result
        if isinstance(result, LosslessError):
            server.check()
            return 1
        return 0

    # ------------------------------------------------------------- re-scoring
    def _score(
        self,
        prompts: Mapping[str, RecordedPrompt],
        concurrency: int,
        server: RecordingServer,
        client: RecordingClient,
    ) -> int:
        """Re-score the baseline's own outputs and every output that differs from them; each distinct one once."""
        wanted = self._unscored(prompts)
        keys = list(wanted)
        requests = [scoring_request(prompts[wanted[k][0]], wanted[k][1]) for k in keys]
        self.progress.stage(BASELINE, SCORE, len(requests), 0)
        failed = 0
        if requests:
            client.flush_cache()
        for index, result, wall in _timed(client.generate_batch(requests, concurrency)):
            key = keys[index]
            item = Item(SCORE, wanted[key][0])
            failed += self._keep(BASELINE, SCORE, item, result, wall, server, output=key)
        return failed

    def _left_to_score(self, name: str) -> bool:
        """Whether a finished baseline has to come back: a variant was recorded (again) after it."""
        return name == BASELINE and bool(self._unscored({p.id: p for p in self.store.prompts}))

    def _unscored(self, prompts: Mapping[str, RecordedPrompt]) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Outputs without a re-scoring answer, by digest: prompt id and token ids."""
        scored = {r.output for r in self.store.answers(BASELINE).values() if r.stage == SCORE and r.answer is not None}
        return {key: value for key, value in self._outputs_to_score(prompts).items() if key not in scored}

    def _outputs_to_score(self, prompts: Mapping[str, RecordedPrompt]) -> dict[str, tuple[str, tuple[int, ...]]]:
        wanted: dict[str, tuple[str, tuple[int, ...]]] = {}

        def want(prompt_id: str, ids: tuple[int, ...]) -> None:
            prompt = prompts.get(prompt_id)
            if prompt is not None and ids and not not_scorable(prompt.sampling):
                wanted.setdefault(output_digest(prompt.ids, ids), (prompt_id, ids))

        for name in (BASELINE, *self.store.manifest.variants):
            for record in self.store.answers(name).values():
                answer = record.parsed()
                if answer is not None and record.stage != SCORE:
                    want(record.prompt, answer.output_ids)
        for prompt_id, golden in self.store.goldens.items():
            want(prompt_id, golden.ids)
        return wanted


def _repeated(answers: Mapping[tuple[str, str, int, str | None], Record], prompt: str) -> bool:
    """Whether the pass with logprobs, alone as well, said what the plain pass said: then that was the second run. Where
    it did not, logprobs may be the cause, so only a second plain run tells."""
    found = [answers.get((stage, prompt, 0, None)) for stage in (PLAIN, LOGPROBS)]
    first, second = (None if record is None else record.parsed() for record in found)
    return (
        first is not None
        and second is not None
        and (first.output_ids, first.finish) == (second.output_ids, second.finish)
    )


def plan_request(prompt: RecordedPrompt, stage: Stage) -> GenerateRequest:
    """The request of one prompt in a generating stage."""
    return GenerateRequest(
        input_ids=prompt.ids,
        sampling=prompt.sampling,
        return_logprob=stage.logprobs,
        top_logprobs_num=TOP if stage.logprobs else 0,
    )


def scoring_request(prompt: RecordedPrompt, output_ids: tuple[int, ...]) -> GenerateRequest:
    """Teacher forcing: a prefill of prompt + output that returns the top logprobs of every output position.

    ``logprob_start_len`` is the last prompt token: its (null) entry comes first, then one entry an output token.
    """
    return GenerateRequest(
        input_ids=(*prompt.ids, *output_ids),
        sampling=Sampling(max_new_tokens=0),
        return_logprob=True,
        logprob_start_len=len(prompt.ids) - 1,
        top_logprobs_num=TOP_ADJUSTED if adjusted(prompt.sampling) else TOP,
    )


def _timed(
    results: Iterable[tuple[int, Answer | LosslessError]],
) -> Iterable[tuple[int, Answer | LosslessError, float]]:
    """The results with their own wall time where the server reports it, else 0."""
    for index, result in results:
        yield index, result, (result.latency_s or 0.0) if isinstance(result, Answer) else 0.0


def _identity(state: ServerState) -> tuple[object, ...]:
    """What must not change while a recording is resumed: what matters in a pair, and how it speculates."""
    info = state.server_info
    speculation = sorted((k, repr(v)) for k, v in info.items() if k.startswith("speculative_"))
    return (*(info.get(k) for k in MATTER), *speculation)
