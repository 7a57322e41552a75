"""The stress test of one server: what is sent, and whether the server is well afterwards.

It comes last, so that a server that does not survive it has answered everything else. Answers are kept like all others
(stages ``stress`` and ``after``) and compared with the same server's answers from before.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from lossless.errors import LosslessError, ServerDied, ServerError
from lossless.profiles.request_room import Room
from lossless.protocol import Answer, GenerateRequest, Sampling
from lossless.record.plan import AFTER, STRESS, Item
from lossless.record.store import RecordedPrompt
from lossless.record.survival import Survival
from lossless.servers.resolved_facts import resolved_facts

GROUP = "stress"
PAIR = 2  # requests of the longest prompt at once
BURST_TIMES, BURST_LEAST, BURST_MOST = 2, 8, 32  # short requests at once: twice what the profile sends, in bounds
CUT_OFF = 20  # requests ended by /abort_request, and as many by closing the connection
CUT_OFF_S = 60.0  # no request is cut off later than this
CUT_OFF_TOKENS = 128  # what a request that is cut off asks for: it must not end by itself, nor run on for long
DRAIN_S = 300.0  # until nothing runs any more
RETRACTING_TOKENS = 4096  # new tokens a request, at most, to provoke a retraction
COUNTED = 0.7  # of running answers is what SGLang counts with (SGLANG_INIT_NEW_TOKEN_RATIO)
STAGGER_S = 0.3  # between them: one that finds no room is not looked at again until another is done
MARGIN = 0.93  # so that the last request is admitted while the first ones have said little
SHOWN = 5

Keep = Callable[[Item, Answer | LosslessError, float], None]
"""Called with each answer that counts, and its wall seconds."""


class StressedClient(Protocol):
    """What the stress test needs of a client (``lossless.protocol.client.Client``)."""

    def generate(self, request: GenerateRequest) -> Answer: ...

    def generate_batch(
        self, requests: list[GenerateRequest], concurrency: int
    ) -> Iterable[tuple[int, Answer | LosslessError]]: ...

    def cut_off(self, request: GenerateRequest, *, leave: bool) -> bool: ...

    def flush_cache(self) -> None: ...

    def health(self) -> bool: ...

    def server_info(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class StressPlan:
    """What is sent: ``pair`` at once, ``burst`` at once, ``beside`` while others are cut off, ``after`` alone."""

    pair: tuple[Item, ...]
    burst: tuple[Item, ...]
    beside: tuple[Item, ...]
    after: tuple[Item, ...]
    cut_off: tuple[GenerateRequest, ...]
    retracting: tuple[GenerateRequest, ...]
    retraction_note: str | None
    concurrency: int

    @property
    def kept(self) -> int:
        """Requests whose answers count."""
        return sum(map(len, (self.pair, self.burst, self.beside, self.after)))


def stress_plan(prompts: Sequence[RecordedPrompt], info: Mapping[str, Any], *, concurrency: int) -> StressPlan | None:
    """The stress test of a server that says ``info`` of itself, for prompts that fit it; None without any prompt of
    the group ``stress``."""
    short = [p for p in prompts if p.group == GROUP]
    if not short:
        return None
    turns: Counter[str] = Counter()

    def items(chosen: Iterable[RecordedPrompt]) -> tuple[Item, ...]:
        found = []
        for prompt in chosen:
            found.append(Item(STRESS, prompt.id, turns[prompt.id]))
            turns[prompt.id] += 1
        return tuple(found)

    longest = max(prompts, key=lambda p: len(p.ids))
    many = min(max(BURST_TIMES * concurrency, BURST_LEAST), BURST_MOST)
    retracting, note = _retracting(short, info)
    return StressPlan(
        pair=items([longest] * PAIR),
        burst=items(short[k % len(short)] for k in range(many)),
        beside=items(short),
        after=tuple(Item(AFTER, p.id) for p in dict.fromkeys((*prompts[:1], *short, longest))),
        cut_off=tuple(_endless(short[k % len(short)], info) for k in range(CUT_OFF)),
        retracting=retracting,
        retraction_note=note,
        concurrency=max(2, concurrency),
    )


def _endless(prompt: RecordedPrompt, info: Mapping[str, Any]) -> GenerateRequest:
    """The prompt with an answer so long that it still runs when it is cut off."""
    facts = resolved_facts(info)
    room = Room(facts.context_length, facts.kv_pool_tokens).tokens
    new = CUT_OFF_TOKENS if room is None else min(CUT_OFF_TOKENS, room // 2 - len(prompt.ids))
    new = max(new, prompt.sampling.max_new_tokens)
    return GenerateRequest(prompt.ids, Sampling(max_new_tokens=new, ignore_eos=True))


def _retracting(
    short: Sequence[RecordedPrompt], info: Mapping[str, Any]
) -> tuple[tuple[GenerateRequest, ...], str | None]:
    """Requests that fit one by one and together outgrow the KV pool; or why there are none.

    SGLang admits a request against its whole answer, but counts with 0.7 of what running ones may still say,
    unless they ignore the end (``PrefillAdder``, managers/schedule_policy.py): short prompts with long answers that
    must not end overrun the pool.
    """
    facts = resolved_facts(info)
    pool, running = facts.kv_pool_tokens, facts.running_requests
    if str(facts.version).startswith("reference-"):
        return (), "the embedded engine never retracts"
    if pool is None or running is None or running < 2:
        return (), "one request at a time, or a KV pool of unknown size"
    longest = max(len(prompt.ids) for prompt in short)
    count = min(running, BURST_MOST)
    new = int(MARGIN * (pool - count * longest) / (COUNTED * (count - 1) + 1))
    if not longest < new <= RETRACTING_TOKENS or Room(facts.context_length, pool).problem(longest, new):
        return (), f"{running} requests at once do not fill a KV pool of {pool} tokens"
    sampling = Sampling(max_new_tokens=new, min_new_tokens=new)
    return tuple(GenerateRequest(short[k % len(short)].ids, sampling) for k in range(count)), None


class _Stress:
    """One run of a plan; the survival so far is always at hand, for a server that dies."""

    def __init__(self, plan: StressPlan, prompts: Mapping[str, RecordedPrompt], client: StressedClient, keep: Keep):
        self.plan, self.prompts, self.client, self.keep = plan, prompts, client, keep
        longest = max((len(prompts[i.prompt].ids) for i in plan.pair), default=0)
        self.survival = Survival(longest_tokens=longest, retraction_note=plan.retraction_note)

    def run(self, check: Callable[[], None]) -> Survival:
        try:
            self._all(check)
        except ServerDied as problem:
            self.survival = replace(self.survival, problem=str(problem), healthy=False)
        except ServerError as problem:
            self._failed(problem)
        return self.survival

    def _all(self, check: Callable[[], None]) -> None:
        before = _capacity(self.client.server_info())
        self.client.flush_cache()
        self._at_once(self.plan.pair, PAIR)
        self._count(pair=len(self.plan.pair))
        self._at_once(self.plan.burst, max(1, len(self.plan.burst)))
        self._count(burst=len(self.plan.burst))
        self._cut_off()
        self._drain()  # what runs on for nobody would keep the next ones apart
        self._retract()
        check()
        self._health()
        if not self.survival.healthy:
            return
        self._alone_again()
        lost = [f"{k}: {v} before, {now} after" for k, v in before.items() if (now := self._now(k)) != v]
        self._count(leaks=tuple(lost))
        check()

    def _now(self, key: str) -> object:
        return _capacity(self.client.server_info()).get(key)

    def _count(self, **more: Any) -> None:
        self.survival = replace(self.survival, **more)

    def _at_once(self, items: Sequence[Item], concurrency: int) -> None:
        requests = [self._request(item) for item in items]
        for index, result in self.client.generate_batch(requests, concurrency):
            self._note(items[index], result)

    def _request(self, item: Item) -> GenerateRequest:
        prompt = self.prompts[item.prompt]
        return GenerateRequest(prompt.ids, prompt.sampling)

    def _note(self, item: Item | None, result: Answer | LosslessError, wall_s: float = 0.0) -> None:
        if item is not None:
            self.keep(item, result, wall_s or (result.latency_s or 0.0 if isinstance(result, Answer) else 0.0))
        if isinstance(result, ServerDied):
            raise result
        if isinstance(result, Answer):
            self._count(retractions=self.survival.retractions + result.num_retractions)
        else:
            self._failed(result)

    def _failed(self, problem: LosslessError) -> None:
        if len(self.survival.failed) < SHOWN:
            self._count(failed=(*self.survival.failed, problem.message))

    def _cut_off(self) -> None:
        """Requests that are ended in mid-answer, with others beside them that are not."""
        deadline = time.monotonic() + CUT_OFF_S

        def beside(item: Item) -> Callable[[], None]:
            result = self._answer(self._request(item))
            return lambda: self._note(item, result)

        def end(request: GenerateRequest, leave: bool) -> Callable[[], None]:
            if time.monotonic() > deadline:
                return lambda: None
            try:
                was_running = self.client.cut_off(request, leave=leave)
            except LosslessError as problem:
                error = problem
                return lambda: self._note(None, error)
            return lambda: self._ended(was_running, leave)

        pool = ThreadPoolExecutor(self.plan.concurrency, thread_name_prefix="lossless-stress")
        try:
            futures = [pool.submit(beside, item) for item in self.plan.beside]
            futures += [pool.submit(end, r, leave) for r in self.plan.cut_off for leave in (False, True)]
            for future in as_completed(futures):
                future.result()()  # what there is to note is noted by this thread
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _ended(self, was_running: bool, leave: bool) -> None:
        s = self.survival
        if leave:
            self._count(disconnects=s.disconnects + 1)
        else:
            self._count(aborts=s.aborts + 1, aborted=s.aborted + was_running)

    def _answer(self, request: GenerateRequest) -> Answer | LosslessError:
        try:
            return self.client.generate(request)
        except LosslessError as problem:
            return problem

    def _retract(self) -> None:
        requests = list(self.plan.retracting)
        if not requests:
            return
        with ThreadPoolExecutor(len(requests), thread_name_prefix="lossless-stress") as pool:
            futures = []
            for request in requests:
                futures.append(pool.submit(self._answer, request))
                time.sleep(STAGGER_S)
        early, results = 0, [future.result() for future in futures]
        for result in results:
            self._note(None, result)
        for request, result in zip(requests, results, strict=True):
            wanted = request.sampling.max_new_tokens
            if isinstance(result, Answer) and len(result.output_ids) != wanted:
                early += result.finish.type == "stop"
                message = f"an answer of {wanted} tokens ended after {len(result.output_ids)} ({result.finish.type})"
                if result.finish.type != "stop" or self.survival.retractions:
                    self._count(failed=(*self.survival.failed, message)[:SHOWN])
        if not self.survival.retractions:
            # Ending before min_new_tokens is no failure under load; the parity tests judge it.
            why = f"; {early} of them ended before min_new_tokens" if early else ""
            note = f"{len(requests)} requests that outgrow the KV pool together provoked none{why}"
            self._count(retraction_note=note)

    def _health(self) -> None:
        try:
            self._count(healthy=self.client.health())
        except ServerDied:
            raise
        except LosslessError as problem:
            self._failed(problem)
        self._drain()

    def _drain(self) -> None:
        """Wait until the cache can be flushed. That may take a while: SGLang 0.5.18 and 0.5.19 go on with a streaming
        request whose client has left, up to its last token (sgl-project/sglang #36333, PR #35255)."""
        begin = time.monotonic()
        while True:
            problem: ServerError | None = None
            try:
                self.client.flush_cache()
            except ServerDied:
                raise
            except ServerError as error:
                problem = error
            waited = time.monotonic() - begin
            if problem is None or waited > DRAIN_S:
                break
        self._count(flushed=problem is None, drain_s=max(self.survival.drain_s, round(waited, 1)))
        if problem is not None:
            self._failed(problem)

    def _alone_again(self) -> None:
        for item in self.plan.after:
            self.client.flush_cache()
            begin = time.monotonic()
            result = self._answer(self._request(item))
            self._note(item, result, time.monotonic() - begin)


def stress(
    plan: StressPlan,
    prompts: Mapping[str, RecordedPrompt],
    client: StressedClient,
    keep: Keep,
    check: Callable[[], None],
    *,
    log: Path | None = None,
) -> Survival:
    """Send a plan. A server's death is a result, not an error; ``check`` raises ServerDied for one that is gone, and
    ``log`` is its log, where there is one."""
    survival = _Stress(plan, prompts, client, keep).run(check)
    if log is not None and log.is_file():
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        survival = replace(survival, leaks=(*survival.leaks, *leaks_in(lines))[:SHOWN], ran_on=ran_on(lines))
    return survival


def leaks_in(log_lines: Iterable[str]) -> Iterator[str]:
    """What SGLang's own idle check says of lost slots (0.5.17 to 0.5.23, ``raise_error_or_warn``: a warning unless
    SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE is set)."""
    for line in log_lines:
        if "leak detected" in line:
            yield f"the log says: {line.strip()[:200]}"


def ran_on(log_lines: Iterable[str]) -> int:
    """Abandoned requests that the server went on with, by its log (#36333; managers/tokenizer_manager.py)."""
    found = (re.search(r"Received output for rid='(\S+?)' but the state was deleted", line) for line in log_lines)
    return len({match[1] for match in found if match is not None})


def _capacity(info: Mapping[str, Any]) -> dict[str, object]:
    """What must be the same before and after: room for tokens and requests."""
    facts = resolved_facts(info)
    found = {"KV pool tokens": facts.kv_pool_tokens, "requests at once": facts.running_requests}
    return {key: value for key, value in found.items() if value is not None}
