"""The streaming client against a transport whose pieces arrive at known times of a fake clock."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from lossless.errors import ProtocolError, ServerDied, ServerError, UsageError
from lossless.protocol import GenerateRequest, Sampling
from lossless.protocol.stream import Chunk, StreamingClient

ASK = GenerateRequest((11, 12, 13), Sampling(max_new_tokens=8))


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Pieces(httpx.SyncByteStream):
    """Bytes, each after some seconds of the fake clock."""

    clock: Clock
    pieces: Sequence[tuple[float, bytes]]
    breaks: bool = False
    closed: bool = False

    def __iter__(self) -> Iterator[bytes]:
        for seconds, piece in self.pieces:
            self.clock.now += seconds
            yield piece
        if self.breaks:
            raise httpx.ReadError("connection reset")

    def close(self) -> None:
        self.closed = True


def event(ids: Sequence[int], text: str, count: int | None = None, *, last: bool = False, **meta: Any) -> bytes:
    body = {
        "text": text,
        "output_ids": list(ids),
        "meta_info": {
            "finish_reason": {"type": "length", "length": len(ids)} if last else None,
            "prompt_tokens": 3,
            "completion_tokens": len(ids) if count is None else count,
            **meta,
        },
    }
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
WHOLE = [
    (0.5, event([1], "a")),
    (0.1, event([1, 2, 3], "abc")),
    (0.3, event([1, 2, 3, 4], "abcd", last=True, spec_verify_ct=2)),
    (0.0, DONE),
]


def client_for(
    pieces: Sequence[tuple[float, bytes]] = (),
    *,
    clock: Clock | None = None,
    seen: list[Any] | None = None,
    status: int = 200,
    breaks: bool = False,
    **options: Any,
) -> StreamingClient:
    clock = clock or Clock()

    def handler(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(request)
        return httpx.Response(status, stream=Pieces(clock, pieces, breaks))

    return StreamingClient("http://server.test/", transport=httpx.MockTransport(handler), clock=clock, **options)


def test_every_piece_has_its_time_and_its_tokens() -> None:
    seen: list[httpx.Request] = []
    streamed = client_for(WHOLE, seen=seen, api_key="key-123456").stream(ASK, seed=7, namespace="own")
    assert streamed.sent_s == 100.0
    assert [(round(c.at_s, 6), c.tokens) for c in streamed.chunks] == [(0.5, 1), (0.6, 3), (0.9, 4)]
    assert streamed.answer.output_ids == (1, 2, 3, 4)
    assert streamed.answer.text == "abcd"
    assert streamed.answer.spec_verify_ct == 2
    body = json.loads(seen[0].content)
    assert body["stream"] is True
    assert body["extra_key"] == "own"
    assert body["sampling_params"]["sampling_seed"] == 7
    assert seen[0].headers["authorization"] == "Bearer key-123456"


def test_pieces_with_only_new_tokens_are_joined() -> None:
    pieces = [
        (0.5, event([1], "a", 1)),
        (0.1, event([2, 3], "bc", 3)),
        (0.2, event([4], "d", 4, last=True)),
        (0.0, DONE),
    ]
    streamed = client_for(pieces).stream(ASK)
    assert streamed.answer.output_ids == (1, 2, 3, 4)
    assert streamed.answer.text == "abcd"
    assert [c.tokens for c in streamed.chunks] == [1, 3, 4]


def test_events_cut_anywhere_count_when_they_are_whole() -> None:
    first, second = event([1], "a"), event([1, 2], "ab", last=True)
    pieces = [(0.5, first[:20]), (0.25, first[20:] + second[:5]), (0.25, second[5:] + DONE)]
    assert client_for(pieces).stream(ASK).chunks == (Chunk(0.75, 1), Chunk(1.0, 2))


def test_a_line_separator_inside_the_text_ends_no_line() -> None:
    text = "a\u2028b\x85c"
    streamed = client_for([(0.1, event([1, 2], text, last=True)), (0.0, DONE)]).stream(ASK)
    assert streamed.answer.text == text


def test_an_event_without_tokens_is_no_first_token() -> None:
    pieces = [(0.2, event([], "")), (0.3, event([1], "a")), (0.1, event([1, 2], "ab", last=True)), (0.0, DONE)]
    streamed = client_for(pieces).stream(ASK)
    assert streamed.first == Chunk(0.5, 1)


def test_an_answer_without_tokens_has_no_first_piece() -> None:
    streamed = client_for([(0.2, event([], "", last=True)), (0.0, DONE)]).stream(ASK)
    assert streamed.first is None
    assert streamed.last is None


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([(0.1, b'data: {"error": {"message": "prompt too long", "code": 400}}\n\n'), (0.0, DONE)], "prompt too long"),
        ([(0.1, b'data: {"error": "odd"}\n\n'), (0.0, DONE)], "odd"),
        ([(0.1, b"data: {cut\n\n"), (0.0, DONE)], "not a JSON object: {cut"),
        ([(0.1, b"data: [1]\n\n"), (0.0, DONE)], "not a JSON object"),
        ([(0.1, event([1], "a"))], "ended after 1 events without"),
        ([(0.0, DONE)], "holds no event"),
        ([(0.1, event([1, 2], "ab")), (0.1, event([1], "a", last=True)), (0.0, DONE)], "went down"),
        ([(0.1, event([1], "a", 1)), (0.1, event([2], "b", 5, last=True)), (0.0, DONE)], "completion_tokens is 5"),
        ([(0.1, event([1], "a", last=True, prompt_tokens=9)), (0.0, DONE)], "read 9 prompt tokens where 3 were sent"),
        ([(0.1, b'data: {"text": "a"}\n\n'), (0.0, DONE)], "do not fit together"),
        (
            [(0.1, event([1], "a", last=True, finish_reason={"type": "abort", "message": "out"})), (0.0, DONE)],
            "aborted the request: out",
        ),
    ],
)
def test_a_stream_that_breaks_its_promise(pieces: list[tuple[float, bytes]], words: str) -> None:
    with pytest.raises(ProtocolError, match=words.replace("{", r"\{")):
        client_for(pieces).stream(ASK)


def test_the_whole_answer_has_one_deadline() -> None:
    """Pieces that keep coming do not extend it."""
    drips = [(0.375, event(range(k), "x" * k)) for k in range(1, 40)]
    clock = Clock()
    with pytest.raises(ServerError, match=r"not complete within 2 s") as caught:
        client_for(drips, clock=clock, timeout_s=2.0).stream(ASK)
    assert clock.now == 102.25, "at the first piece that came too late"
    assert caught.value.hint is not None
    assert "request_timeout_s" in caught.value.hint


def test_an_http_error_tells_status_and_message() -> None:
    with pytest.raises(ProtocolError, match="HTTP 503: busy"):
        client_for([(0.0, b'{"error": {"message": "busy"}}')], status=503).stream(ASK)


def test_a_broken_connection_is_a_server_error() -> None:
    with pytest.raises(ServerError, match=r"the stream broke \(ReadError: connection reset\)"):
        client_for(WHOLE[:2], breaks=True).stream(ASK)


def test_a_dead_server_is_named() -> None:
    def check() -> None:
        raise ServerDied("server 'nextn' ended")

    with pytest.raises(ServerDied, match="'nextn' ended"):
        client_for(WHOLE[:2], breaks=True, check=check).stream(ASK)
    with pytest.raises(ServerDied, match="'nextn' ended"):
        client_for(WHOLE[:2], check=check).stream(ASK)


def refusing(times: int, then: Callable[[httpx.Request], httpx.Response]) -> tuple[list[int], httpx.MockTransport]:
    tries: list[int] = []

    def handler(request: httpx.Request) -> httpx.Response:
        tries.append(1)
        if len(tries) <= times:
            raise httpx.ConnectError("refused")
        return then(request)

    return tries, httpx.MockTransport(handler)


def test_a_refused_connection_is_tried_once_more() -> None:
    clock = Clock()
    tries, transport = refusing(1, lambda _: httpx.Response(200, stream=Pieces(clock, WHOLE)))
    client = StreamingClient("http://server.test", transport=transport, clock=clock)
    assert client.stream(ASK).answer.text == "abcd"
    assert len(tries) == 2
    tries, transport = refusing(9, lambda _: httpx.Response(500))
    with pytest.raises(ServerError, match=r"cannot connect to http://server\.test: refused"):
        StreamingClient("http://server.test", transport=transport, clock=clock).stream(ASK)
    assert len(tries) == 2


def test_timeouts_of_the_transport() -> None:
    def silent(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("silent")

    def no_way(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("no way")

    for handler, words in ((silent, "not complete within 600 s"), (no_way, "no reaction for 10 s")):
        with pytest.raises(ServerError, match=words):
            StreamingClient("http://server.test", transport=httpx.MockTransport(handler)).stream(ASK)


def test_what_is_wrong_is_not_sent() -> None:
    seen: list[Any] = []
    client = client_for(WHOLE, seen=seen, vocab_size=12)
    with pytest.raises(UsageError, match="token id 12 is outside"):
        client.stream(ASK)
    with pytest.raises(UsageError, match="logprobs cannot be streamed"):
        client.stream(GenerateRequest((1,), Sampling(1), return_logprob=True))
    assert not seen


def test_keys_in_a_servers_message_are_masked() -> None:
    secret = "sk-" + "a" * 24
    pieces = [(0.1, json.dumps({"error": {"message": f"bad key {secret}"}}).join(["data: ", "\n\n"]).encode())]
    with pytest.raises(ProtocolError) as caught:
        client_for([*pieces, (0.0, DONE)]).stream(ASK)
    assert secret not in str(caught.value)
    assert "bad key" in str(caught.value)
