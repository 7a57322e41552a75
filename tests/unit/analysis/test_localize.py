"""Each rule of localization on made-up answers, and the hints of small recorded runs."""

from typing import Any

import pytest

from lossless.analysis import Judged, fault_kinds
from lossless.analysis.hint_cases import Case, Seen
from lossless.analysis.hint_rules import suspicions
from lossless.analysis.localize import SHOWN, hints, run_hints
from lossless.protocol import Answer, FinishReason, Sampling
from lossless.record.plan import HIT, LOGPROBS, ORDER, PLAIN, TOGETHER
from lossless.record.store import RecordedPrompt
from lossless.report.evidence import evidence
from lossless.report.failure import failure_text
from lossless.report.hint import run_lines
from lossless.verdict import Difference, Epsilon, Finish, Kind, Reason, Regret, TokenAt, Transcript, Verdict, given

OUTPUT = tuple(range(1000, 1040))


def case(
    name: str,
    *,
    at: int | None = None,
    stage: str = PLAIN,
    turn: int = 0,
    length: int = 40,
    cached: int = 0,
    sampling: Sampling | None = None,
    histogram: tuple[int, ...] = (3, 2, 2, 3),
    reason: Reason = Reason.GAP,
    detail: str = "a wrong token",
    said: tuple[int, ...] | None = None,
    hunk: tuple[int, int] = (1, 1),
    largest: float = 9.0,
    first_id: int = 5000,
) -> Case:
    """One answer: right, or wrong from position ``at`` on; ``hunk`` is (baseline's tokens, variant's tokens)."""
    prompt = RecordedPrompt(
        name, "x", "parity", tuple(range(first_id, first_id + length)), sampling or Sampling(64), ""
    )
    kind = Kind.IDENTICAL if at is None else Kind.DIVERGENT
    right = said if said is not None else OUTPUT if at is None else (*OUTPUT[:at], 7, *OUTPUT[at + 1 :])
    differences = ()
    if at is not None:
        a, b = hunk
        token = TokenAt(7, -9.0)
        differences = (Difference(at, at + a, at, at + b, token, token, TokenAt(8, 0.0), 9.0, 1.0, 2, 1, (), 5, False),)
    epsilon: Epsilon = given(0.1)
    verdict = Verdict(
        kind,
        None if at is None else reason,
        detail,
        len(OUTPUT),
        len(right),
        differences,
        regret=Regret(len(right), 1, largest, largest, at),
        epsilon=epsilon,
    )

    def said_by(ids: tuple[int, ...]) -> Transcript:
        return Transcript(ids, "", Finish("length"), len(ids), length, cached)

    answer = Answer(
        right, "", FinishReason("length"), length, len(right), cached,
        spec_verify_ct=sum(histogram) or None, accept_histogram=histogram,
    )  # fmt: skip
    return Case(Judged("nextn", prompt, stage, turn, verdict, said_by(OUTPUT), said_by(right)), answer)


def kinds(wrong: Case, *others: Case, **more: Any) -> list[str]:
    seen = Seen("nextn", (wrong, *others), **{"width": 4, "chunk": 256, **more})
    return [s.kind for s in suspicions(wrong, seen)]


GOOD = [case(f"good-{k}", first_id=9000 + 100 * k) for k in range(4)]


def test_a_good_answer_gives_no_reason_for_a_hint() -> None:
    assert kinds(GOOD[0], *GOOD[1:]) == []


def test_only_on_cache_hits() -> None:
    alone = case("a")
    hit = case("a", at=5, stage=HIT, turn=1, cached=32)
    assert kinds(hit, alone, *GOOD) == [fault_kinds.CACHE]
    assert fault_kinds.CACHE not in kinds(hit, case("a", at=5), *GOOD), "it goes wrong without a hit too"


def test_only_beside_others() -> None:
    assert kinds(case("a", at=9, stage=TOGETHER), case("a"), *GOOD) == [fault_kinds.BATCH]
    assert fault_kinds.BATCH not in kinds(case("a", at=9, stage=TOGETHER), case("a", at=9), *GOOD)


def test_a_hit_beside_others_is_blamed_on_what_all_have_in_common() -> None:
    cached = case("a", at=9, stage=TOGETHER, cached=16)
    assert kinds(cached, case("a"), *GOOD)[0] == fault_kinds.CACHE
    assert kinds(cached, case("a"), case("b", at=3, stage=TOGETHER), *GOOD)[0] == fault_kinds.BATCH


def test_only_after_other_requests() -> None:
    assert kinds(case("a", at=2, stage=ORDER), case("a"), *GOOD)[0] == fault_kinds.ORDER


def test_two_answers_to_one_prompt_mean_that_order_matters() -> None:
    wrong = case("a", at=6)
    assert kinds(wrong, case("a", stage=LOGPROBS), *GOOD)[0] == fault_kinds.ORDER
    assert fault_kinds.ORDER not in kinds(wrong, case("a", at=6, stage=LOGPROBS), *GOOD)


@pytest.mark.parametrize(
    ("sampling", "kind"),
    [
        (Sampling(64, frequency_penalty=1.0), fault_kinds.PENALTIES),
        (Sampling(64, presence_penalty=1.0), fault_kinds.PENALTIES),
        (Sampling(64, min_new_tokens=9), fault_kinds.PENALTIES),
        (Sampling(64, json_schema="{}"), fault_kinds.GRAMMAR),
    ],
)
def test_only_under_a_parameter(sampling: Sampling, kind: str) -> None:
    twin = case("plain")
    assert kinds(case("a", at=9, sampling=sampling), twin, *GOOD)[0] == kind
    wrong_twin = case("plain", at=9)
    assert kinds(case("a", at=9, sampling=sampling), wrong_twin, *GOOD)[0] != kind


def test_only_short_prompts() -> None:
    wrong = case("a", at=3, length=7)
    assert kinds(wrong, *GOOD)[0] == fault_kinds.SHORT
    assert kinds(wrong, case("b", at=3, length=90), *GOOD)[0] != fault_kinds.SHORT
    assert fault_kinds.SHORT not in kinds(case("a", at=3, length=10), *GOOD), "2K+1 = 9"


def test_only_prompts_longer_than_a_chunk() -> None:
    assert kinds(case("a", at=4, length=300), *GOOD)[0] == fault_kinds.CHUNK
    assert fault_kinds.CHUNK not in kinds(case("a", at=4, length=256), *GOOD)


def test_wrong_from_the_first_token() -> None:
    assert kinds(case("a", at=0), *GOOD)[0] == fault_kinds.ORDER


@pytest.mark.parametrize(
    ("length", "at", "named"), [(250, 8, True), (250, 5, False), (300, 9, False), (200, 75, False)]
)
def test_behind_a_multiple_of_256(length: int, at: int, named: bool) -> None:
    wrong = case("a", at=at, length=length, said=OUTPUT * 3)
    found = kinds(wrong, case("b", at=at + 1, length=90, said=OUTPUT), *GOOD, chunk=8192)
    assert (fault_kinds.PAGE in found) is named
    assert (found[0] == fault_kinds.RECURRENT) is named


def test_all_differences_behind_a_boundary_count_even_if_far() -> None:
    wrong = case("a", at=70, length=200, said=OUTPUT * 3)
    assert kinds(wrong, *GOOD, chunk=8192)[0] == fault_kinds.RECURRENT


def test_within_the_first_verified_block() -> None:
    assert kinds(case("a", at=1), *GOOD)[0] == fault_kinds.UNVERIFIED
    assert kinds(case("a", at=9), *GOOD)[0] == fault_kinds.KV_ROLLBACK


def test_a_first_draft_token_that_is_never_rejected() -> None:
    never = [case(f"g{k}", histogram=(0, 3, 2, 4)) for k in range(3)]
    assert kinds(case("a", at=12, histogram=(0, 4, 2, 6)), *never)[0] == fault_kinds.UNVERIFIED
    always = [case(f"g{k}", histogram=(0, 0, 0, 9)) for k in range(3)]
    found = kinds(case("a", at=12, histogram=(0, 0, 0, 9)), *always)
    assert fault_kinds.UNVERIFIED not in found, "nothing was rejected at all: the drafts may just be good"


def test_every_prompt_goes_wrong_at_once() -> None:
    wrong = [case(f"w{k}", at=1 + k % 2) for k in range(4)]
    assert kinds(wrong[1], *wrong)[0] == fault_kinds.UNVERIFIED


def test_what_was_never_rejected_cannot_be_rolled_back() -> None:
    found = kinds(case("a", at=9, histogram=(0, 0, 0, 9)), *GOOD)
    assert fault_kinds.KV_ROLLBACK not in found
    assert fault_kinds.RECURRENT not in found
    assert fault_kinds.OFF_BY_ONE in found


def test_what_was_never_accepted_moves_no_position() -> None:
    found = kinds(case("a", at=9, histogram=(9, 0, 0, 0)), *GOOD)
    assert fault_kinds.OFF_BY_ONE not in found
    assert fault_kinds.KV_ROLLBACK in found


def test_a_token_that_is_missing_or_doubled() -> None:
    assert kinds(case("a", at=9, hunk=(1, 0)), *GOOD)[0] == fault_kinds.OFF_BY_ONE
    doubled = (*OUTPUT[:9], OUTPUT[8], *OUTPUT[9:])
    assert kinds(case("a", at=9, hunk=(0, 1), said=doubled), *GOOD)[0] == fault_kinds.OFF_BY_ONE


def test_one_and_the_same_token_missing_is_a_mask() -> None:
    assert kinds(case("a", at=9, hunk=(1, 0)), *GOOD, mask_id=OUTPUT[9])[0] == fault_kinds.MASK
    assert kinds(case("a", at=9, hunk=(1, 0)), case("b", at=9, hunk=(1, 0)), *GOOD)[0] == fault_kinds.MASK
    assert kinds(case("a", at=9, hunk=(1, 0)), case("b", at=4, hunk=(1, 0)), *GOOD)[0] == fault_kinds.OFF_BY_ONE


def test_close_calls_may_be_rounding() -> None:
    assert kinds(case("a", at=20, largest=0.3), *GOOD)[0] == fault_kinds.NEAR_TIE
    assert kinds(case("a", at=20, largest=0.3), *GOOD, kv_dtype="fp8_e4m3")[0] == fault_kinds.QUANTIZED_KV
    assert fault_kinds.NEAR_TIE not in kinds(case("a", at=20, largest=0.5), *GOOD)


@pytest.mark.parametrize(
    ("reason", "detail", "sampling", "kind"),
    [
        (Reason.STOP, "3 tokens follow the stop token 1", None, fault_kinds.STOP),
        (Reason.STOP, "but min_new_tokens is 9", Sampling(64, min_new_tokens=9), fault_kinds.PENALTIES),
        (Reason.LENGTH, "completion_tokens says 9, but there are 8 ids", None, fault_kinds.COUNTING),
        (Reason.LENGTH, "the variant ends after 8 tokens", None, fault_kinds.STOP),
        (Reason.TEXT, "the text is not the detokenized ids", None, fault_kinds.STOP),
        (Reason.LOGPROBS, "the logprobs are all 0", None, fault_kinds.LOGPROBS),
    ],
)
def test_a_broken_rule_speaks_for_itself(reason: Reason, detail: str, sampling: Sampling | None, kind: str) -> None:
    assert kinds(case("a", at=9, reason=reason, detail=detail, sampling=sampling), *GOOD)[0] == kind


# ------------------------------------------------------------------------------------------------------ recorded runs
TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."
FLIPPED = TEXT.replace("three", "seven", 1)


def hit_run(make_run: Any) -> Any:
    """Three prompts; two are wrong when their prefix is cached, none otherwise."""
    run = make_run({f"list-{k}": Sampling(96) for k in range(3)}, groups={f"list-{k}": "cache" for k in range(3)})
    for k in range(3):
        for stage, turn in ((PLAIN, 0), (HIT, 0), (HIT, 1)):
            own = run.says("baseline", f"list-{k}", TEXT, stage, turn, cached_tokens=turn * 4)
            wrong = stage == HIT and turn == 1 and k < 2
            said = run.says("nextn", f"list-{k}", FLIPPED if wrong else TEXT, stage, turn, cached_tokens=turn * 4)
            if wrong:
                at = next(t for t, (x, y) in enumerate(zip(own, said, strict=False)) if x != y)
                run.scored(f"list-{k}", said, {at: 3.0}, {at: own[at]})
    return run


def test_the_run_is_summed_up_in_one_line(make_run: Any) -> None:
    analysis = hit_run(make_run).analysis()
    first = run_hints(analysis, "nextn")[0]
    assert first.kind == fault_kinds.CACHE
    assert first.evidence == "2 of 2 divergent answers are prefix-cache hits: list-0, list-1"
    assert first.reports[0] == "vllm #47194"
    assert run_lines(analysis, "nextn")[0].startswith("nextn: perhaps prefix-cache hit: ")


def test_the_failure_and_the_evidence_hold_the_hint(make_run: Any) -> None:
    analysis = hit_run(make_run).analysis()
    judged = analysis.verdict("nextn", "list-0", HIT, 1)
    text = failure_text(analysis, judged)
    assert "perhaps prefix-cache hit: goes wrong only when the prompt's start comes from the prefix cache" in text
    data = evidence(analysis)
    assert data["hints"]["nextn"][0]["kind"] == fault_kinds.CACHE
    by_key = {(v["prompt"], v["stage"], v["turn"]): v["hints"] for v in data["verdicts"]}
    assert by_key["list-0", HIT, 1][0]["kind"] == fault_kinds.CACHE
    assert by_key["list-0", PLAIN, 0] == []
    assert by_key["list-2", HIT, 1] == []


def test_a_passing_run_has_no_hints(make_run: Any) -> None:
    run = make_run()
    run.says("baseline", "list-0", TEXT)
    run.says("nextn", "list-0", TEXT)
    assert run_hints(run.analysis(), "nextn") == ()
    assert run_lines(run.analysis(), "nextn") == []


def test_what_keeps_a_run_from_being_judged_is_named(make_run: Any) -> None:
    run = make_run()
    run.says("baseline", "list-0", TEXT)
    run.says("nextn", "list-0", TEXT, spec_verify_ct=None)
    analysis = run.analysis()
    assert [h.kind for h in run_hints(analysis, "nextn")] == [fault_kinds.OFF]
    run = make_run(folder="other")
    run.says("baseline", "list-0", TEXT)
    run.server("nextn", complete=False, problem="it ended with exit status -9")
    run.fails("nextn", "list-0", "it ended with exit status -9")
    assert fault_kinds.DIES in [h.kind for h in run_hints(run.analysis(), "nextn")]


def test_wrong_logprobs_of_right_tokens_are_named(make_run: Any) -> None:
    run = make_run(groups={"list-0": "parity"})
    for stage in (PLAIN, TOGETHER, LOGPROBS):
        for server in ("baseline", "nextn"):
            ids = run.ids(TEXT)
            wrong = stage == LOGPROBS and server == "nextn"
            entries = [[-1.0, t, None] for t in (ids[:-1] if wrong else ids)]
            more = {"output_token_logprobs": entries} if stage == LOGPROBS else {}
            run.says(server, "list-0", TEXT, stage, **more)
    run.scored("list-0", run.ids(TEXT))
    found = run_hints(run.analysis(), "nextn")
    assert [h.kind for h in found] == [fault_kinds.LOGPROBS]
    assert "list-0" in found[0].evidence


def test_no_more_hints_than_one_reads(make_run: Any) -> None:
    analysis = hit_run(make_run).analysis()
    for judged in analysis.verdicts():
        assert len(hints(analysis, judged)) <= SHOWN
    assert all(h.kind in fault_kinds.REPORTS for h in run_hints(analysis, "nextn"))
