"""What the suite relies on in SGLang's native API, asked of the embedded engine and of real SGLang 0.5.19 alike.

Expectations stand once. Where the embedded engine may answer otherwise, a constant says so and why.
"""

from typing import Any

import httpx
import pytest
from contract_cases import (
    ADJUSTED,
    CHINESE,
    CHINESE_SAYS,
    CHINESE_TEXTS,
    COUNT,
    COUNT_SAYS,
    ENDS,
    EOS,
    ITALY,
    ITALY_CHAT,
    ITALY_RUNS_ON,
    ITALY_SAYS,
    MALFORMED,
    REFUSALS,
    UNEXPECTED,
    End,
    Refusal,
    length,
    stop,
)
from engines import (
    EMBEDDED,
    SGLANG,
    VOCABULARY,
    Engine,
    baselines,
    embedded_servers,
    every_server,
)

from lossless.protocol import GenerateRequest, Sampling

META = {
    "id", "finish_reason", "prompt_tokens", "completion_tokens", "cached_tokens", "cached_tokens_details",
    "reasoning_tokens", "num_retractions", "weight_version", "weight_versions", "dp_rank", "e2e_latency",
    "response_sent_to_client_ts",
}  # fmt: skip
SPECULATION = {
    "spec_verify_ct", "spec_accept_length", "spec_accept_rate", "spec_num_correct_drafts", "spec_num_proposed_drafts",
    "spec_accepted_drafts", "spec_proposed_drafts", "spec_correct_drafts_histogram", "spec_accept_histogram",
}  # fmt: skip
GONE = {"spec_accepted_drafts", "spec_proposed_drafts", "spec_accept_histogram"}
"""Second names that 0.5.19 has and 0.5.23 has not."""
LOGPROBS = {"input_token_logprobs", "output_token_logprobs", "output_token_logprobs_length"}
DRAFTS = {"nextn": 3, "dflash": 7}
"""Draft tokens of a verify step."""

NATS = 1e-4
"""Logprobs of one token, decoded and re-scored, may differ this much in float32."""

STUMBLES = {SGLANG: 500, EMBEDDED: 400}
"""SGLang fails inside and answers 500 without a reason; the embedded engine says what is wrong."""
REFUSED_SINCE_0_5_23 = ("unknown-key", "max-a-string")
"""With 400, as the embedded engine does."""

RESERVED = {"nextn": 4}
"""Tokens that SGLang adds to each prompt's length before it compares it with the context."""
RESERVES = frozenset({SGLANG})
"""The embedded engine needs no such room."""


def _meta(engine: Engine, *args: Any, **options: Any) -> dict[str, Any]:
    meta: dict[str, Any] = engine.generate(*args, **options)["meta_info"]
    return meta


def _fields(engine: Engine, tokens: int) -> set[str]:
    """The keys of meta_info without logprobs: speculation shows once a block was verified."""
    speculation = SPECULATION - GONE if engine.since_0_5_23 else SPECULATION
    return META | speculation if engine.speculates and tokens > 1 else META


# ------------------------------------------------------------------------------------------------------------ answers
@every_server
def test_an_answer_has_exactly_these_fields(engine: Engine) -> None:
    body = engine.generate(ITALY, {"max_new_tokens": 6}, rid="contract-1")
    assert set(body) == {"text", "output_ids", "meta_info"}
    meta = body["meta_info"]
    assert set(meta) == _fields(engine, 6)
    assert meta["id"] == "contract-1"
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (len(ITALY), 6, 0)
    assert (meta["reasoning_tokens"], meta["num_retractions"]) == (0, 0)
    assert meta["cached_tokens_details"] is None
    assert meta["weight_versions"] == [{"version": meta["weight_version"], "start": 0, "end": 6}]
    assert meta["e2e_latency"] > 0


@every_server
@pytest.mark.parametrize("end", ENDS, ids=[end.id for end in ENDS])
def test_how_an_answer_ends(engine: Engine, end: End) -> None:
    _check_end(engine, end)


@baselines
@pytest.mark.parametrize("end", ADJUSTED, ids=[end.id for end in ADJUSTED])
def test_changed_logits_on_a_baseline(engine: Engine, end: End) -> None:
    _check_end(engine, end)


def _check_end(engine: Engine, end: End) -> None:
    body = engine.generate(end.prompt, end.params)
    assert body["output_ids"] == end.says
    assert body["meta_info"]["finish_reason"] == end.finish
    assert body["text"] == ("" if engine.since_0_5_23 and end.params.get("stop") == [""] else end.text)
    assert body["meta_info"]["completion_tokens"] == len(end.says)
    assert set(body["meta_info"]) == _fields(engine, len(end.says))


@every_server
@pytest.mark.parametrize("cap", range(1, 18))
def test_every_cap(engine: Engine, cap: int) -> None:
    body = engine.generate(CHINESE, {"max_new_tokens": cap})
    meta = body["meta_info"]
    assert body["output_ids"] == CHINESE_SAYS[:cap]
    assert body["text"] == CHINESE_TEXTS[min(cap, 9)]
    assert meta["finish_reason"] == (length(cap) if cap < 10 else stop(EOS))
    assert set(meta) == _fields(engine, cap)
    if not engine.speculates or cap == 1:
        return
    steps, correct, drafts = meta["spec_verify_ct"], meta["spec_num_correct_drafts"], DRAFTS[engine.name]
    histogram = meta["spec_correct_drafts_histogram"]
    assert 1 <= steps < cap, "the prefill gives the first token"
    assert sum(histogram) == steps
    assert sum(at * count for at, count in enumerate(histogram)) == correct
    assert len(histogram) <= drafts + 1
    assert meta["spec_num_proposed_drafts"] == steps * drafts
    assert meta["spec_accept_rate"] == pytest.approx(correct / (steps * drafts))
    assert meta["spec_accept_length"] == pytest.approx(len(body["output_ids"]) / steps)
    assert correct + steps + 1 >= len(body["output_ids"]), "each step puts out its correct drafts and one more"
    if not engine.since_0_5_23:
        assert meta["spec_accept_histogram"] == histogram
        assert (meta["spec_accepted_drafts"], meta["spec_proposed_drafts"]) == (correct, steps * drafts)


@every_server
def test_max_new_tokens_is_128_by_default(engine: Engine) -> None:
    body = engine.generate(ITALY, {"ignore_eos": True})
    assert body["meta_info"]["finish_reason"] == length(128)
    assert body["output_ids"][: len(ITALY_RUNS_ON)] == ITALY_RUNS_ON


@every_server
def test_text_and_ids_mean_the_same_and_ids_win(engine: Engine) -> None:
    by_text = engine.generate(ITALY_CHAT, {"max_new_tokens": 4})
    assert (by_text["output_ids"], by_text["meta_info"]["prompt_tokens"]) == (ITALY_SAYS[:4], len(ITALY))
    both = engine.generate(ITALY, {"max_new_tokens": 4}, text="hello")
    assert (both["output_ids"], both["meta_info"]["prompt_tokens"]) == (ITALY_SAYS[:4], len(ITALY))


@every_server
def test_a_batch_is_answered_in_order_like_single_requests(engine: Engine) -> None:
    bodies = engine.generate([ITALY, CHINESE, COUNT], {"max_new_tokens": 48}, rid="lot")
    assert [body["output_ids"] for body in bodies] == [ITALY_SAYS, CHINESE_SAYS, COUNT_SAYS]
    assert [body["meta_info"]["id"] for body in bodies] == ["lot_0", "lot_1", "lot_2"]
    assert all(set(body["meta_info"]) == _fields(engine, 48) for body in bodies)
    one = engine.generate([ITALY], {"max_new_tokens": 3})
    assert [body["output_ids"] for body in one] == [ITALY_SAYS[:3]]


@baselines
def test_a_batch_may_have_options_for_each_prompt(engine: Engine) -> None:
    params = [{"max_new_tokens": 3, "temperature": 0}, {"max_new_tokens": 5, "temperature": 0}]
    response = engine.send(
        "POST", "/generate", json={"input_ids": [ITALY, CHINESE], "sampling_params": params, "rid": ["a", "b"]}
    )
    assert response.status_code == 200, response.text
    assert [body["output_ids"] for body in response.json()] == [ITALY_SAYS[:3], CHINESE_SAYS[:5]]
    assert [body["meta_info"]["id"] for body in response.json()] == ["a", "b"]


@every_server
def test_an_unknown_key_in_the_body_is_ignored(engine: Engine) -> None:
    assert engine.generate(ITALY, {"max_new_tokens": 4}, no_such_key=1)["output_ids"] == ITALY_SAYS[:4]


# ----------------------------------------------------------------------------------------------------------- logprobs
@every_server
def test_logprobs_of_output_alone(engine: Engine) -> None:
    meta = _meta(engine, ITALY, {"max_new_tokens": 32}, return_logprob=True)
    assert set(meta) == _fields(engine, 10) | LOGPROBS
    assert meta["input_token_logprobs"] == []
    assert [row[1:] for row in meta["output_token_logprobs"]] == [[token, None] for token in ITALY_SAYS]
    assert meta["output_token_logprobs_length"] == len(ITALY_SAYS)


@every_server
def test_top_lists_and_chosen_ids(engine: Engine) -> None:
    options = {"return_logprob": True, "top_logprobs_num": 5, "token_ids_logprob": [EOS, 24]}
    meta = _meta(engine, ITALY, {"max_new_tokens": 8}, **options)
    lists = {"input_top_logprobs", "output_top_logprobs", "input_token_ids_logprobs", "output_token_ids_logprobs"}
    assert set(meta) == _fields(engine, 8) | LOGPROBS | lists
    assert (meta["input_top_logprobs"], meta["input_token_ids_logprobs"]) == ([], [])
    own = meta["output_token_logprobs"]
    for row, top, chosen in zip(own, meta["output_top_logprobs"], meta["output_token_ids_logprobs"], strict=True):
        assert len(top) == 5
        assert top[0] == row, "greedy decoding takes the best one"
        assert [entry[0] for entry in top] == sorted((entry[0] for entry in top), reverse=True)
        assert [entry[1] for entry in chosen] == [EOS, 24]
        known = {token: logprob for logprob, token, _ in top}
        assert all(logprob == pytest.approx(known.get(token, logprob), abs=NATS) for logprob, token, _ in chosen)
        assert all(entry[0] <= 0 for entry in (*top, *chosen))


@every_server
@pytest.mark.parametrize("options", [{"top_logprobs_num": 0}, {"top_logprobs_num": -1}, {"token_ids_logprob": []}])
def test_no_lists_unless_asked_for(engine: Engine, options: dict[str, Any]) -> None:
    meta = _meta(engine, ITALY, {"max_new_tokens": 2}, return_logprob=True, **options)
    assert set(meta) == _fields(engine, 2) | LOGPROBS
    plain = _meta(engine, ITALY, {"max_new_tokens": 2}, **(options or {}))
    assert set(plain) == _fields(engine, 2), "without return_logprob they mean nothing"


@every_server
@pytest.mark.parametrize(("start", "first"), [(0, 0), (14, 14), (24, 24), (25, None), (-1, None)])
def test_scoring_starts_where_it_is_told_to(engine: Engine, start: int, first: int | None) -> None:
    ids = [*ITALY, *ITALY_SAYS]
    meta = _meta(
        engine,
        ids,
        {"max_new_tokens": 0},
        return_logprob=True,
        logprob_start_len=start,
        top_logprobs_num=2,
        token_ids_logprob=[EOS, 24, 900],
    )
    assert meta["finish_reason"] == length(0)
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (25, 0)
    assert not set(meta) & SPECULATION
    rows, top, chosen = (meta[f"input_{name}_logprobs"] for name in ("token", "top", "token_ids"))
    scored = [] if first is None else ids[first:]
    assert [row[1] for row in rows] == scored
    assert len(top) == len(chosen) == len(scored)
    if first is not None:
        assert rows[0] == [None, ids[first], None]
        assert top[0] is None
        assert chosen[0] is None
        assert all(logprob is not None for logprob, _, _ in rows[1:])
        assert all(len(row) == 2 for row in top[1:])
        assert all([entry[1] for entry in row] == [EOS, 24, 900] for row in chosen[1:])
    # What comes next is listed without being an output; speculation also counts it as one.
    assert len(meta["output_top_logprobs"]) == 1
    assert len(meta["output_token_logprobs"]) == meta["output_token_logprobs_length"] == int(engine.speculates)


@every_server
@pytest.mark.parametrize(("prompt", "says"), [(ITALY, ITALY_SAYS), (COUNT, COUNT_SAYS)], ids=["italy", "count"])
def test_decoded_and_rescored_logprobs_are_equal(engine: Engine, prompt: list[int], says: list[int]) -> None:
    request = GenerateRequest(
        tuple(prompt), Sampling(max_new_tokens=48), return_logprob=True, top_logprobs_num=5, token_ids_logprob=(24, 900)
    )
    decoded = engine.client.generate(request)
    assert list(decoded.output_ids) == says
    assert decoded.output_logprobs is not None
    scored = engine.client.score(prompt, says, top=5, token_ids=(24, 900))
    assert scored.input_logprobs is not None
    assert scored.input_top is not None
    assert decoded.output_top is not None
    before = [entry.logprob for entry in decoded.output_logprobs]
    after = [entry.logprob for entry in scored.input_logprobs[1:]]
    assert after == pytest.approx(before, abs=NATS)
    for one, other in zip(decoded.output_top, scored.input_top[1:], strict=True):
        assert [entry.logprob for entry in other] == pytest.approx([entry.logprob for entry in one], abs=NATS)
        assert other[0].token_id == one[0].token_id


@baselines
def test_a_batch_is_scored_like_single_prompts(engine: Engine) -> None:
    options = {"return_logprob": True, "logprob_start_len": [14, 0], "top_logprobs_num": 2}
    bodies = engine.generate([[*ITALY, *ITALY_SAYS], COUNT], {"max_new_tokens": 0}, **options)
    rows = [body["meta_info"]["input_token_logprobs"] for body in bodies]
    assert [[row[1] for row in one] for one in rows] == [[ITALY[-1], *ITALY_SAYS], COUNT]
    alone = _meta(engine, COUNT, {"max_new_tokens": 0}, return_logprob=True, logprob_start_len=0)
    single = [row[0] for row in alone["input_token_logprobs"][1:]]
    assert [row[0] for row in rows[1][1:]] == pytest.approx(single, abs=NATS)


# ----------------------------------------------------------------------------------------------------------- refusals
@every_server
@pytest.mark.parametrize("case", REFUSALS, ids=[case.id for case in REFUSALS])
def test_a_wrong_value_is_refused(engine: Engine, case: Refusal) -> None:
    response = engine.send("POST", "/generate", json=engine.body(case.source, case.params, **case.options))
    assert response.status_code == 400, response.text
    _check_refusal(response, case.message)


def _check_refusal(response: httpx.Response, message: str) -> None:
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message"}
    assert body["error"]["message"].startswith(message), body["error"]["message"]


@every_server
def test_without_a_prompt_it_is_refused(engine: Engine) -> None:
    response = engine.send("POST", "/generate", json={"sampling_params": {"max_new_tokens": 4}})
    assert response.status_code == 400, response.text
    _check_refusal(response, "Either text, input_ids or input_embeds should be provided.")


@every_server
@pytest.mark.parametrize(("tokens", "new"), [(4200, 4), (4096, 4), (4050, 100), (15, 100_000)])
def test_beyond_the_context_it_is_refused(engine: Engine, tokens: int, new: int) -> None:
    ids = (ITALY * 300)[:tokens]
    counted = tokens + (RESERVED.get(engine.name, 0) if engine.kind in RESERVES else 0)
    response = engine.send("POST", "/generate", json=engine.body(ids, {"max_new_tokens": new}))
    assert response.status_code == 400, response.text
    longer = f"The input ({counted} tokens) is longer than the model's context length (4096 tokens)."
    total = (
        "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of "
        f"{counted + new} tokens: {counted} tokens from the input messages and {new} tokens for the completion."
    )
    _check_refusal(response, longer if counted >= 4096 else total)


@every_server
@pytest.mark.parametrize(("name", "content"), MALFORMED, ids=[name for name, _ in MALFORMED])
def test_a_malformed_body_is_refused_in_another_form(engine: Engine, name: str, content: str) -> None:
    headers = {"Content-Type": "application/json"}
    response = engine.send("POST", "/generate", content=content.encode(), headers=headers)
    _check_malformed(response, name)


@baselines
def test_a_malformed_query_is_refused_in_that_form_too(engine: Engine) -> None:
    _check_malformed(engine.send("POST", "/flush_cache", params={"timeout": "soon"}), "timeout")


def _check_malformed(response: httpx.Response, what: str) -> None:
    assert response.status_code == 400, f"{what}: {response.text}"
    body = response.json()
    assert isinstance(body.pop("message"), str)
    assert body == {"object": "error", "type": "Bad Request", "param": None, "code": 400}


@every_server
@pytest.mark.parametrize(("name", "params"), UNEXPECTED, ids=[name for name, _ in UNEXPECTED])
def test_unexpected_parameters_are_no_answer_and_no_end(engine: Engine, name: str, params: Any) -> None:
    response = engine.send("POST", "/generate", json={"input_ids": ITALY, "sampling_params": params})
    refused = engine.since_0_5_23 and name in REFUSED_SINCE_0_5_23
    assert response.status_code == (400 if refused else STUMBLES[engine.kind]), f"{name}: {response.text}"
    assert engine.generate(ITALY, {"max_new_tokens": 2})["output_ids"] == ITALY_SAYS[:2], "it still serves"


@embedded_servers
@pytest.mark.parametrize(
    ("source", "params", "options"),
    [
        ([*ITALY, VOCABULARY], {}, {}),
        ([-1, *ITALY], {}, {}),
        (ITALY, {"max_new_tokens": 2.5}, {}),
        (ITALY, {}, {"return_logprob": True, "logprob_start_len": -2}),
        (ITALY, {}, {"return_logprob": True, "logprob_start_len": 16, "top_logprobs_num": 2}),
        (ITALY, {}, {"return_logprob": True, "top_logprobs_num": VOCABULARY + 1}),
        ("", {}, {}),
    ],
    ids=["id-above", "id-below", "fraction", "start-below", "start-beyond", "top-too-many", "no-text"],
)
def test_what_ends_a_real_server_is_refused(
    engine: Engine, source: list[int] | str, params: dict[str, Any], options: dict[str, Any]
) -> None:
    response = engine.send("POST", "/generate", json=engine.body(source, {"max_new_tokens": 2, **params}, **options))
    assert response.status_code == 400, response.text
    _check_refusal(response, "")


@baselines
@pytest.mark.parametrize(
    ("method", "path", "status", "detail"),
    [
        ("GET", "/generate", 405, "Method Not Allowed"),
        ("DELETE", "/generate", 405, "Method Not Allowed"),
        ("GET", "/abort_request", 405, "Method Not Allowed"),
        ("POST", "/server_info", 405, "Method Not Allowed"),
        ("GET", "/no_such_path", 404, "Not Found"),
        ("POST", "/no_such_path", 404, "Not Found"),
        ("GET", "/metrics", 404, "Not Found"),
    ],
)
def test_wrong_paths_and_methods(engine: Engine, method: str, path: str, status: int, detail: str) -> None:
    response = engine.send(method, path)
    assert (response.status_code, response.json()) == (status, {"detail": detail})
