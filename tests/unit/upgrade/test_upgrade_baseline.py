"""Does the new baseline still say what the old one said: what is proven, what is divergent, and what nobody knows."""

from typing import Any

import pytest
from upgrade_runs import FLIPPED, FORKED, TEXT, RunPair, first_difference, rescore_old, run_pair

from lossless.analysis.upgrade_baseline import Drift
from lossless.errors import UsageError
from lossless.protocol import Sampling
from lossless.verdict import Kind, Reason


def of(pair: RunPair, prompt: str = "list-0", **options: Any) -> Drift:
    return next(d for d in pair.upgrade(**options).drift if d.prompt == prompt)


def test_equal_outputs_need_no_score(make_run: Any) -> None:
    pair = run_pair(make_run)
    assert {(d.verdict.kind, d.source) for d in pair.upgrade().drift} == {(Kind.IDENTICAL, "tokens")}
    assert pair.upgrade().status == "proven"


@pytest.mark.parametrize(
    ("new", "regret", "kind", "reason"),
    [
        (FLIPPED, 0.0625, Kind.NEAR_TIE, None),
        (FLIPPED, 3.0, Kind.DIVERGENT, Reason.GAP),
        (FORKED, 0.0625, Kind.NEAR_TIE, None),
        (FORKED, 3.0, Kind.DIVERGENT, Reason.GAP),
    ],
)
def test_a_rescored_output_is_judged_whole(
    make_run: Any, new: str, regret: float, kind: Kind, reason: Reason | None
) -> None:
    pair = run_pair(make_run, new_list=new)
    rescore_old(pair, TEXT, new, regret)
    found = of(pair)
    assert (found.verdict.kind, found.verdict.reason, found.source) == (kind, reason, "re-scored")
    assert pair.upgrade().status == ("proven" if kind is Kind.NEAR_TIE else "divergent")


def test_a_fork_does_not_pass_when_strict(make_run: Any) -> None:
    pair = run_pair(make_run, new_list=FORKED)
    rescore_old(pair, TEXT, FORKED, 0.0625)
    assert (pair.upgrade().baseline_status, pair.upgrade(strict=True).baseline_status) == ("proven", "divergent")


@pytest.mark.parametrize(("regret", "kind"), [(0.0625, Kind.NEAR_TIE), (3.0, Kind.DIVERGENT)])
def test_the_old_baseline_may_have_scored_the_new_output(make_run: Any, regret: float, kind: Kind) -> None:
    pair = run_pair(make_run, new_list=FORKED)
    at = first_difference(pair.old, TEXT, FORKED)
    pair.old.scored("list-0", pair.old.ids(FORKED), {at: regret}, {at: pair.old.ids(TEXT)[at]})
    found = of(pair)
    assert (found.verdict.kind, found.source) == (kind, "re-scored by the old")


def own_scores(pair: RunPair, new: str, below: float) -> None:
    """The new baseline's re-scoring of its own output, with the old token that far below at the first difference."""
    run, at = pair.new, first_difference(pair.new, new, TEXT)
    ids, old = run.ids(new), run.ids(TEXT)[at]
    entries: list[Any] = [[None, run.prompts["list-0"].ids[-1], None], *([-0.5, t, None] for t in ids)]
    top: list[Any] = [None, *([[-0.5, t, None], [-9.0, 4000, None]] for t in ids)]
    top[at + 1] = [[-0.5, ids[at], None], [-0.5 - below, old, None]]
    if below > 0.7:
        top[at + 1][0][0] = entries[at + 1][0] = -0.1
        top[at + 1][1][0] = -0.1 - below
    else:
        for row in (entries[at + 1], *top[at + 1]):
            row[0] -= 0.5
    run.store.append("baseline", run.score_record("list-0", ids, entries, top))


@pytest.mark.parametrize(
    ("new", "below", "kind", "reason"),
    [
        (FLIPPED, 0.0625, Kind.NEAR_TIE, None),
        (FLIPPED, 3.0, Kind.DIVERGENT, Reason.GAP),
        (FORKED, 0.0625, Kind.INCONCLUSIVE, Reason.UNSCORED),
        (FORKED, 3.0, Kind.DIVERGENT, Reason.GAP),
    ],
)
def test_without_rescoring_only_the_first_flip_is_known(
    make_run: Any, new: str, below: float, kind: Kind, reason: Reason | None
) -> None:
    pair = run_pair(make_run, new_list=new)
    own_scores(pair, new, below)
    found = of(pair)
    assert (found.verdict.kind, found.verdict.reason, found.source) == (kind, reason, "first flip")
    assert f"{below:.4g} nats" in found.verdict.detail
    status = {Kind.NEAR_TIE: "proven", Kind.DIVERGENT: "divergent", Kind.INCONCLUSIVE: "inconclusive"}[kind]
    assert (pair.upgrade().baseline_status, pair.upgrade().status) == (status, status)


def test_a_flip_so_late_that_nothing_shows_reconvergence(make_run: Any) -> None:
    late = TEXT.replace("of it.", "of us.")
    pair = run_pair(make_run, new_list=late)
    own_scores(pair, late, 0.0625)
    found = of(pair)
    assert len(found.verdict.differences) == 1
    assert (found.verdict.kind, found.source) == (Kind.INCONCLUSIVE, "first flip")


def test_a_token_off_a_list_that_ends_too_soon_is_not_judged(make_run: Any) -> None:
    pair = run_pair(make_run, new_list=FLIPPED)
    run, at = pair.new, first_difference(pair.new, FLIPPED, TEXT)
    run.scored("list-0", run.ids(FLIPPED), {}, {at: 4001})  # the list: the argmax, and another token that ties with it
    assert (of(pair).verdict.kind, of(pair).source) == (Kind.INCONCLUSIVE, "none")


def test_two_flips_that_nobody_scored_are_not_proven(make_run: Any) -> None:
    twice = FLIPPED.replace("five", "nine", 1)
    pair = run_pair(make_run, new_list=twice)
    own_scores(pair, twice, 0.0625)
    assert (of(pair).verdict.kind, of(pair).source) == (Kind.INCONCLUSIVE, "first flip")


def test_a_token_off_the_list_is_below_its_end(make_run: Any) -> None:
    pair = run_pair(make_run, new_list=FLIPPED)  # the list ends two nats below the argmax, and lacks the old token
    found = of(pair)
    assert (found.verdict.kind, found.source) == (Kind.DIVERGENT, "first flip")
    assert "at least 2 nats" in found.verdict.detail


def test_under_penalties_a_list_s_end_bounds_nothing(make_run: Any) -> None:
    penalized = {"list-0": Sampling(96, presence_penalty=0.5)}
    old, new = (make_run(penalized, folder=name) for name in ("old", "new"))
    old.says("baseline", "list-0", TEXT)
    new.scored("list-0", new.says("baseline", "list-0", FLIPPED))
    assert (of(RunPair(old, new)).verdict.kind, of(RunPair(old, new)).source) == (Kind.INCONCLUSIVE, "none")


def test_an_output_that_ends_early_is_divergent(make_run: Any) -> None:
    pair = run_pair(make_run)
    for name in ("baseline", "nextn"):
        pair.new.says(name, "list-0", pair.new.ids(TEXT)[:-4])
    found = of(pair)
    assert (found.verdict.kind, found.verdict.reason) == (Kind.DIVERGENT, Reason.LENGTH)
    assert found.source == "tokens"


def test_another_text_of_the_same_tokens_is_divergent(make_run: Any) -> None:
    pair = run_pair(make_run)
    pair.new.says("baseline", "list-0", TEXT, text=TEXT + " ")
    assert (of(pair).verdict.kind, of(pair).verdict.reason) == (Kind.DIVERGENT, Reason.TEXT)


def test_missing_answers_and_prompts_are_no_pass(make_run: Any) -> None:
    old = make_run({"list-0": Sampling(96), "copy-0": Sampling(96)}, folder="old")
    new = make_run({"list-0": Sampling(96), "summary-0": Sampling(96)}, folder="new")
    for run in (old, new):
        for prompt in run.prompts:
            for server in ("baseline", "nextn"):
                if (run, prompt) != (new, "list-0"):
                    run.says(server, prompt, TEXT)
    found = {d.prompt: (d.verdict.kind, d.verdict.reason, d.verdict.detail) for d in RunPair(old, new).upgrade().drift}
    assert list(found) == ["list-0", "copy-0", "summary-0"]
    assert {kind for kind, _, _ in found.values()} == {Kind.INCONCLUSIVE}
    assert found["list-0"][2].startswith("the new baseline: ")
    assert found["copy-0"][2] == "the new run has no such prompt"
    assert found["summary-0"][2] == "the old run has no such prompt"
    assert RunPair(old, new).upgrade().status == "inconclusive"


def test_another_request_is_not_compared(make_run: Any) -> None:
    old, new = make_run({"list-0": Sampling(96)}, folder="old"), make_run({"list-0": Sampling(95)}, folder="new")
    for run in (old, new):
        run.says("baseline", "list-0", TEXT)
    assert of(RunPair(old, new)).verdict.reason is Reason.NOT_A_PAIR


def test_other_models_are_no_upgrade(make_run: Any) -> None:
    old, new = (make_run(folder=name, model_digest=digest * 32) for name, digest in (("old", "ab"), ("new", "cd")))
    with pytest.raises(UsageError, match=r"different models \(sha256 abababababab and cdcdcdcdcdcd\)"):
        RunPair(old, new).upgrade()
    with pytest.raises(UsageError, match="was given twice"):
        RunPair(old, old).upgrade()
