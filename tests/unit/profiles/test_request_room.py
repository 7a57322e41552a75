"""The bounds of one request, as SGLang computes them."""

import pytest

from lossless.profiles.request_room import Room


@pytest.mark.parametrize(
    ("room", "prompt", "new", "words"),
    [
        # context 100: at most 93 tokens of prompt, at most 98 in all without being cut off, and more than 100 refused
        (Room(100), 50, 48, None),
        (Room(100), 50, 49, "cut off after 48 new tokens"),
        (Room(100), 50, 50, "cut off after 48 new tokens"),
        (Room(100), 50, 51, "refused"),
        (Room(100), 93, 0, None),
        (Room(100), 94, 0, "refused"),
        # a pool of 100 in a longer context: what does not fit is cut off, not refused
        (Room(200, 100), 50, 48, None),
        (
            Room(200, 100),
            50,
            60,
            "KV pool holds 100 tokens: a prompt of 50 tokens with 60 new ones is cut off after 48",
        ),
        (Room(200, 100), 94, 1, "KV pool holds 100 tokens: a prompt of 94 tokens with 1 new ones is refused"),
        (Room(100, 200), 94, 1, "the context length is 100 tokens"),
        (Room(100, 100), 94, 1, "the context length is 100 tokens"),
        (Room(None, 100), 94, 1, "the KV pool holds 100 tokens"),
        (Room(None), 10**9, 10**9, None),
    ],
)
def test_requests_that_fit_and_that_do_not(room: Room, prompt: int, new: int, words: str | None) -> None:
    problem = room.problem(prompt, new)
    if words is None:
        assert problem is None
    else:
        assert problem is not None
        assert words in problem


def test_the_limit_that_a_recorded_server_reports() -> None:
    # /server_info of a 0.5.19 server: context 4096, pool 20000, max_req_input_len 4090, the first length refused
    room = Room(4096, 20000)
    assert room.problem(4089, 0) is None
    assert room.problem(4090, 0) is not None
