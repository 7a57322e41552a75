"""The HTTP client against a transport that answers from a function, and against real sockets that misbehave."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from lossless.errors import LosslessError, ProtocolError, ServerDied, ServerError, UsageError
from lossless.protocol import Answer, Client, GenerateRequest, Sampling

Handler = Callable[[httpx.Request], httpx.Response]
ASK = GenerateRequest((11, 12, 13), Sampling(max_new_tokens=4))


def answer_json(prompt_tokens: int = 3, output: tuple[int, ...] = (7, 8), **meta: Any) -> dict[str, Any]:
    return {
        "text": "ok",
        "output_ids": list(output),
        "meta_info": {
            "finish_reason": {"type": "length", "length": len(output)},
            "prompt_tokens": prompt_tokens,
            "completion_tokens": len(output),
            **meta,
        },
    }


def client_for(handler: Handler, **options: Any) -> Client:
    return Client("http://server.test/", transport=httpx.MockTransport(handler), **options)


def never(_: httpx.Request) -> httpx.Response:
    raise AssertionError("nothing should have been sent")


def test_generate_posts_the_payload_and_reads_the_answer() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=answer_json())

    answer = client_for(handler, api_key="key-123456").generate(ASK)
    assert (answer.output_ids, answer.finish.type) == ((7, 8), "length")
    assert (seen[0].method, seen[0].url.path) == ("POST", "/generate")
    assert json.loads(seen[0].content) == ASK.payload()
    assert seen[0].headers["authorization"] == "Bearer key-123456"


def test_without_a_key_no_authorization_is_sent() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert "authorization" not in request.headers
        return httpx.Response(200, json=answer_json())

    assert client_for(handler).generate(ASK).text == "ok"


@pytest.mark.parametrize("bad", [-1, 100, 2**40])
def test_ids_outside_the_vocabulary_are_never_sent(bad: int) -> None:
    client = client_for(never, vocab_size=100)
    with pytest.raises(UsageError, match=rf"prompt position 1: token id {bad} .* 100 ids, 0 to 99"):
        client.generate(GenerateRequest((0, bad), Sampling(1)))
    with pytest.raises(UsageError, match=rf"position 0: token id {bad}"):
        client.score([1], [2], token_ids=[bad])
    with pytest.raises(UsageError, match=rf"position 1: token id {bad}"):
        client.score([1], [bad])


def test_the_largest_id_is_sent() -> None:
    client = client_for(lambda _: httpx.Response(200, json=answer_json(2)), vocab_size=100)
    assert client.generate(GenerateRequest((0, 99), Sampling(1))).output_ids == (7, 8)


def test_negative_ids_are_refused_even_without_a_known_vocabulary() -> None:
    with pytest.raises(UsageError, match="token id -1 is outside the vocabulary"):
        client_for(never).generate(GenerateRequest((-1,), Sampling(1)))


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one token"):
        client_for(never).generate(GenerateRequest((), Sampling(1)))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "max_new_tokens is wrong", "code": 400}}, "max_new_tokens is wrong"),
        ({"object": "error", "message": "older shape"}, "older shape"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"error": "a string"}, "a string"),
        (["odd"], "['odd']"),
    ],
)
def test_an_http_error_tells_status_and_message(body: Any, expected: str) -> None:
    client = client_for(lambda _: httpx.Response(400, json=body))
    with pytest.raises(ProtocolError) as caught:
        client.generate(ASK)
    assert f"POST http://server.test/generate was refused with HTTP 400: {expected}" in caught.value.message


@pytest.mark.parametrize("text", ["<html>nginx</html>", '{"text": "cut', ""])
def test_an_answer_that_is_not_json(text: str) -> None:
    client = client_for(lambda _: httpx.Response(200, text=text))
    with pytest.raises(ProtocolError, match="not JSON"):
        client.generate(ASK)


@pytest.mark.parametrize("body", [[], {}, {"text": "", "output_ids": [], "meta_info": {}}, None, 3])
def test_an_answer_of_another_shape(body: Any) -> None:
    with pytest.raises(ProtocolError):
        client_for(lambda _: httpx.Response(200, json=body)).generate(ASK)


def test_an_abort_with_http_200_is_an_error() -> None:
    body = answer_json(finish_reason={"type": "abort", "message": "out of room"})
    with pytest.raises(ProtocolError, match="out of room"):
        client_for(lambda _: httpx.Response(200, json=body)).generate(ASK)


def test_a_truncated_prompt_is_noticed() -> None:
    client = client_for(lambda _: httpx.Response(200, json=answer_json(prompt_tokens=2)))
    with pytest.raises(ProtocolError, match="read 2 prompt tokens where 3 were sent"):
        client.generate(ASK)


@pytest.mark.parametrize("status", [401, 403])
def test_a_missing_key_is_explained_and_a_wrong_one_not_shown(status: int) -> None:
    client = client_for(lambda _: httpx.Response(status, json={"error": "Unauthorized"}), api_key="key-123456")
    with pytest.raises(ProtocolError) as caught:
        client.model_info()
    assert "api_key_env" in str(caught.value)
    assert "key-123456" not in str(caught.value) + repr(client)


# -- re-scoring


def scored(prompt: list[int], output: list[int], top: int = 2, **change: Any) -> dict[str, Any]:
    ids = [prompt[-1], *output]
    meta = {
        "input_token_logprobs": [[None if k == 0 else -0.5, i, None] for k, i in enumerate(ids)],
        "input_top_logprobs": [None if k == 0 else [[-0.5, i, None]] * top for k, i in enumerate(ids)],
        "input_token_ids_logprobs": [None if k == 0 else [[-1.0, 9, None]] for k, i in enumerate(ids)],
    }
    return answer_json(len(prompt) + len(output), (), **{**meta, **change})


def test_score_follows_the_recipe() -> None:
    sent: list[dict[str, Any]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json=scored([1, 2, 3], [4, 5]))

    answer = client_for(handler).score([1, 2, 3], [4, 5], top=2, token_ids=[9])
    assert sent == [
        {
            "input_ids": [1, 2, 3, 4, 5],
            "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
            "return_logprob": True,
            "logprob_start_len": 2,
            "top_logprobs_num": 2,
            "token_ids_logprob": [9],
        }
    ]
    assert answer.input_logprobs is not None
    assert [e.token_id for e in answer.input_logprobs] == [3, 4, 5]
    assert answer.input_logprobs[0].logprob is None
    assert answer.input_ids_logprobs is not None
    assert answer.input_ids_logprobs[1][0].token_id == 9


@pytest.mark.parametrize(
    "change",
    [
        {"input_token_logprobs": None},
        {"input_token_logprobs": [[None, 3, None], [-0.5, 4, None]]},
        {"input_token_logprobs": [[None, 3, None], [-0.5, 5, None], [-0.5, 4, None]]},
        {"input_token_logprobs": [[-0.5, 4, None], [-0.5, 5, None], [-0.5, 6, None]]},
        {"input_top_logprobs": None},
        {"input_top_logprobs": [None, [[-0.5, 4, None]]]},
        {"input_token_ids_logprobs": None},
    ],
)
def test_misaligned_scores_are_refused(change: dict[str, Any]) -> None:
    body = scored([1, 2, 3], [4, 5], **change)
    with pytest.raises(ProtocolError):
        client_for(lambda _: httpx.Response(200, json=body)).score([1, 2, 3], [4, 5], token_ids=[9])


@pytest.mark.parametrize(("prompt", "output"), [([], [1]), ([1], [])])
def test_nothing_to_score(prompt: list[int], output: list[int]) -> None:
    with pytest.raises(UsageError, match="at least one"):
        client_for(never).score(prompt, output)


# -- the other endpoints


def test_info_falls_back_to_the_older_paths_and_masks_keys() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/get_server_info":
            info = {
                "api_key": "topsecret",
                "admin_api_key": None,
                "launch_command": "x --api-key topsecret",
                "internal_states": [{"api_key": "topsecret"}],
                "page_size": 1,
            }
            return httpx.Response(200, json=info)
        return httpx.Response(404, json={"detail": "Not Found"})

    info = client_for(handler).server_info()
    assert info["page_size"] == 1
    assert info["admin_api_key"] is None
    assert "topsecret" not in json.dumps(info)


def test_info_must_be_an_object() -> None:
    with pytest.raises(ProtocolError, match="instead of a JSON object"):
        client_for(lambda _: httpx.Response(200, json=[1])).model_info()


def test_flush_waits_for_pending_requests() -> None:
    answers = [400, 400, 200]
    paths: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        paths.append(f"{request.method} {request.url.path}")
        return httpx.Response(answers[len(paths) - 1], text="pending")

    client_for(handler).flush_cache(timeout_s=30)
    assert paths == ["POST /flush_cache"] * 3


def test_flush_gives_up() -> None:
    client = client_for(lambda _: httpx.Response(400, text="#running-req: 1"))
    with pytest.raises(ServerError, match=r"did not flush its cache within 0 s: #running-req: 1"):
        client.flush_cache(timeout_s=0)
    with pytest.raises(ProtocolError, match="HTTP 404"):
        client_for(lambda _: httpx.Response(404)).flush_cache()


def test_health_and_abort() -> None:
    bodies: list[Any] = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/health":
            return httpx.Response(503)
        bodies.append(json.loads(request.content))
        return httpx.Response(200)

    client = client_for(handler)
    assert client.health() is False
    client.abort("r1")
    client.abort(None)
    assert bodies == [{"rid": "r1"}, {"abort_all": True}]


# -- broken connections


def refuse(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def died() -> None:
    raise ServerDied("server 'nextn' ended (exit status 7): its log says why")


def test_a_refused_connection_is_tried_once_more_and_no_more() -> None:
    tries: list[int] = []

    def handler(request: httpx.Request) -> httpx.Response:
        tries.append(1)
        if len(tries) == 1:
            return refuse(request)
        return httpx.Response(200, json=answer_json())

    assert client_for(handler).generate(ASK).text == "ok"
    tries.clear()

    def always(request: httpx.Request) -> httpx.Response:
        tries.append(1)
        return refuse(request)

    with pytest.raises(ServerError, match=r"cannot connect to http://server\.test"):
        client_for(always).generate(ASK)
    assert len(tries) == 2


@pytest.mark.parametrize("error", [httpx.ReadError, httpx.RemoteProtocolError, httpx.ReadTimeout, httpx.WriteError])
def test_what_may_have_arrived_is_never_sent_again(error: type[httpx.TransportError]) -> None:
    tries: list[int] = []

    def handler(request: httpx.Request) -> httpx.Response:
        tries.append(1)
        raise error("broken", request=request)

    with pytest.raises(ServerError):
        client_for(handler).generate(ASK)
    assert len(tries) == 1


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError, httpx.ReadTimeout])
def test_a_dead_server_is_reported_as_dead(error: type[httpx.TransportError]) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise error("broken", request=request)

    with pytest.raises(ServerDied, match="its log says why"):
        client_for(handler, check=died).generate(ASK)


def test_http_500_of_a_dying_server_is_reported_as_dead() -> None:
    with pytest.raises(ServerDied):
        client_for(lambda _: httpx.Response(500, text="Internal Server Error"), check=died).generate(ASK)


def test_a_live_server_is_not_reported_as_dead() -> None:
    with pytest.raises(ProtocolError, match="HTTP 500"):
        client_for(lambda _: httpx.Response(500), check=lambda: None).generate(ASK)


def test_the_death_may_show_a_little_later() -> None:
    asked: list[int] = []

    def check() -> None:
        asked.append(1)
        if len(asked) == 3:
            died()

    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset", request=request)

    with pytest.raises(ServerDied):
        client_for(handler, check=check).generate(ASK)


@contextmanager
def raw_server(react: Callable[[socket.socket], None]) -> Iterator[str]:
    """A listening socket that treats each connection as ``react`` says."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                react(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def test_a_connection_that_closes_without_an_answer() -> None:
    with raw_server(lambda _: None) as url, Client(url) as client, pytest.raises(ServerError, match="connection broke"):
        client.generate(ASK)


def test_an_answer_that_is_cut() -> None:
    def react(connection: socket.socket) -> None:
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"text": "')

    with raw_server(react) as url, Client(url) as client, pytest.raises(ServerError, match="connection broke"):
        client.generate(ASK)


def test_no_answer_in_time() -> None:
    release = threading.Event()
    with raw_server(lambda _: release.wait(20) and None) as url, Client(url, timeout_s=0.3) as client:
        with pytest.raises(ServerError, match=r"no answer within 0.3 s") as caught:
            client.generate(ASK)
        release.set()
    assert "request_timeout_s" in str(caught.value)


def test_no_connection_in_time() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("timed out", request=request)

    with pytest.raises(ServerError, match=r"cannot connect to http://server\.test: no reaction for 10 s"):
        client_for(handler).generate(ASK)


def test_a_port_where_nothing_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(ServerError, match=f"cannot connect.*{port}"):
            client.model_info()


def test_a_proxy_in_the_environment_is_not_used_for_a_local_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")

    def react(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with raw_server(react) as url, Client(url) as client:
        assert client.model_info() == {}


# -- batches


def batch_requests(count: int) -> list[GenerateRequest]:
    return [GenerateRequest((i + 1,), Sampling(max_new_tokens=1)) for i in range(count)]


def test_a_batch_answers_each_request_once_with_its_index() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        first = json.loads(request.content)["input_ids"][0]
        return httpx.Response(200, json=answer_json(1, (first * 10,)))

    results = dict(client_for(handler).generate_batch(batch_requests(20), 4))
    assert {i: r.output_ids for i, r in results.items() if isinstance(r, Answer)} == {
        i: ((i + 1) * 10,) for i in range(20)
    }


def test_a_batch_keeps_its_concurrency() -> None:
    lock, running, most = threading.Lock(), [0], [0]
    all_in = threading.Barrier(4, timeout=20)

    def handler(_: httpx.Request) -> httpx.Response:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        all_in.wait()  # passes only when four are inside at once
        with lock:
            running[0] -= 1
        return httpx.Response(200, json=answer_json(1))

    assert len(list(client_for(handler).generate_batch(batch_requests(12), 4))) == 12
    assert most[0] == 4


def test_a_batch_returns_failures_and_goes_on() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if json.loads(request.content)["input_ids"] == [2]:
            return httpx.Response(400, json={"error": {"message": "no"}})
        return httpx.Response(200, json=answer_json(1))

    requests = [*batch_requests(3), GenerateRequest((-5,), Sampling(1))]
    results = dict(client_for(handler).generate_batch(requests, 2))
    assert isinstance(results[0], Answer)
    assert isinstance(results[1], ProtocolError)
    assert isinstance(results[2], Answer)
    assert isinstance(results[3], UsageError)
    assert all(isinstance(r, Answer | LosslessError) for r in results.values())


def test_a_mistake_of_ours_is_not_returned_but_raised() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        list(client_for(handler).generate_batch(batch_requests(1), 1))


def test_leaving_a_batch_early_aborts_only_its_own_running_requests() -> None:
    release = threading.Event()
    generated, aborted = set(), []

    def handler(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if request.url.path == "/abort_request":
            aborted.append(body)
            return httpx.Response(200)
        generated.add(body["rid"])
        if body["input_ids"] != [1]:
            release.wait(20)
        return httpx.Response(200, json=answer_json(1))

    results = client_for(handler).generate_batch(batch_requests(50), 3)
    assert next(results)[0] == 0
    deadline = time.monotonic() + 20
    while len(generated) < 4 and time.monotonic() < deadline:  # the first has answered, three are running
        time.sleep(0.01)
    results.close()
    release.set()
    assert len(aborted) == 3
    assert all(set(body) == {"rid"} and body["rid"] in generated for body in aborted)
    assert len(generated) < 50


def test_concurrency_must_be_positive() -> None:
    with pytest.raises(UsageError, match="concurrency is 0"):
        list(client_for(never).generate_batch([], 0))
