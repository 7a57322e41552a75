"""The reference server over HTTP: SGLang's fields, defaults, errors and finish reasons."""

import contextlib
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import httpx
import pytest

from lossless.protocol import Answer
from lossless.reference import builtin_path
from lossless.reference.background import background

SPECULATION = {
    "baseline": [],
    "nextn": ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3"],
    "dflash": ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "builtin:tiny"],
}
PROMPTS = json.loads((builtin_path() / "eval_prompts.json").read_text("utf-8"))
ARITHMETIC, COPY, STORY = (PROMPTS[i]["ids"] for i in (0, 12, 48))
EOS = 1
ANSWER = [34, 31, 562, 231, 32, 26, 339, 231, 28, 31, 24, 320, 695, 314, 231, 28, 31, 24, EOS]
"""What a real SGLang answers to ARITHMETIC with these weights (recorded)."""

# The order and names that a real 0.5.19 server sends (recorded from one).
PLAIN_META = [
    "id", "finish_reason", "prompt_tokens", "weight_version", "num_retractions", "reasoning_tokens",
    "completion_tokens", "cached_tokens", "weight_versions", "cached_tokens_details", "dp_rank", "e2e_latency",
    "response_sent_to_client_ts",
]  # fmt: skip
SPEC_META = [
    "spec_accept_rate", "spec_accept_length", "spec_num_correct_drafts", "spec_num_proposed_drafts", "spec_verify_ct",
    "spec_accepted_drafts", "spec_proposed_drafts", "spec_correct_drafts_histogram", "spec_accept_histogram",
]  # fmt: skip
LOGPROB_META = [
    "input_token_logprobs", "output_token_logprobs", "output_token_logprobs_length",
    "input_top_logprobs", "output_top_logprobs",
]  # fmt: skip


class Client:
    """A client for one reference server."""

    def __init__(self, url):
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=60)

    def post(self, ids=None, **body):
        sampling = {"temperature": 0, **body.pop("sampling", {})}
        prompt = {} if ids is None else {"input_ids": ids}
        return self.client.post("/generate", json={**prompt, "sampling_params": sampling, **body})

    def ask(self, ids, **body):
        answer = self.post(ids, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextlib.contextmanager
def serving(*options):
    with background(options) as url:
        client = Client(url)
        try:
            yield client
        finally:
            client.client.close()


@pytest.fixture(scope="module")
def servers():
    with contextlib.ExitStack() as stack:
        made = {}

        def get(kind):
            if kind not in made:
                made[kind] = stack.enter_context(serving(*SPECULATION[kind]))
            return made[kind]

        yield get


@pytest.fixture
def base(servers):
    servers("baseline").client.post("/flush_cache", params={"timeout": 10}).raise_for_status()
    return servers("baseline")


@pytest.fixture(params=["baseline", "nextn", "dflash"])
def any_server(request, servers):
    servers(request.param).client.post("/flush_cache", params={"timeout": 10}).raise_for_status()
    return request.param, servers(request.param)


# -- answers ----------------------------------------------------------------------------------------------------------
def test_an_answer_has_the_recorded_fields_in_the_recorded_order(any_server):
    kind, server = any_server
    body = server.ask(ARITHMETIC)
    assert list(body) == ["text", "output_ids", "meta_info"]
    spec = [] if kind == "baseline" else SPEC_META
    assert list(body["meta_info"]) == [*PLAIN_META[:-1], *spec, PLAIN_META[-1]]
    assert body["text"] == "85 - 60 = 25. The answer is 25."
    assert body["output_ids"] == ANSWER
    meta = body["meta_info"]
    assert meta["finish_reason"] == {"type": "stop", "matched": EOS}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (len(ARITHMETIC), len(body["output_ids"]))
    assert meta["weight_versions"] == [{"version": "default", "start": 0, "end": 19}]
    assert re.fullmatch(r"[0-9a-f]{32}", meta["id"])
    assert Answer.from_json(body).finish.matched == EOS


def test_speculation_is_counted_like_sglang_counts(servers):
    meta = servers("dflash").ask(ARITHMETIC)["meta_info"]
    # A real SGLang with these weights reports the very same steps for this prompt.
    assert meta["spec_correct_drafts_histogram"] == [0, 0, 1, 0, 0, 0, 0, 2]
    assert meta["spec_verify_ct"] == 3
    assert meta["spec_accept_length"] == pytest.approx(19 / 3)
    assert (meta["spec_num_correct_drafts"], meta["spec_num_proposed_drafts"]) == (16, 21)


def test_one_token_needs_no_verification(servers):
    body = servers("nextn").ask(ARITHMETIC, sampling={"max_new_tokens": 1})
    assert "spec_verify_ct" not in body["meta_info"]
    assert body["meta_info"]["finish_reason"] == {"type": "length", "length": 1}


def test_all_three_servers_say_the_same(servers):
    for ids in (ARITHMETIC, COPY):
        outputs = [servers(kind).ask(ids)["output_ids"] for kind in SPECULATION]
        assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.parametrize("cap", [1, 2, 9])
def test_max_new_tokens_is_exact(any_server, cap):
    _, server = any_server
    body = server.ask(ARITHMETIC, sampling={"max_new_tokens": cap})
    assert body["output_ids"] == ANSWER[:cap]
    assert body["meta_info"]["finish_reason"] == {"type": "length", "length": cap}


def test_max_new_tokens_defaults_to_128(servers):
    body = servers("dflash").ask(ARITHMETIC, sampling={"ignore_eos": True})
    assert len(body["output_ids"]) == 128
    assert EOS in body["output_ids"]


def test_a_stop_string_ends_inside_a_run_and_is_trimmed(any_server):
    _, server = any_server
    body = server.ask(ARITHMETIC, sampling={"stop": ["answer"]})
    assert body["text"] == "85 - 60 = 25. The "
    assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": "answer"}
    assert len(body["output_ids"]) == body["meta_info"]["completion_tokens"] == 13
    kept = server.ask(ARITHMETIC, sampling={"stop": "answer", "no_stop_trim": True})
    assert kept["text"] == "85 - 60 = 25. The answer"


def test_a_stop_token_is_trimmed_and_reported(any_server):
    _, server = any_server
    token = ANSWER[5]
    body = server.ask(ARITHMETIC, sampling={"stop_token_ids": [token]})
    assert len(body["output_ids"]) == 6
    assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": token}
    assert body["text"] == "85 - 6"


def test_text_and_ids_are_the_same_prompt(base):
    by_text = base.post(text="<|user|>\nSubtract 60 from 85.<|end|>\n<|assistant|>\n").json()
    assert by_text["meta_info"]["prompt_tokens"] == len(ARITHMETIC)
    assert by_text["output_ids"] == ANSWER


def test_a_batch_answers_in_order(any_server):
    _, server = any_server
    rows = server.ask([ARITHMETIC, STORY], sampling={"max_new_tokens": 8}, rid=["a", "b"])
    assert [row["meta_info"]["id"] for row in rows] == ["a", "b"]
    singles = [server.ask(ids, sampling={"max_new_tokens": 8}) for ids in (ARITHMETIC, STORY)]
    assert [row["output_ids"] for row in rows] == [row["output_ids"] for row in singles]


def test_requests_in_flight_together_answer_as_alone(any_server):
    _, server = any_server
    prompts = [PROMPTS[i]["ids"] for i in (0, 36, 84)]
    alone = [server.ask(ids, sampling={"max_new_tokens": 8})["output_ids"] for ids in prompts]
    with ThreadPoolExecutor(len(prompts)) as pool:
        together = list(pool.map(lambda ids: server.ask(ids, sampling={"max_new_tokens": 8})["output_ids"], prompts))
    assert together == alone


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9])
def test_very_short_prompts(servers, length):
    outputs = [servers(kind).ask(STORY[:length], sampling={"max_new_tokens": 8})["output_ids"] for kind in SPECULATION]
    assert outputs[0] == outputs[1] == outputs[2]


# -- streams ----------------------------------------------------------------------------------------------------------
def stream(server, ids, **sampling):
    body = {"input_ids": ids, "sampling_params": {"temperature": 0, **sampling}, "stream": True}
    with server.client.stream("POST", "/generate", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_a_stream_is_cumulative_and_ends_like_the_whole(any_server):
    _, server = any_server
    whole = server.ask(ARITHMETIC)
    parts = stream(server, ARITHMETIC)
    assert len(parts) > 2
    for before, after in pairwise(parts):
        assert after["text"].startswith(before["text"])
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
    assert all(part["meta_info"]["finish_reason"] is None for part in parts[:-1])
    assert "e2e_latency" not in parts[0]["meta_info"]
    assert (parts[-1]["text"], parts[-1]["output_ids"]) == (whole["text"], whole["output_ids"])
    assert parts[-1]["meta_info"]["finish_reason"] == whole["meta_info"]["finish_reason"]


def test_a_bad_streaming_request_gets_an_error_event(base):
    (event,) = stream(base, [9999])
    assert event["error"]["code"] == 400
    assert "out of vocabulary" in event["error"]["message"]


# -- logprobs ---------------------------------------------------------------------------------------------------------
def test_logprobs_have_the_recorded_shape(any_server):
    _, server = any_server
    meta = server.ask(ARITHMETIC, return_logprob=True, top_logprobs_num=3)["meta_info"]
    assert [key for key in meta if "logprobs" in key] == LOGPROB_META
    assert meta["input_token_logprobs"] == meta["input_top_logprobs"] == []
    assert len(meta["output_token_logprobs"]) == meta["output_token_logprobs_length"] == meta["completion_tokens"]
    for entry, top in zip(meta["output_token_logprobs"], meta["output_top_logprobs"], strict=True):
        assert len(top) == 3
        assert top[0] == entry, "greedy decoding takes the first"
        assert entry[2] is None


def test_without_top_logprobs_there_are_no_top_lists(base):
    meta = base.ask(ARITHMETIC, return_logprob=True)["meta_info"]
    assert [key for key in meta if "logprobs" in key] == LOGPROB_META[:3]


def test_asking_for_logprobs_changes_no_token(any_server):
    _, server = any_server
    assert server.ask(ARITHMETIC, return_logprob=True)["output_ids"] == ANSWER


@pytest.mark.parametrize("start", [0, len(ARITHMETIC) - 1])
def test_rescoring_equals_decoding(any_server, base, start):
    _, server = any_server
    decoded = server.ask(ARITHMETIC, return_logprob=True, top_logprobs_num=2)
    ids = ARITHMETIC + decoded["output_ids"]
    options = {"return_logprob": True, "logprob_start_len": start, "top_logprobs_num": 2, "token_ids_logprob": [EOS]}
    scored = base.ask(ids, sampling={"max_new_tokens": 0}, **options)
    meta = scored["meta_info"]
    assert (scored["text"], scored["output_ids"]) == ("", [])
    assert meta["finish_reason"] == {"type": "length", "length": 0}
    entries = meta["input_token_logprobs"]
    assert len(entries) == len(ids) - start == len(meta["input_top_logprobs"]) == len(meta["input_token_ids_logprobs"])
    assert entries[0] == [None, ids[start], None]
    assert meta["input_top_logprobs"][0] is None
    assert [token for _, token, _ in entries] == ids[start:]
    ours = [value for value, _, _ in entries[-len(decoded["output_ids"]) :]]
    theirs = [value for value, _, _ in decoded["meta_info"]["output_token_logprobs"]]
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert meta["output_token_logprobs"] == []
    assert len(meta["output_top_logprobs"]) == 1, "the candidates for the next token"


def test_token_ids_logprob_lists_the_asked_tokens(base):
    meta = base.ask(ARITHMETIC, return_logprob=True, token_ids_logprob=[EOS, 34])["meta_info"]
    assert [[token for _, token, _ in row] for row in meta["output_token_ids_logprobs"]] == [[EOS, 34]] * 19
    assert meta["output_token_ids_logprobs"][0][1][0] == meta["output_token_logprobs"][0][0]


# -- prefix cache -----------------------------------------------------------------------------------------------------
def test_a_second_request_hits_and_a_flush_forgets(any_server):
    _, server = any_server
    miss, hit = (server.ask(COPY, sampling={"max_new_tokens": 16}) for _ in range(2))
    assert (miss["meta_info"]["cached_tokens"], hit["meta_info"]["cached_tokens"]) == (0, 64)
    assert hit["meta_info"]["cached_tokens_details"] == {"device": 64, "host": 0}
    assert hit["output_ids"] == miss["output_ids"]
    flushed = server.client.post("/flush_cache")
    assert flushed.status_code == 200
    assert flushed.text.startswith("Cache flushed.")
    assert server.ask(COPY, sampling={"max_new_tokens": 1})["meta_info"]["cached_tokens"] == 0


def test_extra_key_separates_caches(base):
    base.ask(COPY, sampling={"max_new_tokens": 1})
    assert base.ask(COPY, sampling={"max_new_tokens": 1}, extra_key="other")["meta_info"]["cached_tokens"] == 0


def test_flush_waits_or_refuses_while_requests_are_pending(base):
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(base.ask, STORY, sampling={"max_new_tokens": 200, "ignore_eos": True})
        refused = httpx.Response(200)
        while refused.status_code == 200 and not running.done():
            refused = base.client.get("/flush_cache")
        assert refused.status_code == 400
        assert "Flush cache failed" in refused.text
        assert base.client.get("/flush_cache", params={"timeout": 30}).status_code == 200
        assert running.result()["meta_info"]["completion_tokens"] == 200
    assert base.client.get("/flush_cache", params={"timeout": "soon"}).status_code == 400


# -- errors -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input_ids": [4096]}, "Token id 4096 is out of vocabulary range [0, 4095]"),
        ({"input_ids": []}, "input_ids cannot be empty"),
        ({"input_ids": [5], "sampling_params": {"temperature": 0.7}}, "decodes greedily"),
        ({"input_ids": [5] * 4096}, "longer than the model's context length (4096 tokens)"),
        ({"input_ids": [5], "sampling_params": {"temperature": 0, "regex": "a"}}, "--grammar-backend none"),
    ],
)
def test_bad_requests_are_400_with_an_error_object(base, body, message):
    answer = base.client.post("/generate", json={"sampling_params": {"temperature": 0}, **body})
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]
    assert message in answer.json()["error"]["message"]


def test_no_json_is_400(base):
    answer = base.client.post("/generate", content=b"{nonsense")
    assert answer.status_code == 400
    # Bad JSON has SGLang's other error shape (FastAPI's validation), seen on the real server.
    assert (answer.json()["object"], answer.json()["type"]) == ("error", "Bad Request")


def test_a_request_can_be_aborted(base):
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(base.ask, STORY, rid=f"job-{i}", sampling={"max_new_tokens": 2000, "ignore_eos": True})
            for i in (1, 2)
        ]
        while sum(job.done() for job in jobs) == 0:
            assert base.client.post("/abort_request", json={"rid": "job-1"}).status_code == 200
            time.sleep(0.02)
        first = jobs[0].result()
        assert first["meta_info"]["finish_reason"]["type"] == "abort"
        assert len(first["output_ids"]) < 2000
        assert not jobs[1].done()
        base.client.post("/abort_request", json={"abort_all": True})
        assert jobs[1].result()["meta_info"]["finish_reason"]["type"] == "abort"


def test_a_client_that_leaves_frees_its_place(base):
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{base.url}/generate",
            json={
                "input_ids": STORY,
                "sampling_params": {"temperature": 0, "max_new_tokens": 3000, "ignore_eos": True},
            },
            timeout=0.3,
        )
    assert base.client.get("/flush_cache", params={"timeout": 5}).status_code == 200


# -- the server -------------------------------------------------------------------------------------------------------
def test_server_info_shows_resolved_arguments(any_server):
    kind, server = any_server
    server.ask(ARITHMETIC)
    info = server.client.get("/server_info").json()
    assert info == {**server.client.get("/get_server_info").json(), "internal_states": info["internal_states"]}
    expected = {
        "baseline": (None, None, None, None),
        "nextn": ("EAGLE", 3, 1, 4),
        "dflash": ("DFLASH", 1, 1, 8),
    }[kind]
    shown = ("algorithm", "num_steps", "eagle_topk", "num_draft_tokens")
    assert tuple(info[f"speculative_{name}"] for name in shown) == expected
    assert info["version"].startswith("reference-")
    assert info["speculative_accept_threshold_single"] == info["speculative_accept_threshold_acc"] == 1.0
    assert info["dtype"] == "float32"
    assert info["attention_backend"] == "numpy"
    assert info["model_path"] == str(builtin_path() / "target")
    assert info["preferred_sampling_params"] is None
    also = "kv_cache_dtype page_size chunked_prefill_size max_running_requests context_length disable_radix_cache"
    assert {*also.split(), "random_seed", "enable_deterministic_inference", "max_total_num_tokens"} <= set(info)
    assert ("avg_spec_accept_length" in info["internal_states"][0]) == (kind != "baseline")
    assert len(info) > 490, "a real server shows as many"


def test_model_info_and_health(base):
    info = base.client.get("/model_info").json()
    assert info == base.client.get("/get_model_info").json()
    assert (info["is_generation"], info["model_type"]) == (True, "qwen3_5")
    assert base.client.get("/health").status_code == base.client.get("/health_generate").status_code == 200


def test_a_long_prompt_is_prefilled_in_chunks(base):
    ids = (COPY + STORY) * 2
    with serving("--chunked-prefill-size", "48", "--disable-radix-cache", *SPECULATION["nextn"]) as chunked:
        ours = chunked.ask(ids, sampling={"max_new_tokens": 16})
        assert chunked.ask(ids, sampling={"max_new_tokens": 1})["meta_info"]["cached_tokens"] == 0
    assert ours["output_ids"] == base.ask(ids, sampling={"max_new_tokens": 16})["output_ids"]


def test_bfloat16_server_has_16_bit_logits():
    with serving("--dtype", "bfloat16", *SPECULATION["dflash"]) as server:
        assert server.client.get("/server_info").json()["dtype"] == "bfloat16"
        meta = server.ask(ARITHMETIC, return_logprob=True, top_logprobs_num=2)["meta_info"]
        gaps = [top[0][0] - top[1][0] for top in meta["output_top_logprobs"]]
        steps = [gap * 32 for gap in gaps]  # logits between 8 and 16 come in steps of 1/16, smaller ones in finer steps
        assert all(abs(step * 8 - round(step * 8)) < 1e-2 for step in steps)
