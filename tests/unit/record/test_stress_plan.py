"""The stress test: what is sent, and what each kind of trouble becomes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lossless.errors import LosslessError, ProtocolError, ServerDied, ServerError
from lossless.protocol import Answer, GenerateRequest, Sampling
from lossless.record import stress as module
from lossless.record.plan import AFTER, STRESS, Item
from lossless.record.store import RecordedPrompt
from lossless.record.stress import StressPlan, stress, stress_plan
from lossless.record.survival import Survival, joined

INFO = {"version": "0.5.19", "context_length": 4096, "max_total_num_tokens": 4096, "max_running_requests": 4}
SHORT = Sampling(64, ignore_eos=True)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STAGGER_S", 0.0)


def prompt(name: str, tokens: int, group: str = "stress", depth: float | None = None) -> RecordedPrompt:
    ids = tuple(k % 3000 + 7 for k in range(tokens))
    return RecordedPrompt(name, "list", group, ids, SHORT, name, depth=depth)


PROMPTS = (
    prompt("first", 9, "parity"),
    prompt("s1", 20),
    prompt("s2", 30),
    prompt("needle-512", 512, "long", 0.5),
    prompt("needle-900", 900, "long", 0.5),
)


def plan(**info: Any) -> StressPlan:
    found = stress_plan(PROMPTS, {**INFO, **info}, concurrency=4)
    assert found is not None
    return found


@dataclass
class Client:
    """Answers everything, until told otherwise. ``trouble`` is raised at the named call and its number (from 0)."""

    trouble: dict[tuple[str, int], Exception] = field(default_factory=dict)
    healthy: bool = True
    cut: bool = True
    retractions: int = 0
    infos: list[dict[str, Any]] = field(default_factory=list)
    short_by: int = 0
    finish: str = "length"
    log: list[str] = field(default_factory=list)

    def _at(self, call: str) -> None:
        number = self.log.count(call)
        self.log.append(call)
        if (call, number) in self.trouble:
            raise self.trouble[call, number]

    def generate(self, request: GenerateRequest) -> Answer:
        self._at("generate")
        count = request.sampling.max_new_tokens - self.short_by
        return Answer.from_json(
            {
                "text": "x",
                "output_ids": [5] * count,
                "meta_info": {
                    "finish_reason": {"type": "length", "length": count}
                    if self.finish == "length"
                    else {"type": self.finish, "matched": 2},
                    "prompt_tokens": len(request.input_ids),
                    "completion_tokens": count,
                    "num_retractions": self.retractions,
                },
            }
        )

    def generate_batch(
        self, requests: list[GenerateRequest], concurrency: int
    ) -> Iterable[tuple[int, Answer | LosslessError]]:
        self.log.append(f"batch {len(requests)} by {concurrency}")
        for index, request in enumerate(requests):
            try:
                yield index, self.generate(request)
            except LosslessError as problem:
                yield index, problem

    def cut_off(self, request: GenerateRequest, *, leave: bool) -> bool:
        assert request.sampling.max_new_tokens >= SHORT.max_new_tokens
        self._at("leave" if leave else "abort")
        return self.cut

    def flush_cache(self) -> None:
        self._at("flush")

    def health(self) -> bool:
        self._at("health")
        return self.healthy

    def server_info(self) -> dict[str, Any]:
        return self.infos.pop(0) if self.infos else INFO


def run(
    client: Client, check: Callable[[], None] = lambda: None, log: Path | None = None
) -> tuple[Survival, list[tuple[Item, Answer | LosslessError]]]:
    kept: list[tuple[Item, Answer | LosslessError]] = []
    by_id = {p.id: p for p in PROMPTS}
    found = stress(plan(), by_id, client, lambda item, result, _wall: kept.append((item, result)), check, log=log)
    return found, kept


def test_without_a_stress_prompt_there_is_none() -> None:
    assert stress_plan([p for p in PROMPTS if p.group != "stress"], INFO, concurrency=4) is None


def test_what_is_sent() -> None:
    found = plan()
    assert [i.prompt for i in found.pair] == ["needle-900", "needle-900"]
    assert [i.prompt for i in found.burst] == ["s1", "s2"] * 4
    assert [i.prompt for i in found.after] == ["first", "s1", "s2", "needle-900"]
    items = [*found.pair, *found.burst, *found.beside, *found.after]
    assert len(set(items)) == len(items) == found.kept
    assert {i.stage for i in found.after} == {AFTER}
    assert {i.stage for i in items} == {STRESS, AFTER}


@pytest.mark.parametrize(("concurrency", "burst"), [(1, 8), (4, 8), (8, 16), (100, 32)])
def test_a_burst_is_twice_the_load_in_bounds(concurrency: int, burst: int) -> None:
    found = stress_plan(PROMPTS, INFO, concurrency=concurrency)
    assert found is not None
    assert len(found.burst) == burst


def test_cut_off_requests_fit_the_server() -> None:
    assert {r.sampling.max_new_tokens for r in plan().cut_off} == {128}
    small = plan(context_length=300, max_total_num_tokens=300)
    assert all(len(r.input_ids) + r.sampling.max_new_tokens <= 300 for r in small.cut_off)


def test_retractions_are_provoked_where_the_pool_is_small() -> None:
    found = plan()
    assert found.retraction_note is None
    assert len(found.retracting) == 4
    (new,) = {r.sampling.max_new_tokens for r in found.retracting}
    assert all(r.sampling.min_new_tokens == new and not r.sampling.ignore_eos for r in found.retracting)
    prompts = [len(r.input_ids) for r in found.retracting]
    assert max(prompts) + new <= 4096
    assert 1.1 * 4096 < sum(n + new for n in prompts) < 1.3 * 4096
    assert sum(n + 0.7 * new for n in prompts[:3]) + prompts[3] + new < 4096, "all of them run before one is done"


@pytest.mark.parametrize(
    ("info", "why"),
    [
        ({"version": "reference-0.1.0"}, "never retracts"),
        ({"max_running_requests": 1}, "one request at a time"),
        ({"max_total_num_tokens": 400000, "context_length": 131072}, "do not fill a KV pool of 400000 tokens"),
    ],
)
def test_where_none_can_be_provoked_it_says_why(info: dict[str, Any], why: str) -> None:
    found = plan(**info)
    assert found.retracting == ()
    assert why in (found.retraction_note or "")


def test_an_honest_server_survives() -> None:
    client = Client(retractions=1)
    found, kept = run(client)
    assert (found.longest_tokens, found.pair, found.burst) == (900, 2, 8)
    assert (found.aborts, found.aborted, found.disconnects) == (20, 20, 20)
    assert (found.healthy, found.flushed, found.failed, found.leaks, found.problem) == (True, True, (), (), None)
    assert found.retractions == 2 + 8 + 2 + 4 + 4
    assert len(kept) == plan().kept
    assert all(isinstance(result, Answer) for _, result in kept)
    assert client.log[-8:] == ["flush", "generate"] * 4, "alone again, each after a flush"


@pytest.mark.parametrize(
    ("call", "number", "asked"),
    [
        ("generate", 0, 0),
        ("generate", 5, 2),
        ("abort", 3, 10),
        ("flush", 1, 10),
        ("health", 0, 10),
        ("generate", 17, 10),
    ],
)
def test_a_death_ends_it_with_the_diagnosis(call: str, number: int, asked: int) -> None:
    found, _ = run(Client(trouble={(call, number): ServerDied("nextn ended: Can not alloc mamba cache")}))
    assert found.problem is not None
    assert "Can not alloc mamba cache" in found.problem
    assert not found.healthy
    assert found.pair + found.burst == asked


def test_a_server_that_is_gone_afterwards_died() -> None:
    def check() -> None:
        raise ServerDied("exit status 1")

    assert run(Client(), check)[0].problem == "exit status 1"


def test_a_refused_request_is_told_and_the_rest_goes_on() -> None:
    found, kept = run(Client(trouble={("generate", 4): ProtocolError("HTTP 500"), ("leave", 2): ServerError("broke")}))
    assert set(found.failed) == {"HTTP 500", "broke"}
    assert found.disconnects == 19
    assert sum(isinstance(result, LosslessError) for _, result in kept) == 1
    assert found.healthy


def test_a_server_that_calls_itself_ill_is_not_asked_further() -> None:
    found, kept = run(Client(healthy=False))
    assert not found.healthy
    assert [i for i, _ in kept if i.stage == AFTER] == []


def test_requests_that_stay_in_the_server_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAIN_S", -1.0)
    found, _ = run(Client(trouble={("flush", n): ServerError("did not flush within 30 s") for n in (1, 2)}))
    assert not found.flushed
    assert set(found.failed) == {"did not flush within 30 s"}


def test_a_server_may_take_a_while_until_it_is_idle() -> None:
    found, _ = run(Client(trouble={("flush", n): ServerError("did not flush within 30 s") for n in (1, 2, 3)}))
    assert (found.flushed, found.failed) == (True, ())


def test_what_the_log_says_of_abandoned_requests(tmp_path: Path) -> None:
    log = tmp_path / "nextn.log"
    line = "Received output for rid='lossless-{}' but the state was deleted in TokenizerManager.\n"
    log.write_text(line.format("a") * 3 + line.format("b") + "ready\n", encoding="utf-8")
    found, _ = run(Client(), log=log)
    assert (found.ran_on, found.leaks) == (2, ())


def test_aborts_without_effect_are_counted() -> None:
    found, _ = run(Client(cut=False))
    assert (found.aborts, found.aborted) == (20, 0)


def test_lost_room_is_a_leak() -> None:
    after = {**INFO, "max_total_num_tokens": 4000}
    found, _ = run(Client(infos=[INFO, after, after]))
    assert found.leaks == ("KV pool tokens: 4096 before, 4000 after",)


def test_what_the_log_says_of_leaks(tmp_path: Path) -> None:
    log = tmp_path / "nextn.log"
    log.write_text("ready\nreq_to_token_pool memory leak detected!available_size=3, total_size=4\n", encoding="utf-8")
    found, _ = run(Client(), log=log)
    assert found.leaks == ("the log says: req_to_token_pool memory leak detected!available_size=3, total_size=4",)


@pytest.mark.parametrize(("finish", "retractions"), [("length", 0), ("stop", 1)])
def test_an_answer_cut_short_in_a_full_pool_is_told(finish: str, retractions: int) -> None:
    found, _ = run(Client(short_by=1, finish=finish, retractions=retractions))
    assert any(text.startswith("an answer of ") and text.endswith(f"({finish})") for text in found.failed)


def test_a_server_that_ends_answers_early_has_not_failed_under_load() -> None:
    """As SGLang 0.5.19 with DFLASH on a GPU, which does not heed min_new_tokens: the pool was never full."""
    found, _ = run(Client(short_by=1, finish="stop"))
    assert found.failed == ()
    assert found.retraction_note == (
        "4 requests that outgrow the KV pool together provoked none; 4 of them ended before min_new_tokens"
    )


def test_a_full_pool_that_provokes_nothing_is_said() -> None:
    assert run(Client())[0].retraction_note == "4 requests that outgrow the KV pool together provoked none"
    assert run(Client(retractions=1))[0].retraction_note is None


def test_no_request_is_cut_off_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CUT_OFF_S", -1.0)
    found, _ = run(Client())
    assert (found.aborts, found.disconnects) == (0, 0)
    assert found.healthy


def test_a_failure_in_one_of_several_runs_is_not_hidden() -> None:
    well = Survival(900, 2, 8, 20, 20, 20, 1, healthy=True, flushed=True)
    dead = Survival(1200, 2, 8, problem="nextn died")
    both = joined([well, dead])
    assert both is not None
    assert (both.problem, both.healthy, both.flushed) == ("nextn died", False, False)
    assert (both.longest_tokens, both.burst, both.aborts, both.retractions) == (1200, 16, 20, 1)
    assert joined([well]) == well
    assert joined([]) is None
