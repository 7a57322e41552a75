"""Where a recorded difference is sent again, and what a replay concludes, with clients that live in memory."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lossless.errors import ServerDied, UsageError
from lossless.protocol import Answer, GenerateRequest, Sampling
from lossless.record.plan import HIT, LOGPROBS, ORDER, PLAIN, TOGETHER
from lossless.report.replay import curl_commands, notes
from lossless.suite.replay import Pair, Place, choose_place, replay, replay_profile
from lossless.verdict import Failure, Kind, Reason

TEXT = "The list is: one, two, three, four."
WRONG = "The list is: one, two, seven, four."
NAMES = ("a", "b", "c")


def recorded(make_run: Any, group: str, wrong: tuple[str, str, int]) -> Any:
    """Three prompts of one group, all right but for one answer."""
    run = make_run({n: Sampling(96) for n in NAMES}, groups=dict.fromkeys(NAMES, group))
    stages = {
        "cache": ((HIT, 0), (HIT, 1)),
        "order": ((ORDER, 0), (ORDER, 1)),
        "parity": ((TOGETHER, 0), (LOGPROBS, 0)),
    }
    for name in NAMES:
        for stage, turn in ((PLAIN, 0), *stages[group]):
            run.says("baseline", name, TEXT, stage, turn)
            bad = (name, stage, turn) == wrong
            said = run.says("nextn", name, WRONG if bad else TEXT, stage, turn)
            if bad:
                own = run.ids(TEXT)
                at = next(t for t, (x, y) in enumerate(zip(own, said, strict=False)) if x != y)
                run.scored(name, said, {at: 3.0}, {at: own[at]})
    return run


@pytest.mark.parametrize(
    ("group", "wrong", "before", "beside"),
    [
        ("parity", ("b", PLAIN, 0), (), ()),
        ("parity", ("b", TOGETHER, 0), (), ("a", "c")),
        ("parity", ("b", LOGPROBS, 0), (), ()),
        ("cache", ("b", HIT, 1), ("b",), ()),
        ("cache", ("b", HIT, 0), ("a", "a"), ()),
        ("order", ("c", ORDER, 0), ("a", "b"), ()),
        ("order", ("a", ORDER, 1), ("a", "b", "c"), ()),
    ],
)
def test_the_place_where_it_shows(
    make_run: Any, group: str, wrong: tuple[str, str, int], before: tuple[str, ...], beside: tuple[str, ...]
) -> None:
    place = choose_place(recorded(make_run, group, wrong).analysis(), wrong[0], "nextn")
    assert tuple(p.id for p in place.before) == before
    assert tuple(p.id for p in place.beside) == beside
    assert place.stage == (PLAIN if wrong[1] == LOGPROBS else wrong[1])


@pytest.mark.parametrize(("prompt", "variant"), [("x", "nextn"), ("a", "x")])
def test_unknown_names_are_refused(make_run: Any, prompt: str, variant: str) -> None:
    analysis = recorded(make_run, "parity", ("b", PLAIN, 0)).analysis()
    with pytest.raises(UsageError, match="'x'"):
        choose_place(analysis, prompt, variant)


def test_one_address_is_not_enough(make_run: Any) -> None:
    analysis = recorded(make_run, "parity", ("b", PLAIN, 0)).analysis()
    with pytest.raises(UsageError, match="both"):
        replay_profile(analysis, "nextn", profile=None, baseline_url="http://127.0.0.1:1", variant_url=None)
    found = replay_profile(
        analysis, "nextn", profile=None, baseline_url="http://127.0.0.1:1", variant_url="http://127.0.0.1:2"
    )
    assert (found.kind, found.baseline.url, found.variants["nextn"].url) == (
        "attach",
        "http://127.0.0.1:1",
        "http://127.0.0.1:2",
    )


class Memory:
    """A client whose answers are a function of the prompt and the cap; re-scoring finds the token 7 wrong."""

    def __init__(self, say: Callable[[tuple[int, ...]], tuple[int, ...]], steps: int | None = None) -> None:
        self.say, self.steps = say, steps
        self.sent: list[GenerateRequest] = []
        self.flushed = 0

    def flush_cache(self) -> None:
        self.flushed += 1

    def generate_batch(self, requests: list[GenerateRequest], _concurrency: int) -> Iterator[tuple[int, Answer]]:
        yield from enumerate(map(self.generate, requests))

    def generate(self, request: GenerateRequest) -> Answer:
        self.sent.append(request)
        meta: dict[str, Any] = {"prompt_tokens": len(request.input_ids)}
        if request.return_logprob:
            tail = request.input_ids[request.logprob_start_len :]
            meta["input_token_logprobs"] = [[None if k == 0 else -9.0 if t == 7 else -0.1, t, None] for k, t in
                                            enumerate(tail)]  # fmt: skip
            meta["input_top_logprobs"] = [
                None if k == 0 else [[-0.1, 8 if t == 7 else t, None]] for k, t in enumerate(tail)
            ]
            meta |= {"finish_reason": {"type": "length"}, "completion_tokens": 0}
            return Answer.from_json({"text": "", "output_ids": [], "meta_info": meta})
        ids = self.say(request.input_ids)[: request.sampling.max_new_tokens]
        meta |= {"finish_reason": {"type": "length"}, "completion_tokens": len(ids), "spec_verify_ct": self.steps}
        return Answer.from_json({"text": "", "output_ids": list(ids), "meta_info": meta})


def right(_ids: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(8, 8 + 96))


def wrong_at_five(needed: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    def say(ids: tuple[int, ...]) -> tuple[int, ...]:
        said = list(right(ids))
        if needed in ids:
            said[5] = 7
        return tuple(said)

    return say


def analysis_without_text(make_run: Any, wrong: tuple[str, str, int]) -> Any:
    run = recorded(make_run, "parity", wrong)
    (run.store.path / "tokenizer.json").unlink()
    return run.analysis()


def test_it_is_shortened_to_what_matters(make_run: Any) -> None:
    analysis = analysis_without_text(make_run, ("b", PLAIN, 0))
    ids = analysis.prompts["b"].ids
    baseline, variant = Memory(right), Memory(wrong_at_five(ids[1]), steps=20)
    lines: list[str] = []
    found = replay(
        analysis, "b", "nextn", Pair(baseline, variant, False), place=Place(), tries=60, progress=lines.append  # type: ignore[arg-type]
    )  # fmt: skip
    assert found.smallest is not None
    assert (found.smallest.prompt.ids, found.smallest.prompt.sampling.max_new_tokens) == ((ids[1],), 6)
    assert found.smallest.verdict.reason is Reason.GAP
    assert found.reduction is not None
    assert len(lines) == 1 + found.reduction.tried
    assert variant.flushed == found.reduction.tried + 2, "each answer comes from an empty cache"
    assert all(str(ids[1]) in c for c in curl_commands(found) if "generate" in c)


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (lambda: Pair(Memory(right), Memory(right, 9), False, (Failure(Reason.NOT_A_PAIR, "x"),)), Reason.NOT_A_PAIR),  # type: ignore[arg-type]
        (lambda: Pair(Memory(right), Memory(right), False), Reason.NO_SPECULATION),  # type: ignore[arg-type]
        (lambda: Pair(Memory(flaky()), Memory(right, 9), False), Reason.NOT_REPEATABLE),  # type: ignore[arg-type]
    ],
)
def test_what_proves_nothing(make_run: Any, pair: Callable[[], Pair], reason: Reason) -> None:
    analysis = analysis_without_text(make_run, ("b", PLAIN, 0))
    found = replay(analysis, "b", "nextn", pair(), place=Place(), tries=9, progress=lambda _line: None)
    assert (found.first.verdict.kind, found.first.verdict.reason) == (Kind.INCONCLUSIVE, reason)
    assert found.smallest is None


def flaky() -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    count = iter(range(100))
    return lambda ids: (next(count), *right(ids))


def test_a_difference_that_cannot_be_had_again_stays_open(make_run: Any) -> None:
    analysis = analysis_without_text(make_run, ("b", LOGPROBS, 0))
    pair = Pair(Memory(right), Memory(right, 9), False)  # type: ignore[arg-type]
    found = replay(analysis, "b", "nextn", pair, place=Place(), tries=9, progress=lambda _line: None)
    assert found.first.verdict.kind is Kind.IDENTICAL
    assert found.open_stages == (LOGPROBS,)
    assert "this proves nothing" in notes(found)[-1]


def test_a_server_that_dies_ends_the_replay(make_run: Any) -> None:
    analysis = analysis_without_text(make_run, ("b", PLAIN, 0))
    ids = analysis.prompts["b"].ids

    def dies(some: tuple[int, ...]) -> tuple[int, ...]:
        if some != ids:
            raise ServerDied("gone")
        return wrong_at_five(ids[0])(some)

    pair = Pair(Memory(right), Memory(dies, 9), False)  # type: ignore[arg-type]
    with pytest.raises(ServerDied):
        replay(analysis, "b", "nextn", pair, place=Place(), tries=60, progress=lambda _line: None)
