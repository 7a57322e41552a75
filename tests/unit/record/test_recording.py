"""Recording with servers that live in memory: what is asked, what is kept, and how it goes on after an accident."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from fake_server import GROUPS, Watcher, World, make_recorder, make_store, record_all

from lossless.analysis import analyze
from lossless.record.plan import AFTER, AGAIN, HIT, LOGPROBS, ORDER, PLAIN, SCORE, STRESS, TOGETHER, stages
from lossless.record.store import Golden, RunStore
from lossless.verdict import Kind, Reason

A, B, C, D, E, F = (f"{10 + k}" for k in range(6))


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return make_store(tmp_path / "run")


def asked(world: World, server: str) -> list[str]:
    """The requests of a server, without flushes."""
    return world.events(server, "ask", "lp", "score")


def test_a_variant_is_recorded_as_planned(store: RunStore) -> None:
    world, watcher = World(), Watcher()
    state = make_recorder(store, world, watcher=watcher).record("nextn")
    assert (state.complete, state.problem, state.attempt) == (True, None, "1")
    assert state.server_info["speculative_algorithm"] == "EAGLE"
    alone = [e for name in (A, B, C, D, E, F) for e in ("flush", f"ask {name}")]
    assert world.events("nextn") == [
        "lease", "cards 0", "start", f"warm {A}", f"warm {D}", f"warm {F}",
        *alone,
        "flush", "batch 2 by 4", f"ask {B}", f"ask {A}",
        "flush", f"ask {C}", f"ask {C}",
        "flush", f"ask {D}", f"ask {E}", f"ask {D}",
        "flush", f"lp {A}", "flush", f"lp {B}",
        "stop", "release",
    ]  # fmt: skip
    planned = stages(store.prompts, baseline=False, concurrency=4)
    assert [(s, total, done) for _, s, total, done in watcher.stages] == [(s.name, len(s.items), 0) for s in planned]
    assert set(state.stage_s) == {PLAIN, TOGETHER, HIT, ORDER, LOGPROBS}
    assert watcher.ended == [state]
    assert store.server("nextn") == state


def test_the_baseline_runs_twice_and_scores_each_distinct_output_once(store: RunStore) -> None:
    world = World(outputs={("nextn", 10): (7, 8, 1), ("dflash", 10): (7, 8, 1), ("dflash", 11): (9, 1)})
    states = record_all(store, world)
    assert all(s.complete and s.problem is None for s in states)
    assert store.complete
    answers = store.answers("baseline")
    assert Counter(stage for stage, *_ in answers) == {
        PLAIN: 6, AGAIN: 4, TOGETHER: 2, HIT: 2, ORDER: 3, LOGPROBS: 2, SCORE: 7,
    }  # fmt: skip
    # five prompts that can be scored as the baseline said them, and two outputs that only variants said
    assert Counter(asked(world, "baseline"))[f"score {A}"] == 2
    assert Counter(asked(world, "baseline"))[f"score {B}"] == 2
    assert [e for e in asked(world, "baseline") if e == f"score {F}"] == [], "raw scores say nothing about a penalty"
    scored = [r for r in answers.values() if r.stage == SCORE]
    assert {r.wall_s for r in scored} == {0.25}
    assert analyze(store).scoring_answers.keys() == {r.output for r in scored}


def test_the_pass_with_logprobs_is_the_second_run_where_it_says_the_same(store: RunStore) -> None:
    world = World(logprob_outputs={("baseline", 10): (7, 8, 1)})
    record_all(store, world)
    again = [prompt for stage, prompt, *_ in store.answers("baseline") if stage == AGAIN]
    assert again == ["a", "c", "d", "e", "f"], "b said the same; for a, logprobs may be what changed the answer"
    analysis = analyze(store)
    assert analysis.verdict("nextn", "a").verdict.kind is Kind.IDENTICAL
    assert next(c for c in analysis.controls if c.name == "repeatable").detail.endswith("agree on 6 of 6 prompts")


def test_goldens_are_scored_too(tmp_path: Path) -> None:
    store = make_store(
        tmp_path / "run", goldens={"a": Golden((50, 51, 1), "old", "stop", 1), "zz": Golden((1,), "", "stop", 1)}
    )
    world = World()
    record_all(store, world)
    assert Counter(asked(world, "baseline"))[f"score {A}"] == 2
    assert len([e for e in asked(world, "baseline") if e.startswith("score")]) == 6


def test_nothing_is_done_twice(store: RunStore) -> None:
    record_all(store, World())
    world = World()
    record_all(store, world, attempt="2")
    assert world.log == []


def test_a_server_death_leaves_the_rest_missing(store: RunStore) -> None:
    world = World(dies_at={"nextn": 3})
    states = record_all(store, world)
    dead = states[0]
    assert (dead.complete, dead.problem) == (False, "nextn died")
    assert world.events("nextn")[-2:] == ["stop", "release"], "it is stopped and its card given back all the same"
    assert len(asked(world, "nextn")) == 4, "nothing is asked of a dead server"
    assert not store.complete
    analysis = analyze(store)
    kinds = {p: analysis.verdict("nextn", p).verdict for p in GROUPS}
    assert [kinds[p].kind for p in "abc"] == [Kind.IDENTICAL] * 3
    assert {(kinds[p].kind, kinds[p].reason) for p in "def"} == {(Kind.INCONCLUSIVE, Reason.MISSING)}
    assert "nextn died" in kinds["d"].detail
    assert "nextn died" in kinds["f"].detail
    assert analysis.verdict("dflash", "f").verdict.kind is Kind.IDENTICAL


def test_a_server_that_does_not_start(store: RunStore) -> None:
    world = World(will_not_start={"nextn"})
    states = record_all(store, world)
    assert states[0].problem == "nextn ended with exit status 1 while starting"
    assert world.events("nextn") == ["lease", "cards 0", "start", "stop", "release"]
    verdict = analyze(store).verdict("nextn", "a").verdict
    assert (verdict.kind, verdict.reason) == (Kind.INCONCLUSIVE, Reason.MISSING)
    assert "while starting" in verdict.detail


def test_a_dead_baseline_makes_everything_inconclusive(store: RunStore) -> None:
    record_all(store, World(dies_at={"baseline": 0}))
    analysis = analyze(store)
    assert {j.verdict.kind for j in analysis.verdicts()} == {Kind.INCONCLUSIVE}


def test_one_failed_request_spoils_one_prompt(store: RunStore) -> None:
    world = World(fails_at={"nextn": 1})
    states = record_all(store, world)
    assert (states[0].complete, states[0].problem) == (True, "1 requests failed")
    analysis = analyze(store)
    found = {p: analysis.verdict("nextn", p).verdict for p in GROUPS}
    assert (found["b"].kind, found["b"].reason) == (Kind.INCONCLUSIVE, Reason.MISSING)
    assert found["b"].detail == "nextn: HTTP 500: out of memory"
    assert {v.kind for p, v in found.items() if p != "b"} == {Kind.IDENTICAL}
    assert analysis.verdict("nextn", "b", TOGETHER).verdict.kind is Kind.IDENTICAL


def test_one_failed_scoring_request_spoils_only_a_flip(store: RunStore) -> None:
    world = World(outputs={("nextn", 10): (7, 8, 1)})
    recorder = make_recorder(store, world)
    recorder.record("nextn")
    recorder.record("dflash")
    total = 6 + 2 + 2 + 3 + 2 + 4 + 6
    world.fails_at["baseline"] = total - 6  # the first of the six scored; they arrive in reverse order
    state = recorder.record("baseline")
    assert state.problem == "1 requests failed"
    failed = [r for r in store.answers("baseline").values() if r.stage == SCORE and r.answer is None]
    assert [(r.prompt, r.error) for r in failed] == [("a", "HTTP 500: out of memory")]
    verdict = analyze(store).verdict("nextn", "a").verdict
    assert (verdict.kind, verdict.reason) == (Kind.INCONCLUSIVE, Reason.UNSCORED)


# ----------------------------------------------------------------------------- resuming
def test_only_what_is_missing_is_asked_again(store: RunStore) -> None:
    record_all(store, World(fails_at={"nextn": 1}))
    world = World()
    states = record_all(store, world, attempt="2")
    assert asked(world, "nextn") == [f"ask {B}"]
    assert world.events("dflash") == []
    assert world.events("baseline") == [], "the new answer is one that the baseline gave and scored itself"
    assert states[0].problem is None
    assert store.complete


def test_after_a_death_the_rest_is_asked(store: RunStore) -> None:
    make_recorder(store, World(dies_at={"nextn": 3})).record("nextn")
    world = World()
    make_recorder(store, world, "2").record("nextn")
    assert asked(world, "nextn")[:3] == [f"ask {D}", f"ask {E}", f"ask {F}"]
    assert len(asked(world, "nextn")) == 3 + 2 + 2 + 3 + 2


@pytest.mark.parametrize(("at", "stage", "again"), [(7, TOGETHER, [B, A]), (9, HIT, [C, C]), (11, ORDER, [D, E, D])])
def test_a_half_finished_stage_with_state_is_run_again_as_a_whole(
    store: RunStore, at: int, stage: str, again: list[str]
) -> None:
    """Half of a cache stage on a fresh server would be a hit that is a miss."""
    make_recorder(store, World(dies_at={"nextn": at})).record("nextn")
    have = [k for k, r in store.answers("nextn").items() if k[0] == stage and r.answer is not None]
    assert len(have) == 1
    world = World()
    make_recorder(store, world, "2").record("nextn")
    assert asked(world, "nextn")[: len(again)] == [f"ask {name}" for name in again]
    assert len([k for k in store.answers("nextn") if k[0] == stage]) == len(again)
    assert world.events("nextn", "flush", "ask", "batch")[0] == "flush"


def test_a_stage_that_failed_in_full_is_run_again(store: RunStore) -> None:
    recorder = make_recorder(store, World(dies_at={"nextn": 8}))
    recorder.record("nextn")  # dies at the first request of the cache stage
    world = World()
    make_recorder(store, world, "2").record("nextn")
    assert asked(world, "nextn")[:2] == [f"ask {C}", f"ask {C}"]


@pytest.mark.parametrize("keep", [0, 1, 30, -1])
def test_a_line_that_a_crash_cut_short_is_asked_again(store: RunStore, keep: int) -> None:
    make_recorder(store, World()).record("nextn")
    path = store.path / "records" / "nextn.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:keep])
    store.write_server(store.server("nextn").__class__("nextn", complete=False))
    world = World()
    make_recorder(store, world, "2").record("nextn")
    cut_is_whole = keep == -1  # all but the line break: the record is there
    assert asked(world, "nextn") == ([] if cut_is_whole else [f"lp {B}"])
    assert len(store.answers("nextn")) == len(lines)
    assert all(line.endswith(b"}\n") for line in path.read_bytes().splitlines(keepends=True))


def test_an_interrupt_is_raised_and_what_came_before_is_kept(store: RunStore) -> None:
    world = World(interrupt_at={"nextn": 2})
    with pytest.raises(KeyboardInterrupt):
        make_recorder(store, world).record("nextn")
    assert world.events("nextn")[-2:] == ["stop", "release"]
    state = store.server("nextn")
    assert state is not None
    assert (state.complete, state.problem) == (False, None)
    again = World()
    make_recorder(store, again, "1").record("nextn")  # even in the same attempt: it did not end, it was cut off
    assert asked(again, "nextn")[0] == f"ask {C}"


def test_a_failed_server_is_tried_once_an_attempt(store: RunStore) -> None:
    first = make_recorder(store, World(will_not_start={"nextn"}), "1").record("nextn")
    world = World()
    assert make_recorder(store, world, "1").record("nextn") == first
    assert world.log == []
    assert make_recorder(store, world, "2").record("nextn").problem is None


@pytest.mark.parametrize(
    "change",
    [{"version": "0.5.23"}, {"model_path": "other"}, {"kv_cache_dtype": "fp8"}, {"page_size": 16},
     {"speculative_num_steps": 5}, {"speculative_draft_model_path": "other"}],
)  # fmt: skip
def test_answers_of_another_server_are_forgotten(store: RunStore, change: dict[str, object]) -> None:
    make_recorder(store, World(dies_at={"nextn": 3})).record("nextn")
    world = World(info={"nextn": change})
    make_recorder(store, world, "2").record("nextn")
    assert asked(world, "nextn")[0] == f"ask {A}"
    assert len(asked(world, "nextn")) == 6 + 2 + 2 + 3 + 2


def test_who_a_server_was_is_remembered_over_a_failed_start(store: RunStore) -> None:
    """Or the answers of one version would be continued by another."""
    make_recorder(store, World(dies_at={"nextn": 3})).record("nextn")
    make_recorder(store, World(will_not_start={"nextn"}), "2").record("nextn")
    state = store.server("nextn")
    assert state is not None
    assert state.server_info["version"] == "0.5.19"
    assert state.problem is not None
    world = World(info={"nextn": {"version": "0.5.23"}})
    make_recorder(store, world, "3").record("nextn")
    assert asked(world, "nextn")[0] == f"ask {A}"


def test_a_finished_baseline_comes_back_for_new_outputs(store: RunStore) -> None:
    """A variant that failed is recorded again after the baseline: its outputs still have to be scored."""
    record_all(store, World(will_not_start={"nextn"}))
    world = World(outputs={("nextn", 10): (7, 8, 1)})
    states = record_all(store, world, attempt="2")
    assert asked(world, "baseline") == [f"score {A}"]
    assert all(s.complete and s.problem is None for s in states)
    digests = {r.output for r in store.answers("baseline").values() if r.stage == SCORE}
    assert len(digests) == 6


def test_a_run_of_nothing_but_grammars_on_servers_without_one(tmp_path: Path) -> None:
    """Nothing can be sent, nothing is recorded, and nothing breaks."""
    store = make_store(tmp_path / "run", groups={"a": "parity"}, json_schema="{}")
    world = World()
    (state,) = record_all(store, world)[:1]
    assert (state.complete, state.problem) == (True, None)
    assert asked(world, "nextn") == []
    with_grammar = World(info={name: {"grammar_backend": "xgrammar"} for name in ("nextn", "dflash", "baseline")})
    other = make_store(tmp_path / "other", groups={"a": "parity"}, json_schema="{}")
    record_all(other, with_grammar)
    assert len(asked(with_grammar, "nextn")) == 3


def test_an_error_never_replaces_an_answer(store: RunStore) -> None:
    make_recorder(store, World()).record("nextn")
    record = next(iter(store.records("nextn")))
    store.append("nextn", record.__class__(record.stage, record.prompt, error="later"))
    assert store.answers("nextn")[record.key].answer is not None


STRESSED = {"a": "parity", "s": "stress", "t": "stress"}


def test_the_stress_test_comes_last_and_only_once(tmp_path: Path) -> None:
    store, world = make_store(tmp_path / "run", groups=STRESSED), World()
    states = record_all(store, world)
    assert store.complete
    assert all(s.survival is not None and s.survival.healthy and s.survival.problem is None for s in states)
    events = world.events("baseline")
    first_cut = next(k for k, e in enumerate(events) if e.startswith(("abort", "leave")))
    assert not [e for e in events[first_cut:] if e.startswith("score")], "the baseline has re-scored before"
    stages_seen = Counter(r.stage for r in store.answers("nextn").values())
    assert (stages_seen[STRESS], stages_seen[AFTER]) == (2 + 8 + 2, 3)
    again = World()
    record_all(store, again, attempt="2")
    assert again.log == []


def test_a_server_that_dies_under_stress_has_answered_everything_else(tmp_path: Path) -> None:
    store = make_store(tmp_path / "run", groups=STRESSED)
    plain = World()
    record_all(store, plain)
    before = plain.sent["nextn"] - (2 + 8 + 2 + 3)
    store, world = make_store(tmp_path / "other", groups=STRESSED), World(dies_at={"nextn": before + 4})
    states = {s.name: s for s in record_all(store, world)}
    assert states["nextn"].survival is not None
    assert states["nextn"].survival.problem == "nextn died"
    assert (states["nextn"].complete, states["nextn"].problem) == (True, None)
    kinds = {j.verdict.kind for j in analyze(store).verdicts()}
    assert Kind.DIVERGENT not in kinds
    assert not next(s for s in analyze(store).survival if s.server == "nextn").ok


def test_an_interrupted_stress_test_is_run_again_from_its_start(tmp_path: Path) -> None:
    plain = World()
    record_all(make_store(tmp_path / "plain", groups=STRESSED), plain)
    before = plain.sent["nextn"] - (2 + 8 + 2 + 3)
    store, world = make_store(tmp_path / "run", groups=STRESSED), World(interrupt_at={"nextn": before + 5})
    with pytest.raises(KeyboardInterrupt):
        make_recorder(store, world).record("nextn")
    assert not store.complete
    again = World()
    states = record_all(store, again, attempt="2")
    assert again.sent["nextn"] == 2 + 8 + 2 + 3, "what was answered before the stress is kept"
    assert all(s.survival is not None for s in states)
    assert store.complete


def test_a_built_prompt_without_room_is_not_sent(tmp_path: Path) -> None:
    store = make_store(tmp_path / "run", groups={"a": "parity"})
    needle = replace(store.prompts[0], id="needle", group="long", ids=(77,) * 100, depth=0.5)
    store.create(store.manifest, (*store.prompts, needle), {}, None)
    world = World(info={"dflash": {"context_length": 4096, "max_total_num_tokens": 60}})
    states = record_all(store, world)
    assert all(s.problem is None for s in states)
    assert "ask 77" in world.events("nextn")
    assert "ask 77" not in world.events("dflash")
    assert "warm 77" not in world.events("nextn"), "warming up is cheap"
    assert (analyze(store).inapplicable("needle") or "").startswith("dflash: the KV pool holds 60 tokens")
    assert store.complete
