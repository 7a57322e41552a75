"""What real servers answered, judged: the table that was worked out by hand from the same files.

See data/README.md. Nothing here is made up; where a number stands, it was computed from the recording.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_run import HONEST, LOSSY, PARAMETERS, answers, build, server

from lossless.analysis import Analysis, analyze, controls
from lossless.analysis.acceptance import acceptance
from lossless.analysis.load import scores, transcript
from lossless.record.plan import HIT, TOGETHER, adjusted, not_scorable
from lossless.verdict import (
    Adjustment,
    Evidence,
    Finish,
    Kind,
    OutputScores,
    Reason,
    Verdict,
    adjust,
    common_prefix,
    judge,
    measure,
    summarize,
)
from lossless.verdict.noise import DEFAULT_K

TIE2, TIE3, TURNED = "an exact 2-way tie", "an exact 3-way tie", "gap 0.0625 nats the other way round"
FLIPS = {
    "nextn": {"copy-0": (32, TIE3, True), "story-1": (26, TIE3, True), "logic-2": (4, TURNED, False)},
    "dflash": {
        "copy-0": (32, TIE3, True),
        "story-1": (26, TIE3, False),
        "logic-2": (4, TURNED, False),
        "copy-3": (32, TIE3, False),
        "copy-5": (76, TIE2, False),
        "story-0": (27, TIE3, False),
        "story-2": (75, TIE2, True),
    },
}
"""Variant: prompt: (position of the first difference, how close the two tokens are, whether it reconverges)."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder: Path = tmp_path_factory.mktemp("recorded")
    return analyze(build(folder))


def plain(run: Analysis) -> list[str]:
    return [p.id for p in run.prompts.values() if p.group == "parity"]


def of_part(run: Analysis, part: str) -> list[str]:
    return [p for p in run.prompts if p.startswith(f"{part}-")]


def test_the_noise_floor_and_epsilon(run: Analysis) -> None:
    floor, epsilon = run.noise, run.epsilon
    assert (floor.tokens, floor.missing, floor.regret_count, floor.max_regret) == (2364, 0, 4, 0.0625)
    assert floor.median_shift == pytest.approx(2.3e-6, rel=0.02)
    assert floor.p99_shift == pytest.approx(0.040, abs=5e-4)
    assert floor.max_shift == pytest.approx(0.061, abs=5e-4)
    assert floor.max_gap_shift == pytest.approx(0.25, abs=1e-5)
    assert floor.value == pytest.approx(3 / 16, abs=1e-5)
    assert (epsilon.value, epsilon.problem) == (DEFAULT_K * floor.value, None)


def test_by_logprob_and_regret_alone_the_floor_is_one_bfloat16_step(run: Analysis) -> None:
    """Without the shift of the top-2 gap: the floor worked out by hand, and every verdict is the same with it."""
    samples = controls.noise_samples(run.baseline, run.prompts.values(), run.scoring_answers)
    floor = measure(replace(s, decode_gap=None, rescored_gap=None) for s in samples)
    assert floor.value == 0.0625
    narrow = Analysis(run.store, epsilon=2 * floor.value)
    for name in run.manifest.variants:
        kinds = [(narrow.verdict(name, p).verdict.label, run.verdict(name, p).verdict.label) for p in plain(run)]
        assert all(a == b for a, b in kinds)


def test_all_controls_hold(run: Analysis) -> None:
    """On the lossy servers too: simulated acceptance does not show in what a server says of itself."""
    assert [c for c in run.controls if not c.ok] == []
    assert len(run.controls) == 3 + 2 * len(run.manifest.variants)


@pytest.mark.parametrize(("name", "identical"), [("nextn", 62), ("dflash", 58)])
def test_honest_speculation_differs_by_near_ties_only(run: Analysis, name: str, identical: int) -> None:
    verdicts = {p: run.verdict(name, p).verdict for p in plain(run)}
    assert len(verdicts) == 65
    assert Counter(v.kind for v in verdicts.values()) == {Kind.IDENTICAL: identical, Kind.NEAR_TIE: 65 - identical}
    found = {
        p: (v.differences[0].variant_start, v.detail.partition("(")[2].partition(", eps")[0], v.reconverged)
        for p, v in verdicts.items()
        if v.kind is Kind.NEAR_TIE
    }
    assert found == FLIPS[name]
    for prompt in FLIPS[name]:
        first = verdicts[prompt].differences[0]
        assert first.gap == 0, "the variant's token is the re-scored argmax in every one of these"
        assert first.variant_token is not None
        assert first.baseline_token is not None
        assert first.variant_token.token_id != first.baseline_token.token_id


@pytest.mark.parametrize(("name"), HONEST)
def test_strict_fails_exactly_the_forks(run: Analysis, name: str) -> None:
    forks = {prompt for prompt, (_, _, reconverges) in FLIPS[name].items() if not reconverges}
    assert {p for p in plain(run) if not run.verdict(name, p).verdict.passed(strict=True)} == forks
    assert all(run.verdict(name, p).verdict.passed() for p in plain(run))


@pytest.mark.parametrize("name", LOSSY)
def test_simulated_acceptance_diverges(run: Analysis, name: str) -> None:
    verdicts = {p: run.verdict(name, p).verdict for p in plain(run)}
    assert Counter(v.kind for v in verdicts.values()) == {Kind.DIVERGENT: 64, Kind.IDENTICAL: 1}
    assert {v.reason for v in verdicts.values()} == {Reason.GAP, None}
    gaps = [v.differences[0].gap for v in verdicts.values() if v.differences]
    assert min(g for g in gaps if g is not None) > 1.0, "two orders of magnitude above a near-tie"


@pytest.mark.parametrize(
    ("name", "tokens", "count", "largest"),
    [
        ("baseline", 2364, 4, 0.0625),
        ("nextn", 2334, 1, 0.0625),
        ("dflash", 2351, 4, 0.0625),
        (LOSSY[0], 6145, 6068, 23.5),
        (LOSSY[1], 6145, 6068, 23.5),
    ],
)
def test_regret_over_the_whole_set(name: str, tokens: int, count: int, largest: float) -> None:
    regrets = []
    for answer, scored in zip(answers(name, "plain"), answers(name, "score_by_base"), strict=True):
        found = scores(scored, answer.output_ids)
        assert found is not None
        regret = summarize(found)
        assert regret is not None, "every recorded position is sound"
        regrets.append(regret)
    assert sum(r.tokens for r in regrets) == tokens
    assert sum(r.count for r in regrets) == count
    assert max(r.largest for r in regrets) == pytest.approx(largest, abs=0.02 if largest > 1 else 1e-6)


@pytest.mark.parametrize(("name", "length"), [("nextn", 3.33), ("dflash", 5.97), (LOSSY[0], 3.0), (LOSSY[1], 3.0)])
def test_accept_length(run: Analysis, name: str, length: float) -> None:
    found = acceptance(run.servers[name], [run.prompts[p] for p in plain(run)])
    assert found.accept_length == pytest.approx(length, abs=0.01)
    assert found.silent == 0
    assert found.prompts == 64, "one answer is a single token, which needs no verify step"


def test_the_baseline_under_load_says_what_it_says_alone(run: Analysis) -> None:
    assert {run.within("baseline", p, TOGETHER).verdict.kind for p in plain(run)} == {Kind.IDENTICAL}


def test_a_cache_hit_flips_the_baseline_too_and_is_not_blamed_on_speculation(run: Analysis) -> None:
    """2 of 65 differ, both at a near-tie of the baseline's own logprobs."""
    within = {p: run.within("baseline", p, HIT, 1).verdict for p in plain(run)}
    differ = {p: v.differences[0].variant_start for p, v in within.items() if v.kind is not Kind.IDENTICAL}
    assert differ == {"copy-0": 32, "copy-5": 55}
    own = dict(zip(plain(run), answers("baseline", "lp"), strict=True))
    hit = dict(zip(plain(run), answers("baseline", "again"), strict=True))
    for prompt, at in differ.items():
        assert hit[prompt].cached_tokens > 0
        assert own[prompt].output_top is not None
        logprobs = {c.token_id: c.logprob for c in own[prompt].output_top[at]}
        first, second = logprobs[own[prompt].output_ids[at]], logprobs[hit[prompt].output_ids[at]]
        assert first is not None
        assert second is not None
        assert abs(first - second) <= 0.0625
    assert within["copy-0"].label == "near-tie (reconverged)"
    # The recording lacks a re-scoring of this one: it may not pass on the strength of its end alone.
    assert (within["copy-5"].kind, within["copy-5"].reason) == (Kind.INCONCLUSIVE, Reason.UNSCORED)


@pytest.mark.parametrize("name", HONEST)
def test_hits_with_speculation_are_near_ties(run: Analysis, name: str) -> None:
    within = {p: run.within(name, p, HIT, 1).verdict for p in plain(run)}
    differ = {p: (v.differences[0].variant_start, v.label) for p, v in within.items() if v.kind is not Kind.IDENTICAL}
    assert differ == {"copy-5": (76, "near-tie (forked)")}
    assert {run.within(name, p, TOGETHER).verdict.kind for p in plain(run)} == {Kind.IDENTICAL}


@pytest.mark.parametrize("name", ["baseline", *HONEST])
def test_asking_for_logprobs_changed_no_token(name: str) -> None:
    assert [a.output_ids for a in answers(name, "lp")] == [a.output_ids for a in answers(name, "plain")]


@pytest.mark.parametrize("name", ["baseline", *HONEST, *LOSSY])
def test_real_servers_keep_the_rules(run: Analysis, name: str) -> None:
    """Stop, count, text and logprob rules, Chinese text included. Only DFLASH with min_new_tokens breaks one."""
    broken = {p: run.broken_rules(name, p) for p in run.prompts}
    expected = set(of_part(run, "minnew")) if name == "dflash" else set()
    assert {p for p, found in broken.items() if found} == expected
    assert {v.reason for found in broken.values() for v in found} <= {Reason.STOP}


@pytest.mark.parametrize("name", HONEST)
def test_stop_strings_and_caps_are_kept(run: Analysis, name: str) -> None:
    chosen = of_part(run, "stopstr") + of_part(run, "cap")
    assert len(chosen) == 22
    assert {run.verdict(name, p).verdict.kind for p in chosen} == {Kind.IDENTICAL}
    assert Counter(a.finish.matched for a in answers(name, "stopstr")) == {"answer": 5, 1: 1}
    assert [len(a.output_ids) for a in answers(name, "cap")] == list(range(1, 17))


def compared(run: Analysis, part: str, name: str) -> list[Verdict]:
    """A variant's answers under parameters against the baseline's under the same: by tokens alone, since the recording
    holds no re-scoring of them."""
    pairs = zip(of_part(run, part), answers("baseline", part), answers(name, part), strict=True)
    return [
        judge(
            Evidence(
                transcript(ours), transcript(theirs), run.rules(run.prompts[p]), run.epsilon, detokenize=run.detokenize
            )
        )
        for p, ours, theirs in pairs
    ]


@pytest.mark.parametrize("part", ["minnew", "freq"])
@pytest.mark.parametrize("name", HONEST)
def test_adjusted_answers_without_a_re_scoring_never_pass(run: Analysis, name: str, part: str) -> None:
    for prompt, ours, theirs in zip(of_part(run, part), answers("baseline", part), answers(name, part), strict=True):
        verdict = run.verdict(name, prompt).verdict
        assert verdict.passed() == (ours.output_ids == theirs.output_ids)


def test_min_new_tokens_is_not_lossless_in_this_version(run: Analysis) -> None:
    """sglang #28179: the baseline stops where it may, NEXTN too late, DFLASH as if nothing were asked."""
    lengths = {n: [len(a.output_ids) for a in answers(n, "minnew")] for n in ("baseline", *HONEST)}
    assert lengths == {"baseline": [46, 42, 46], "nextn": [48, 48, 48], "dflash": [19, 18, 21]}
    nextn, dflash = compared(run, "minnew", "nextn"), compared(run, "minnew", "dflash")
    assert {(v.kind, v.reason) for v in nextn} == {(Kind.DIVERGENT, Reason.UNPROVEN_FORK)}
    assert {(v.kind, v.reason) for v in dflash} == {(Kind.DIVERGENT, Reason.STOP)}
    assert "min_new_tokens is 40" in dflash[0].detail


@pytest.mark.parametrize("name", HONEST)
def test_frequency_penalty_is_not_lossless_in_this_version(run: Analysis, name: str) -> None:
    """sglang PR #33643: 3 of 6 prompts differ."""
    verdicts = compared(run, "freq", name)
    assert Counter(v.kind for v in verdicts) == {Kind.IDENTICAL: 3, Kind.DIVERGENT: 3}


def penalized(index: int, *, late: bool) -> OutputScores:
    """The baseline's answer under frequency_penalty, as far as the raw scores of its plain answer reach (up to and
    with the first token that the penalty changed), adjusted."""
    plainly, said = answers("baseline", "plain")[index], answers("baseline", "freq")[index].output_ids
    raw = scores(answers("baseline", "score_by_base")[index], plainly.output_ids)
    assert raw is not None
    n = min(common_prefix(plainly.output_ids, said) + 1, len(said), len(raw.ids))
    logprobs = tuple(next(c.logprob for c in raw.top[t] if c.token_id == said[t]) for t in range(n))
    last = server("baseline")["prompts"][index]["ids"][-1]
    return adjust(OutputScores(said[:n], logprobs, raw.top[:n]), Adjustment(1.5, counted_late=last if late else None))


def test_the_baseline_counts_penalties_one_token_late() -> None:
    """Its scheduling overlaps: the last prompt token counts as if it were the first output. Counting exactly, one of
    its own choices would be a third of a nat off its argmax."""
    assert server("baseline")["server_info"]["disable_overlap_schedule"] is False
    late = [summarize(penalized(k, late=True)) for k in range(6)]
    assert sum(r.tokens for r in late if r is not None) == 117
    assert [r is not None and r.largest <= 0.0625 for r in late] == [True] * 6
    exact = summarize(penalized(4, late=False))
    assert exact is not None
    assert (exact.largest, exact.largest_at) == (pytest.approx(0.3125, abs=1e-3), 34)


def test_dflash_ignores_the_penalty_altogether() -> None:
    unpenalized = [a.output_ids for a in answers("dflash", "plain")[:6]]
    penalized = [a.output_ids for a in answers("dflash", "freq")]
    shared = [common_prefix(a, b) / min(len(a), len(b)) for a, b in zip(unpenalized, penalized, strict=True)]
    assert shared == [1.0] * 6, "the cap of 48 tokens is all that changes"


def test_raw_scores_would_have_hidden_the_ignored_penalty() -> None:
    """The unpenalized answer has no regret in the raw logits, and much of it once the penalty is applied to them."""
    ignored = answers("dflash", "plain")[2].output_ids
    raw = scores(answers("dflash", "score_by_base")[2], ignored)
    assert raw is not None
    plainly = summarize(raw)
    assert plainly is not None
    assert plainly.largest <= 0.0625
    assert adjusted(PARAMETERS["freq"])
    assert not not_scorable(PARAMETERS["freq"])
    last = server("baseline")["prompts"][2]["ids"][-1]
    regrets = [adjust(raw, Adjustment(1.5, counted_late=last)).regret(t) for t in range(len(ignored))]
    assert max(r for r in regrets if r is not None) > 1.0


@pytest.mark.parametrize("position", [0, 10, 18])
@pytest.mark.parametrize("name", HONEST)
def test_one_planted_token_in_a_real_answer_diverges(run: Analysis, name: str, position: int) -> None:
    """A real answer with one token replaced by a bad one, scored as such, is no near-tie though all else is equal."""
    answer = answers(name, "plain")[0]
    said = transcript(answer)
    ids = (*said.ids[:position], 4000, *said.ids[position + 1 :])
    real = scores(answers(name, "score_by_base")[0], said.ids)
    assert real is not None
    logprobs = (*real.logprobs[:position], -15.0, *real.logprobs[position + 1 :])
    rules = run.rules(run.prompts["arithmetic-0"])
    planted = type(said)(ids, said.text, Finish("stop", ids[-1]), len(ids))
    verdict = judge(Evidence(said, planted, rules, run.epsilon, type(real)(ids, logprobs, real.top)))
    assert verdict.kind is Kind.DIVERGENT
    assert verdict.differences[0].variant_start == position


def test_the_recording_holds_no_traces_of_where_it_was_made() -> None:
    for name in ("baseline", *HONEST, *LOSSY):
        assert server(name)["model_info"]["model_path"] == "/models/tiny/target"
        assert server(name)["server_info"]["host"] == "127.0.0.1"
