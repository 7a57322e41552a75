"""What is asked: which prompts, how often, how many at once."""

from typing import Any

import pytest

from lossless.bench.plan import AT_ONCE, Settings, Task, choose, make_plan
from lossless.errors import UsageError
from lossless.protocol import Sampling
from lossless.record.store import RecordedPrompt


def prompt(name: str, category: str = "code", group: str = "parity", **sampling: Any) -> RecordedPrompt:
    return RecordedPrompt(name, category, group, (7, len(name)), Sampling(**{"max_new_tokens": 96, **sampling}), name)


PROMPTS = [prompt("a"), prompt("b"), prompt("c"), prompt("d", "list"), prompt("e", "story", "concurrent")]
LONG = (
    Task("needle-256", "needle", (1, 2), Sampling(128), 256),
    Task("needle-1024", "needle", (3,), Sampling(128), 1024),
)


def test_categories_are_those_of_the_parity_group_with_two_prompts_at_most() -> None:
    chosen = choose(PROMPTS)
    assert {name: [task.id for task in tasks] for name, tasks in chosen.items()} == {"code": ["a", "b"], "list": ["d"]}
    assert list(choose(PROMPTS, ["story", "code"])) == ["story", "code"]


@pytest.mark.parametrize(
    "sampling",
    [
        {"stop": ("x",)},
        {"stop_token_ids": (3,)},
        {"ignore_eos": True},
        {"frequency_penalty": 1.0},
        {"min_new_tokens": 3},
        {"json_schema": "{}"},
        {"max_new_tokens": 8},
    ],
)
def test_prompts_whose_speed_would_mislead_are_left_out(sampling: dict[str, Any]) -> None:
    assert list(choose([prompt("odd", **sampling), prompt("d", "list")])) == ["list"]


def test_bad_categories_and_unfit_sets_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="no category 'poem' among the prompts; there are: code, list, story"):
        choose(PROMPTS, ["poem"])
    with pytest.raises(UsageError, match="no prompt to measure with"):
        choose([prompt("s", group="short")])


def test_long_answers_are_capped() -> None:
    (task,) = choose([prompt("a", max_new_tokens=4000)])["code"]
    assert task.sampling.max_new_tokens == 256


def test_a_category_is_never_mixed_with_another_in_a_timed_round() -> None:
    plan = make_plan(PROMPTS, LONG, Settings(repeats=2, streams=(1, 3)))
    for round_ in plan.rounds:
        if round_.stage != "temperature":
            assert len({ask.task.category for ask in round_.asks}) == 1


def test_rounds_and_requests_are_bounded_and_counted() -> None:
    plan = make_plan(PROMPTS, LONG, Settings(repeats=2, streams=(1, 3), temperatures=(0.0, 0.6)))
    by_stage: dict[tuple[str, int], int] = {}
    for round_ in plan.rounds:
        key = (round_.stage, len(round_.asks))
        by_stage[key] = by_stage.get(key, 0) + 1
    assert by_stage == {
        ("speed", 1): 2 * 3,  # repeats x (two prompts of code, one of list)
        ("speed", 3): 2 * 2,  # repeats x categories
        ("context", 1): 2 * 2,
        ("temperature", 3): 2 * 1,
    }
    assert plan.requests == 6 + 12 + 4 + 6
    assert [task.task.id for task in plan.rounds[6].asks] == ["a", "b", "a"], "a category's prompts take turns"


def test_repeats_go_round_over_the_categories() -> None:
    plan = make_plan(PROMPTS, (), Settings(repeats=2, streams=(1,), temperatures=(0.0,)))
    assert [(r.repeat, r.asks[0].task.id) for r in plan.rounds] == [
        (0, "a"), (0, "b"), (0, "d"), (1, "a"), (1, "b"), (1, "d"),
    ]  # fmt: skip


def test_sampled_requests_have_a_seed_and_greedy_ones_none() -> None:
    plan = make_plan(PROMPTS, (), Settings(repeats=2, streams=(1,), temperatures=(0.0, 0.3, 1.0)))
    sampled = [r for r in plan.rounds if r.stage == "temperature"]
    assert {ask.task.sampling.temperature for r in sampled for ask in r.asks} == {0.3, 1.0}
    assert {(r.repeat, ask.seed) for r in sampled for ask in r.asks} == {(0, 1), (1, 2)}
    assert all(ask.seed is None for r in plan.rounds if r.stage == "speed" for ask in r.asks)
    assert all(len(r.asks) <= AT_ONCE for r in sampled)


def test_without_prefill_no_long_prompt_is_sent() -> None:
    plan = make_plan(PROMPTS, LONG, Settings(prefill=False))
    assert all(r.stage != "context" for r in (*plan.rounds, *plan.warm_up))


def test_every_batch_size_and_short_length_is_warmed_up() -> None:
    plan = make_plan(PROMPTS, LONG, Settings(streams=(1, 2, 8)))
    assert [len(r.asks) for r in plan.warm_up if r.stage == "speed"] == [1, 2, 8]
    assert [r.asks[0].task.length for r in plan.warm_up if r.stage == "context"] == [256, 1024]


def test_the_key_changes_with_what_is_asked() -> None:
    keys = {
        make_plan(PROMPTS, LONG, Settings()).key,
        make_plan(PROMPTS, LONG, Settings(repeats=2)).key,
        make_plan(PROMPTS, LONG[:1], Settings()).key,
        make_plan(PROMPTS[1:], LONG, Settings()).key,
        make_plan(PROMPTS, LONG, Settings(temperatures=(0.0, 0.5))).key,
    }
    assert len(keys) == 5
    assert make_plan(PROMPTS, LONG, Settings()).key in keys


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"repeats": 0}, "repeats is 0; allowed: 1 to 100"),
        ({"streams": ()}, "allowed: one or more of 1 to 64"),
        ({"streams": (0,)}, r"streams are \[0\]"),
        ({"streams": (2, 2)}, "streams has a value twice"),
        ({"temperatures": (-0.1,)}, "allowed: 0 to 2"),
        ({"lengths": (0,)}, "allowed: 1 token or more"),
    ],
)
def test_settings_that_mean_nothing(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Settings(**wrong)
