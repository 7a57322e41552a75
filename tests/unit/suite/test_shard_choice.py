"""Which prompts belong to a shard: every prompt to one, families whole, the same on every machine."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from lossless.errors import UsageError
from lossless.prompts import load_prompts
from lossless.record.plan import HIT, ORDER, stages
from lossless.suite.options import Options
from lossless.suite.prepare import prepare
from lossless.suite.shard import ShardChoice, chosen, families, parse_shard, shard_of


@dataclass(frozen=True)
class P:
    id: str
    group: str = "parity"
    same_as: str | None = None


@pytest.mark.parametrize("text", ["", "1", "1/", "/2", "0/2", "3/2", "1/0", "-1/2", "a/b", "1/2/3", "1.5/2", "1 / 2"])
def test_wrong_syntax_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--lossless-shard"):
        parse_shard(text)
    with pytest.raises(UsageError, match="--lossless-shard"):
        Options(shard=text)


def test_shards_count_from_one() -> None:
    assert [parse_shard(t) for t in ("1/1", "2/3", " 10/12 ")] == [
        ShardChoice(1, 1),
        ShardChoice(2, 3),
        ShardChoice(10, 12),
    ]
    assert str(ShardChoice(2, 3)) == "2/3"


@pytest.mark.parametrize("total", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["standard", "full"])
def test_every_prompt_is_in_exactly_one_shard_in_order(name: str, total: int) -> None:
    whole = load_prompts(name)
    parts = [chosen(whole.prompts, ShardChoice(k, total), name=name) for k in range(1, total + 1)]
    assert Counter(id_ for part in parts for id_ in part) == Counter(p.id for p in whole.prompts)
    for part in parts:
        assert list(part) == [p.id for p in whole.prompts if p.id in part]
        assert [p.id for p in whole.select(part).prompts] == list(part), "same_as stays inside a shard"


@pytest.mark.parametrize("total", [2, 3, 7])
def test_stateful_stages_are_whole_or_absent(total: int) -> None:
    whole = load_prompts("full")
    plan = {s.name: s.items for s in stages(whole.prompts, baseline=False, concurrency=4)}
    seen: Counter[str] = Counter()
    for k in range(1, total + 1):
        part = whole.select(chosen(whole.prompts, ShardChoice(k, total), name="full")).prompts
        for stage in stages(part, baseline=False, concurrency=4):
            if stage.name in (HIT, ORDER):
                seen[stage.name] += 1
                assert stage.items == plan[stage.name]
    assert seen == {HIT: 1, ORDER: 1}


def test_families() -> None:
    prompts = [
        P("a"),
        P("b", same_as="a"),
        P("c"),
        P("x", group="cache"),
        P("y", group="cache"),
        P("o", group="order", same_as="c"),
        P("c2", same_as="c"),
        P("o2", group="order", same_as="x"),
    ]
    found = families(prompts)
    assert found["a"] == found["b"] == "a"
    assert len({found[id_] for id_ in ("c", "c2", "o", "o2", "x", "y")}) == 1, "joined by what they share"
    assert len(set(found.values())) == 2


def test_a_family_does_not_move_when_the_set_grows() -> None:
    quick, full = load_prompts("quick"), load_prompts("full")
    small, large = families(quick.prompts), families(full.prompts)
    assert {small[p.id] == large[p.id] for p in quick.prompts if p.id == large[p.id]} == {True}
    assert [shard_of(name, 4) for name in ("a", "group:cache", "list-04", "code")] == [3, 1, 4, 3]


def test_an_empty_shard_says_how_the_set_divides() -> None:
    with pytest.raises(UsageError) as caught:
        chosen([P("a"), P("b", same_as="a")], ShardChoice(1 + shard_of("a", 2) % 2, 2), name="mine.toml")
    message = str(caught.value)
    assert "no prompt of 'mine.toml' belongs to it" in message
    assert f"{shard_of('a', 2)}/2: 2" in message
    assert "use fewer shards" in message


def test_a_shard_is_another_plan_of_the_same_set(tmp_path: Path) -> None:
    def prepared(shard: str | None):  # type: ignore[no-untyped-def]
        return prepare(Options(prompts="quick", shard=shard, golden=tmp_path, runs=tmp_path))

    whole, one, two = prepared(None), prepared("1/2"), prepared("2/2")
    assert len({whole.key, one.key, two.key}) == 3, "no shard resumes another one's run"
    assert whole.prompt_digest == one.prompt_digest == two.prompt_digest == whole.prompts.digest
    assert whole.shard is None
    ids = tuple(p.id for p in whole.prompts.prompts)
    assert one.shard is not None
    assert (one.shard.index, one.shard.total, one.shard.prompts) == (1, 2, ids)
    assert {p.id for p in one.prompts.prompts} | {p.id for p in two.prompts.prompts} == set(ids)
