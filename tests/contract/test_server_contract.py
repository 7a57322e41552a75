"""How both engines behave over several requests: streams, pending requests, the prefix cache, what they say of
themselves, and the same greedy ids."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from contract_cases import COUNT, COUNT_SAYS, ITALY, ITALY_SAYS, stop
from engines import EMBEDDED, SGLANG, VOCABULARY, Engine, baselines, every_server, sglang_servers

from lossless.errors import ProtocolError, ServerError
from lossless.prompts import Tokenizer, load_prompts
from lossless.protocol import Answer, GenerateRequest, Sampling
from lossless.protocol.stream import StreamingClient
from lossless.reference.builtin import builtin_path
from lossless.servers import ServerFacts, algorithm_of, config_problems
from lossless.servers.pair_arguments import EXPECTED, MATTER
from lossless.servers.resolved_facts import resolved_facts

LONG = 2000
"""Tokens of a request that is still running when the next one arrives."""

ABORTED = ("Aborted", "Abort in waiting queue")
"""What an aborted request is told: one that ran, and one that waited for its turn."""

BLOCK = 64
"""The prefix cache keeps recurrent states every so many tokens."""

WHOLE_BLOCKS = {SGLANG: 0, EMBEDDED: BLOCK}
"""What a repeated prompt of exactly two blocks hits. Its last token is always computed anew, so the second block is out
of reach. SGLang keeps a state only after the last block of a prefill, the embedded engine after each."""

ACCEPT_LENGTH = 0.02
"""How far accept lengths over all prompts may be apart, as a share: drafts may differ where two candidates tie."""

EMBEDDED_LACKS = {EMBEDDED: {"embedding"}, SGLANG: set()}
"""/model_info of 0.5.19 describes embedding models too, which the embedded engine has none of."""

# ------------------------------------------------------------------------------------------------------------ streams


def _events(engine: Engine, body: dict[str, Any]) -> list[Any]:
    response = engine.send("POST", "/generate", json={**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    lines = [line for line in response.text.split("\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


@every_server
def test_a_stream_is_cumulative_and_its_last_event_is_the_answer(engine: Engine) -> None:
    *events, last = _events(engine, engine.body(COUNT, {"max_new_tokens": 48, "stop": ["11"]}))
    assert last["output_ids"] == COUNT_SAYS[:33]
    assert last["text"] == "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, "
    assert last["meta_info"]["finish_reason"] == stop("11")
    assert {"e2e_latency", "weight_versions"} <= set(last["meta_info"])
    assert ("spec_verify_ct" in last["meta_info"]) is engine.speculates
    assert events, "the first token does not wait for the last"
    for event in events:
        meta = event["meta_info"]
        assert event["output_ids"] == COUNT_SAYS[: meta["completion_tokens"]]
        assert meta["finish_reason"] is None
        assert not {"e2e_latency", "weight_versions", "spec_verify_ct"} & set(meta)


@every_server
def test_the_suites_own_client_reads_a_stream(engine: Engine) -> None:
    request = GenerateRequest(tuple(COUNT), Sampling(48, stop=("11",)))
    with StreamingClient(engine.server.url, vocab_size=VOCABULARY) as client:
        streamed = client.stream(request, namespace="a-stream-of-its-own")
    answer, chunks = streamed.answer, streamed.chunks
    assert list(answer.output_ids) == COUNT_SAYS[:33]
    assert answer.text == "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, "
    assert answer.cached_tokens == 0
    assert bool(answer.spec_verify_ct) is engine.speculates
    assert chunks[0].tokens < chunks[-1].tokens == 33, "the first token does not wait for the last"
    assert [c.tokens for c in chunks] == sorted(c.tokens for c in chunks)
    assert [c.at_s for c in chunks] == sorted(c.at_s for c in chunks)


@baselines
def test_a_stream_of_a_batch_carries_indices(engine: Engine) -> None:
    events = _events(engine, engine.body([ITALY, COUNT], {"max_new_tokens": 4}))
    last = {event["index"]: event for event in events}
    assert last[0]["output_ids"] == ITALY_SAYS[:4]
    assert last[1]["output_ids"] == COUNT_SAYS[:4]


@baselines
def test_a_refused_stream_says_so_in_an_event(engine: Engine) -> None:
    events = _events(engine, engine.body([], {"max_new_tokens": 4}))
    error = {
        "message": "input_ids cannot be empty.", "type": "invalid_request_error", "code": 400, "retryable": False
    }  # fmt: skip
    assert events == [{"error": error}]


# ---------------------------------------------------------------------------------------------------- pending requests
class Pending:
    """A long request that runs meanwhile."""

    def __init__(self, engine: Engine, rid: str) -> None:
        self._engine, self._rid = engine, rid
        self._answer: Any = None
        self._thread = threading.Thread(target=self._ask, name=rid)
        self._thread.start()

    def _ask(self) -> None:
        params = {"max_new_tokens": LONG, "ignore_eos": True}
        self._answer = self._engine.generate(ITALY, params, rid=self._rid)

    def wait_until_it_runs(self) -> None:
        """The server refuses to flush, then. (Asking again under the same id would be no way to see it: a real server
        loses a request that comes in under an id in the moment in which another one of that id ends.)"""
        deadline = time.monotonic() + 30
        while self._engine.send("POST", "/flush_cache").status_code == 200:
            assert time.monotonic() < deadline, "the request never arrived"

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> Any:
        """Its answer."""
        self._thread.join(60)
        assert self.over, "the request did not end"
        assert self._answer is not None
        return self._answer


@contextmanager
def _pending(engine: Engine, rid: str) -> Iterator[Pending]:
    request = Pending(engine, rid)
    try:
        request.wait_until_it_runs()
        yield request
    finally:
        engine.client.abort(rid)
        request.wait()


def _check_aborted(body: Any) -> None:
    finish = body["meta_info"]["finish_reason"]
    assert finish["type"] == "abort"
    assert finish["message"] in ABORTED
    assert body["output_ids"][: len(ITALY_SAYS)] == ITALY_SAYS[: len(body["output_ids"])]
    assert len(body["output_ids"]) == body["meta_info"]["completion_tokens"] < LONG
    with pytest.raises(ProtocolError, match="the server aborted the request: Abort"):
        Answer.from_json(body)


@every_server
def test_an_aborted_request_is_answered_with_what_it_has(engine: Engine) -> None:
    with _pending(engine, "victim") as pending:
        assert engine.send("POST", "/abort_request", json={"rid": "nobody"}).status_code == 200
        assert engine.send("POST", "/flush_cache").status_code == 400, "nobody was aborted"
        done = engine.send("POST", "/abort_request", json={"rid": "victim"})
        assert (done.status_code, done.content) == (200, b"")
        _check_aborted(pending.wait())


@baselines
def test_all_requests_can_be_aborted(engine: Engine) -> None:
    requests = [Pending(engine, "one"), Pending(engine, "two")]
    deadline = time.monotonic() + 60
    while not all(request.over for request in requests):
        engine.client.abort(None)  # again and again: one of them may not have arrived the first time
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for request in requests:
        _check_aborted(request.wait())


@every_server
def test_an_id_in_use_is_refused(engine: Engine) -> None:
    with _pending(engine, "taken"):
        again = engine.send("POST", "/generate", json=engine.body(ITALY, {"max_new_tokens": 1}, rid="taken"))
    assert (again.status_code, again.json()) == (400, {"error": {"message": "Duplicate request ID detected: taken"}})


@every_server
def test_no_flush_while_a_request_is_pending(engine: Engine) -> None:
    with _pending(engine, "busy") as pending:
        refused = engine.send("POST", "/flush_cache")
        assert (refused.status_code, refused.text) == (400, "Flush cache failed.\n")
        with pytest.raises(ServerError, match="did not flush its cache within"):
            engine.client.flush_cache(timeout_s=0.3)
        assert engine.client.health(), "busy is not ill"
        engine.client.abort("busy")
        engine.client.flush_cache(timeout_s=30)
        _check_aborted(pending.wait())


@every_server
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_flush_of_an_idle_server(engine: Engine, method: str) -> None:
    done = engine.send(method, "/flush_cache", params={"timeout": "5"})
    assert done.status_code == 200
    assert done.text.startswith("Cache flushed.\n")


@every_server
@pytest.mark.parametrize("path", ["/health", "/health_generate"])
def test_health(engine: Engine, path: str) -> None:
    assert engine.send("GET", path).status_code == 200


# ----------------------------------------------------------------------------------------------------- the prefix cache
@every_server
def test_a_repeated_prompt_hits_the_cache_in_blocks(engine: Engine) -> None:
    tokenizer = _tokenizer()
    text = tokenizer.encode_text("Once upon a time there was a gardener named Mara who lived near the library. " * 12)

    def ask(ids: tuple[int, ...]) -> Answer:
        return engine.client.generate(GenerateRequest(ids, Sampling(max_new_tokens=4)))

    whole = WHOLE_BLOCKS[engine.kind]
    for tokens, hit in ((BLOCK, 0), (BLOCK + 1, BLOCK), (2 * BLOCK, whole), (2 * BLOCK + 1, 2 * BLOCK)):
        engine.client.flush_cache()
        first, again = ask(text[:tokens]), ask(text[:tokens])
        assert (first.cached_tokens, again.cached_tokens) == (0, hit), f"{tokens} tokens; a flush empties the cache"
        assert again.output_ids == first.output_ids
        details = again.raw["meta_info"]["cached_tokens_details"]
        assert details == ({"device": hit, "host": 0} if hit else None)


@every_server
def test_asking_for_input_logprobs_limits_the_hit(engine: Engine) -> None:
    text = _tokenizer().encode_text("Once upon a time there was a gardener named Mara who lived near the library. " * 6)
    ids = text[: BLOCK + 6]
    engine.client.flush_cache()
    scores: list[float | None] = []  # of the last token
    for start, hit in ((-1, 0), (0, 0), (BLOCK - 1, 0), (BLOCK, BLOCK), (BLOCK + 5, BLOCK), (-1, BLOCK)):
        answer = engine.client.generate(
            GenerateRequest(ids, Sampling(max_new_tokens=0), return_logprob=True, logprob_start_len=start)
        )
        assert answer.cached_tokens == hit, f"logprob_start_len {start}"
        assert answer.input_logprobs is not None
        if len(answer.input_logprobs) > 1:
            scores.append(answer.input_logprobs[-1].logprob)
    assert len(scores) == 3
    assert scores == pytest.approx([scores[0]] * 3, abs=1e-4), "a hit changes no logprob"


# ------------------------------------------------------------------------------------ what servers say of themselves
@every_server
def test_server_info_has_what_the_suite_reads(engine: Engine) -> None:
    info, model = engine.client.server_info(), engine.client.model_info()
    facts = ServerFacts(server_info=info, model_info=model)
    named = [name for name in (*MATTER, *EXPECTED) if not name.startswith("SGLANG_")]
    assert [name for name in named if name not in info and name not in model] == [], "arguments that are compared"
    assert algorithm_of(facts) == {"baseline": None, "nextn": "EAGLE", "dflash": "DFLASH"}[engine.name]
    assert config_problems(facts, engine.speculates) == ()
    assert info["status"] == "ready"
    assert len(facts.states) == 1
    found = resolved_facts(info)
    assert found.running_requests == 4
    assert found.context_length in (None, 4096), "SGLang shows it only where it was given"
    assert found.draft_tokens == {"baseline": None, "nextn": 4, "dflash": 8}[engine.name]
    for name in ("version", "kv_pool_tokens", "max_input_tokens", "attention_backend", "weights_gb", "kv_cache_gb"):
        assert getattr(found, name) is not None, name
    assert engine.send("GET", "/get_server_info").json().keys() == info.keys(), "the older name"


@every_server
def test_model_info(engine: Engine) -> None:
    model = engine.client.model_info()
    target = str(builtin_path() / "target")
    newer = {"disaggregation_mode"} if engine.since_0_5_23 else set()
    assert {"embedding", *model} - {"embedding"} - newer == {
        "model_path", "served_model_name", "tokenizer_path", "is_generation", "preferred_sampling_params",
        "weight_version", "load_format", "reasoning_parser", "tool_call_parser", "has_image_understanding",
        "has_audio_understanding", "model_type", "architectures",
    }  # fmt: skip
    assert {"embedding"} - set(model) == EMBEDDED_LACKS[engine.kind]
    assert (model["model_path"], model["tokenizer_path"]) == (target, target)
    assert model["is_generation"] is True
    assert model["preferred_sampling_params"] is None
    assert model["architectures"] == ["Qwen3_5ForConditionalGeneration"]
    assert engine.send("GET", "/get_model_info").json() == model


@every_server
def test_the_average_accept_length_is_that_since_the_flush(engine: Engine) -> None:
    engine.client.flush_cache()
    assert resolved_facts(engine.client.server_info()).accept_length is None
    engine.client.generate(GenerateRequest(tuple(COUNT), Sampling(max_new_tokens=48)))
    average = resolved_facts(engine.client.server_info()).accept_length
    assert (average is not None) is engine.speculates
    assert average is None or 1 < average <= 8
    engine.client.flush_cache()
    assert resolved_facts(engine.client.server_info()).accept_length is None


# -------------------------------------------------------------------------------------------------------- the same ids
def _tokenizer() -> Tokenizer:
    return Tokenizer.from_folder(builtin_path() / "target")


def _parity_answers(engine: Engine) -> list[Answer]:
    tokenizer = _tokenizer()
    requests = [
        GenerateRequest(tokenizer.encode(prompt), tokenizer.sampling(prompt))
        for prompt in load_prompts("standard").in_group("parity")
    ]
    engine.client.flush_cache()
    answers: dict[int, Answer] = {}
    for index, answer in engine.client.generate_batch(requests, 4):
        if not isinstance(answer, Answer):
            raise answer
        answers[index] = answer
    return [answers[index] for index in range(len(requests))]


@sglang_servers
def test_both_engines_say_the_same(engine: Engine, twin: Engine) -> None:
    real, embedded = _parity_answers(engine), _parity_answers(twin)
    prompts = [prompt.id for prompt in load_prompts("standard").in_group("parity")]
    apart = [
        f"{name}: {one.output_ids} {one.finish}, {other.output_ids} {other.finish}"
        for name, one, other in zip(prompts, real, embedded, strict=True)
        if (one.output_ids, one.finish, one.text) != (other.output_ids, other.finish, other.text)
    ]
    assert not apart, "\n".join(apart)
    if engine.speculates:
        assert _accept_length(embedded) == pytest.approx(_accept_length(real), rel=ACCEPT_LENGTH)


def _accept_length(answers: list[Answer]) -> float:
    """Tokens a verify step, over all answers."""
    steps = sum(answer.spec_verify_ct or 0 for answer in answers)
    return sum(answer.completion_tokens for answer in answers) / steps
