"""Variants, accept lengths, speed, figures and arguments: each planted change turns its own line, and no other."""

from typing import Any

import pytest
from upgrade_runs import FLIPPED, NEW, STORY, TEXT, RunPair, first_difference, run_pair

from lossless.analysis.upgrade import Upgrade
from lossless.analysis.upgrade_figures import SPEED_MOVED
from lossless.protocol import Sampling
from lossless.record.plan import LOGPROBS, PLAIN
from lossless.record.store import Record


def test_nothing_changed_but_the_version(make_run: Any) -> None:
    found = run_pair(make_run).upgrade()
    assert [(f.name, f.old, f.new) for f in found.facts if f.old != f.new] == [
        ("run", "old", "new"),
        ("SGLang", "0.5.19", "0.5.20"),
    ]
    assert (found.variants[0].changes, found.variants[0].problems, found.arguments) == ((), (), ())
    assert not any(a.moved for a in found.accept)
    assert not any(s.moved for s in found.speed)
    assert found.sentence == "the new baseline agrees with the old one on 2 of 2 prompts; nextn is lossless"


def divergent(make_run: Any) -> Upgrade:
    pair = run_pair(make_run, variant=FLIPPED)
    at = first_difference(pair.new, TEXT, FLIPPED)
    pair.new.scored("list-0", pair.new.ids(FLIPPED), {at: 9.0}, {at: pair.new.ids(TEXT)[at]})
    return pair.upgrade()


def test_a_divergent_token_of_the_new_variant(make_run: Any) -> None:
    found = divergent(make_run)
    (variant,) = found.variants
    assert (variant.old, variant.new, found.baseline_status, found.status) == (
        "proven",
        "divergent",
        "proven",
        "divergent",
    )
    assert (variant.old_counts, variant.new_counts) == ({"identical": 2}, {"divergent": 1, "identical": 1})
    (change,) = variant.changes
    assert (change.prompt, change.old, change.new, change.worse) == ("list-0", "identical", "divergent (gap)", True)
    assert "nextn is divergent" in found.sentence


def test_what_the_old_run_did_wrong_is_over(make_run: Any) -> None:
    pair = run_pair(make_run)
    at = first_difference(pair.old, TEXT, FLIPPED)
    pair.old.says("nextn", "list-0", FLIPPED)
    pair.old.scored("list-0", pair.old.ids(FLIPPED), {at: 9.0}, {at: pair.old.ids(TEXT)[at]})
    found = pair.upgrade()
    (variant,) = found.variants
    assert (variant.old, variant.new, found.status) == ("divergent", "proven", "proven")
    assert [c.worse for c in variant.changes] == [False]


def test_a_missing_server_is_inconclusive(make_run: Any) -> None:
    pair = run_pair(make_run)
    new = make_run({"list-0": Sampling(96), "story-0": Sampling(96)}, folder="half")
    for prompt, said in (("list-0", TEXT), ("story-0", STORY)):
        new.says("baseline", prompt, said)
    new.server("nextn", complete=False, problem="the server died: out of memory")
    found = RunPair(pair.old, new).upgrade()
    assert (found.baseline_status, found.variants[0].new, found.status) == ("proven", "inconclusive", "inconclusive")
    assert "speculation: the server died: out of memory" in found.variants[0].problems


def test_a_variant_that_only_one_run_has(make_run: Any) -> None:
    pair = run_pair(make_run)
    new = make_run({"list-0": Sampling(96), "story-0": Sampling(96)}, folder="other", variants=("dflash",))
    for server in ("baseline", "dflash"):
        new.server(server, version=NEW)
        for prompt, said in (("list-0", TEXT), ("story-0", STORY)):
            new.says(server, prompt, said)
    found = RunPair(pair.old, new).upgrade()
    assert [(v.variant, v.old, v.new) for v in found.variants] == [
        ("dflash", "not in the run", "proven"),
        ("nextn", "proven", "not in the run"),
    ]
    assert found.status == "inconclusive", "nextn was proven and is not any more"
    assert "nextn was not run" in found.sentence


def test_broken_rules_that_equal_tokens_do_not_show(make_run: Any) -> None:
    pair = run_pair(make_run)
    wrong = [[-0.1, 7, None] for _ in pair.new.ids(TEXT)]
    pair.new.says("nextn", "list-0", TEXT, stage=LOGPROBS, output_token_logprobs=wrong)
    found = pair.upgrade()
    assert found.variants[0].new_counts == {"identical": 2}
    assert (found.variants[0].new, found.status) == ("divergent", "divergent")
    assert any("list-0: logprobs" in p for p in found.variants[0].problems)


def test_stress_that_a_server_did_not_survive(make_run: Any) -> None:
    pair = run_pair(make_run, groups={"story-0": "stress"})  # and its stress test was never run
    found = pair.upgrade()
    assert found.variants[0].new == "inconclusive"
    assert any(p.startswith("stress, nextn: ") for p in found.variants[0].problems)


@pytest.mark.parametrize(("steps", "moved"), [(10, ""), (24, "fell"), (2, "rose")])
def test_accept_length_against_the_old_band(make_run: Any, steps: int, moved: str) -> None:
    pair = run_pair(make_run)
    size = len(pair.new.ids(TEXT))
    for run, count in ((pair.old, 10), (pair.new, steps)):
        run.says("nextn", "list-0", TEXT, spec_verify_ct=count)
    found = {a.category: a for a in pair.upgrade().accept}
    assert list(found) == ["list", "story", "all"]
    assert (found["list"].old, found["list"].new) == (size / 10, size / steps)
    assert (found["list"].moved, found["story"].moved) == (moved, "")
    assert pair.upgrade().status == "proven", "it is about the gain"
    assert ("accept length moved" in pair.upgrade().sentence) == bool(moved)
    assert ("(fell in 1)" in pair.upgrade().sentence) == (moved == "fell")


@pytest.mark.parametrize(("seconds", "moved"), [(0.5, ""), (0.55, ""), (1.0, "slower"), (0.25, "faster")])
def test_speed_moves_from_the_threshold_on(make_run: Any, seconds: float, moved: str) -> None:
    pair = run_pair(make_run)
    body = pair.new.body(pair.new.ids(TEXT), "list-0")
    pair.new.store.append("baseline", Record(PLAIN, "list-0", wall_s=seconds, answer=body))
    found = {(s.server, s.category): s for s in pair.upgrade().speed}
    assert found["baseline", "list"].moved == moved
    assert found["baseline", "list"].ratio == pytest.approx(0.5 / seconds)
    assert found["nextn", "list"].moved == ""
    assert 0 < SPEED_MOVED < 1


def test_changed_defaults_without_the_noise(make_run: Any) -> None:
    pair = run_pair(make_run)
    same = {
        "page_size": 1,
        "_page_size_explicitly_set": False,
        "port": 30000,
        "random_seed": 7,
        "startup_time": {"total": 1.0},
    }
    graph = {"decode": {"max_bs": 8, "bs": [1, 2, 4, 8]}, "prefill": {"backend": "full"}}
    for run, version, more in (
        (pair.old, "0.5.19", {"disable_radix_cache": False, "cuda_graph_config": graph, "old_flag": 1}),
        (
            pair.new,
            "0.5.20",
            {
                "disable_radix_cache": True,
                "cuda_graph_config": {**graph, "decode": {"max_bs": 16, "bs": [1, 2, 4, 8]}},
                "new_flag": None,
                "port": 30555,
                "_page_size_explicitly_set": True,
                "random_seed": 8,
                "startup_time": {"total": 2.0},
            },
        ),
    ):
        for server in ("baseline", "nextn"):
            backend = {"attention_backend": "triton" if run is pair.old or server == "nextn" else "fa3"}
            run.server(server, **{**same, **more, **backend, "version": version})
    found = pair.upgrade()
    assert [(c.name, c.old, c.new, c.servers) for c in found.arguments] == [
        ("attention_backend", "triton", "fa3", ("baseline",)),
        ("disable_radix_cache", False, True, ("baseline", "nextn")),
        ("cuda_graph_config.decode.max_bs", 8, 16, ("baseline", "nextn")),
    ]
    assert [c.why is not None for c in found.arguments] == [True, True, False]
    assert (found.new_arguments, found.gone_arguments) == (("new_flag",), ("old_flag",))


def test_figures_of_both_runs(make_run: Any) -> None:
    pair = run_pair(make_run)
    for run, version, tokens in ((pair.old, "0.5.19", 20_000), (pair.new, "0.5.20", 18_000)):
        run.server("nextn", version=version, max_total_num_tokens=tokens, context_length=4096)
    found = {(f.server, f.name): (f.old, f.new, f.unit) for f in pair.upgrade().figures}
    assert found["nextn", "KV pool"] == (20_000, 18_000, "tokens")
    assert found["nextn", "context"] == (4096, 4096, "tokens")
    assert ("baseline", "KV pool") not in found
    assert not pair.upgrade().arguments, "the pool is a figure, not a default"


def test_known_issues_appear_and_vanish(make_run: Any) -> None:
    prompts = {"params-0": Sampling(96, min_new_tokens=60)}
    runs = []
    for name, version in (("old", "0.5.19"), ("new", "99.0")):
        run = make_run(prompts, folder=name)
        for server in ("baseline", "nextn"):
            run.server(server, version=version)
        ids = run.ids(" ".join([TEXT] * 4))[:-1][:60]
        run.says("baseline", "params-0", (*ids, 1))
        longer = (*ids, *ids[:6], 1)
        run.scored("params-0", longer, {60: 9.0}, {60: 1})
        run.says("nextn", "params-0", longer if name == "old" else (*ids, 1))
        runs.append(run)
    (issue,) = RunPair(*runs).upgrade().issues
    assert (issue.issue.id, issue.state, issue.old, issue.new) == ("eagle-min-new-tokens", "vanishes", 1, None)
    (variant,) = RunPair(*runs).upgrade().variants
    assert (variant.old, variant.new) == ("inconclusive", "proven"), "known issues prove nothing"
    assert (variant.old_counts, variant.new_counts) == ({"known": 1}, {"identical": 1})
    (issue,) = RunPair(*reversed(runs)).upgrade().issues
    assert (issue.state, issue.old, issue.new) == ("appears", None, 1)


def test_packages_are_facts(make_run: Any) -> None:
    found = run_pair(make_run).upgrade(packages=({"torch": "2.8"}, {"torch": "2.9", "triton": "3.5"}))
    assert [(f.name, f.old, f.new) for f in found.facts][-2:] == [("torch", "2.8", "2.9"), ("triton", "", "3.5")]
