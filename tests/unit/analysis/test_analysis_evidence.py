"""Missing evidence in a recorded run, and the rules every answer has to keep."""

from typing import Any

import pytest

from lossless.protocol import Sampling
from lossless.record.plan import HIT, LOGPROBS, ORDER, TOGETHER
from lossless.verdict import Kind, Reason

TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."
EOS = 1
FLIPPED = TEXT.replace("three", "seven", 1)


def test_a_flip_without_a_score_never_passes(make_run: Any) -> None:
    """The re-scoring request failed, say. That the outputs meet again at their end proves nothing."""
    run = make_run()
    run.says("baseline", "list-0", TEXT)
    run.says("nextn", "list-0", FLIPPED)
    verdict = run.analysis().verdict("nextn", "list-0").verdict
    assert verdict.reconverged
    assert (verdict.kind, verdict.reason) == (Kind.INCONCLUSIVE, Reason.UNSCORED)


def at_flip(run: Any) -> int:
    a, b = run.ids(TEXT), run.ids(FLIPPED)
    return next(t for t, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)


@pytest.mark.parametrize(("regret", "kind"), [(0.0625, Kind.NEAR_TIE), (2.0, Kind.DIVERGENT)])
def test_a_flip_with_a_score(make_run: Any, regret: float, kind: Kind) -> None:
    run = make_run()
    own, other = run.says("baseline", "list-0", TEXT), run.says("nextn", "list-0", FLIPPED)
    at = at_flip(run)
    run.scored("list-0", other, {at: regret}, {at: own[at]})
    verdict = run.analysis().verdict("nextn", "list-0").verdict
    assert verdict.kind is kind
    assert verdict.differences[0].gap == pytest.approx(regret)


@pytest.mark.parametrize(
    "damage", ["no entries", "one too few", "other ids", "null logprob", "null candidate", "no top"]
)
def test_a_damaged_score_never_passes(make_run: Any, damage: str) -> None:
    run = make_run()
    run.says("baseline", "list-0", TEXT)
    ids = run.says("nextn", "list-0", FLIPPED)
    entries: list[Any] = [[None, 9, None], *([-1.0, i, None] for i in ids)]
    top: list[Any] = [None, *([[-1.0, i, None], [-1.5, 4000, None]] for i in ids)]
    if damage == "no entries":
        entries, top = [], []
    elif damage == "one too few":
        entries, top = entries[:-1], top[:-1]
    elif damage == "other ids":
        entries[4] = [-1.0, 4001, None]
    elif damage == "null logprob":
        entries[4] = [None, ids[3], None]
    elif damage == "null candidate":
        top[4] = [[None, 4000, None], [-1.0, ids[3], None]]
    else:
        top[4] = None
    run.store.append("baseline", run.score_record("list-0", ids, entries, top))
    verdict = run.analysis().verdict("nextn", "list-0").verdict
    assert (verdict.kind, verdict.reason) == (Kind.INCONCLUSIVE, Reason.UNSCORED)


@pytest.mark.parametrize("sampling", [Sampling(96, repetition_penalty=1.5), Sampling(96, frequency_penalty=-0.5)])
def test_what_cannot_be_scored_is_compared_by_tokens(make_run: Any, sampling: Sampling) -> None:
    """Re-scoring sees raw logits: a score that happens to be there is not used."""
    run = make_run({"list-0": sampling}, groups={"list-0": "params"})
    run.says("baseline", "list-0", TEXT)
    ids = run.says("nextn", "list-0", TEXT[:30] + " something else.")
    run.scored("list-0", ids)
    verdict = run.analysis().verdict("nextn", "list-0").verdict
    assert (verdict.kind, verdict.reason) == (Kind.DIVERGENT, Reason.UNPROVEN_FORK)
    assert "only the tokens are compared" in verdict.notes[0]


@pytest.mark.parametrize(
    ("regret", "penalty", "kind"),
    [(0.0625, 0.0, Kind.NEAR_TIE), (0.0625, 1.0, Kind.DIVERGENT), (1.0, 1.0, Kind.DIVERGENT)],
)
def test_a_penalty_is_applied_to_the_scores(make_run: Any, regret: float, penalty: float, kind: Kind) -> None:
    """The variant repeats a token where the baseline does not: in raw logits that may be a near-tie."""
    run = make_run({"list-0": Sampling(96, presence_penalty=penalty)}, groups={"list-0": "params"})
    (a,), (b,), (c,) = (run.tokenizer.encode_text(x) for x in "abc")
    own, other = (a, b, c, EOS), (a, b, a, EOS)
    run.says("baseline", "list-0", own)
    run.says("nextn", "list-0", other)
    run.scored("list-0", other, {2: regret}, {2: c})
    verdict = run.analysis().verdict("nextn", "list-0").verdict
    assert verdict.kind is kind, verdict.detail
    assert verdict.differences[0].gap == pytest.approx(regret + penalty)


@pytest.mark.parametrize(
    ("info", "gap"),
    [
        ({}, 0.0),
        ({"disable_overlap_schedule": True}, 0.0),
        ({"disable_overlap_schedule": False}, 1.0),
        ({"disable_overlap_schedule": False, "version": "reference-1"}, 0.0),
    ],
)
def test_overlapped_scheduling_counts_the_last_prompt_token(make_run: Any, info: dict[str, Any], gap: float) -> None:
    """The variant says the last prompt token at position 1, where only an overlapped server has counted it."""
    run = make_run({"list-0": Sampling(96, presence_penalty=1.0)}, groups={"list-0": "params"})
    run.server("baseline", **info)
    run.server("nextn", **info)
    (a,), (b,) = (run.tokenizer.encode_text(x) for x in "ab")
    last = run.prompts["list-0"].ids[-1]
    run.says("baseline", "list-0", (a, b, EOS))
    run.says("nextn", "list-0", (a, last, EOS))
    run.scored("list-0", (a, last, EOS), {}, {1: b})
    analysis = run.analysis()
    (difference,) = analysis.verdict("nextn", "list-0").verdict.differences
    assert difference.gap == gap


def test_logprobs_after_penalties_are_not_compared_with_adjusted_scores(make_run: Any) -> None:
    """They are normalized, the others are not."""
    run = make_run({"list-0": Sampling(96, min_new_tokens=5)})
    ids = run.ids(TEXT)
    run.scored("list-0", ids)
    run.says("nextn", "list-0", TEXT, LOGPROBS, output_token_logprobs=[[-0.2, i, None] for i in ids])
    assert run.analysis().broken_rules("nextn", "list-0") == ()


def test_a_failed_request_is_named(make_run: Any) -> None:
    run = make_run({"list-0": Sampling(96), "copy-0": Sampling(96)})
    for prompt in run.prompts:
        run.says("baseline", prompt, TEXT)
    run.says("nextn", "list-0", TEXT)
    run.fails("nextn", "copy-0", "HTTP 500: out of memory")
    run.server("nextn", problem="1 requests failed")
    analysis = run.analysis()
    assert analysis.verdict("nextn", "list-0").verdict.kind is Kind.IDENTICAL
    verdict = analysis.verdict("nextn", "copy-0").verdict
    assert (verdict.kind, verdict.reason) == (Kind.INCONCLUSIVE, Reason.MISSING)
    assert verdict.detail == "nextn: HTTP 500: out of memory"


def test_an_answer_that_is_no_answer_is_missing(make_run: Any) -> None:
    run = make_run()
    ids = run.says("baseline", "list-0", TEXT)
    run.says("nextn", "list-0", ids, finish_reason={"type": "abort", "message": "gone"})
    verdict = run.analysis().verdict("nextn", "list-0").verdict
    assert (verdict.kind, verdict.reason) == (Kind.INCONCLUSIVE, Reason.MISSING)
    assert "not of the expected shape" in verdict.detail


def test_broken_rules_are_told_with_their_stage(make_run: Any) -> None:
    run = make_run()
    ids = run.says("nextn", "list-0", TEXT)
    run.says("nextn", "list-0", (*ids, 5), TOGETHER, finish_reason={"type": "stop", "matched": 5})
    run.says("nextn", "list-0", TEXT, HIT, completion_tokens=3)
    found = run.analysis().broken_rules("nextn", "list-0")
    assert {v.reason for v in found} == {Reason.STOP, Reason.LENGTH}
    assert any(v.message.startswith("together: 1 tokens follow the stop token") for v in found)
    assert any(v.message == f"hit: completion_tokens says 3, but there are {len(ids)} ids" for v in found)
    assert run.analysis().broken_rules("nextn", "list-0") == found


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, "none came"),
        ({"shift": 1}, "is of token"),
        ({"drop": 1}, "logprobs for"),
        ({"value": 0.0}, "are exactly 0"),
        ({"value": -0.2}, "the baseline's re-scoring says -1"),
    ],
)
def test_misaligned_logprobs_of_a_variant(make_run: Any, change: dict[str, Any], says: str) -> None:
    run = make_run()
    ids = run.ids(TEXT)
    run.scored("list-0", ids)
    more: dict[str, Any] = {}
    if change:
        shown = (*ids[change.get("shift", 0) :], *ids[: change.get("shift", 0)])
        rows = [[change.get("value", -1.0), i, None] for i in shown]
        more["output_token_logprobs"] = rows[change.get("drop", 0) :]
    run.says("nextn", "list-0", TEXT, LOGPROBS, **more)
    (found,) = run.analysis().broken_rules("nextn", "list-0")
    assert found.reason is Reason.LOGPROBS
    assert says in found.message


def test_good_logprobs_break_nothing(make_run: Any) -> None:
    run = make_run()
    ids = run.ids(TEXT)
    run.scored("list-0", ids)
    run.says("nextn", "list-0", TEXT, LOGPROBS, output_token_logprobs=[[-1.05, i, None] for i in ids])
    assert run.analysis().broken_rules("nextn", "list-0") == ()


# --------------------------------------------------------------------- end of sequence
def test_a_stop_token_the_config_does_not_name_is_learned_from_the_baseline(make_run: Any) -> None:
    """Some tokenizers add stop tokens of their own; what the baseline stops at ends an output."""
    run = make_run(eos_ids=(0,))
    run.says("baseline", "list-0", TEXT)
    assert run.analysis().eos_ids == (0, 1)
    assert run.analysis().broken_rules("baseline", "list-0") == ()


def test_a_stop_token_one_prompt_asked_for_is_no_eos_of_the_others(make_run: Any) -> None:
    run = make_run({"list-0": Sampling(96), "stop-0": Sampling(96, stop_token_ids=(5,))}, eos_ids=())
    ids = run.ids(TEXT)
    run.says("baseline", "list-0", TEXT)
    run.says("baseline", "stop-0", (*ids[:4], 5), finish_reason={"type": "stop", "matched": 5}, text="")
    assert run.analysis().eos_ids == (1,)


def test_eos_that_a_prompt_also_asked_for_stays_eos(make_run: Any) -> None:
    run = make_run({"list-0": Sampling(96), "stop-0": Sampling(96, stop_token_ids=(1,))}, eos_ids=())
    run.says("baseline", "list-0", TEXT)
    run.says("baseline", "stop-0", TEXT)
    assert run.analysis().eos_ids == (1,)
    assert run.analysis().broken_rules("baseline", "list-0") == ()


# ----------------------------------------------------------------------------- stages
def test_stages_are_judged_against_the_baselines_same_stage(make_run: Any) -> None:
    groups = {"list-0": "concurrent", "copy-0": "cache", "first-0": "order", "last-0": "order"}
    run = make_run({name: Sampling(96) for name in groups}, groups=groups)
    steps = [("list-0", TOGETHER, 0), ("list-0", LOGPROBS, 0), ("copy-0", HIT, 0), ("copy-0", HIT, 1)]
    steps += [("first-0", ORDER, 0), ("last-0", ORDER, 0), ("first-0", ORDER, 1)]
    analysis = run.analysis()
    assert sorted(analysis.staged()) == sorted((stage, prompt, turn) for prompt, stage, turn in steps)
    for server in ("baseline", "nextn"):
        for prompt in groups:
            run.says(server, prompt, TEXT)
        for prompt, stage, turn in steps:
            run.says(server, prompt, TEXT, stage, turn)
    run.says("nextn", "first-0", TEXT + " And more.", ORDER, 1)
    analysis = run.analysis()
    kinds = {(j.stage, j.prompt.id, j.turn): j.verdict.kind for j in analysis.verdicts()}
    assert len(kinds) == len(groups) + len(steps)
    assert kinds.pop((ORDER, "first-0", 1)) is Kind.INCONCLUSIVE  # not re-scored
    assert set(kinds.values()) == {Kind.IDENTICAL}
    assert analysis.within("nextn", "first-0", ORDER, 1).verdict.kind is Kind.INCONCLUSIVE
    assert analysis.within("nextn", "copy-0", HIT, 1).names == ("alone", "cached")
    assert analysis.within("nextn", "list-0", HIT).verdict.reason is Reason.MISSING


def test_accept_length_and_speed_by_category(make_run: Any) -> None:
    run = make_run(
        {"list-0": Sampling(96), "list-1": Sampling(96), "copy-0": Sampling(96), "cap-1": Sampling(1)},
        groups={"cap-1": "cap"},
    )
    n = len(run.ids(TEXT))
    for prompt, steps in (("list-0", 10), ("list-1", 5), ("copy-0", 3)):
        run.says("nextn", prompt, TEXT, spec_verify_ct=steps)
    run.says("nextn", "cap-1", run.ids(TEXT)[:1])
    analysis = run.analysis()
    found = analysis.acceptance("nextn")
    assert list(found) == ["copy", "list", "all"]
    assert found["list"].accept_length == pytest.approx(2 * n / 15)
    assert found["all"].verify_steps == 18
    assert found["copy"].drafted_length == pytest.approx((n - 1) / 3)
    speed = analysis.speed("nextn")["list"]
    assert (speed.tokens, speed.seconds) == (2 * n, 1.0)
    assert analysis.speed("baseline")["list"].tokens_per_s is None
    assert analysis.acceptance("nextn")["all"].silent == 0
