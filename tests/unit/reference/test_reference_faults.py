"""Every planted fault does what it says, in the engine's own computation and not by editing answers afterwards
(except where the field bug was in the reporting)."""

import copy
from functools import partial

import pytest

from lossless.reference.answers import answer
from lossless.reference.faults import all_faults, make_fault
from lossless.reference.logprobs import LogprobRequest
from lossless.reference.stops import Finish

ARITHMETIC, COPY, STORY = 0, 12, 48
CHECKED: set[str] = set()


def checks(*names):
    CHECKED.update(names)
    return pytest.mark.parametrize("name", names) if len(names) > 1 else lambda function: function


@pytest.fixture
def ids(prompts):
    return {index: prompts[index]["ids"] for index in (ARITHMETIC, COPY, STORY)}


def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)


def regrets(bench, g):
    """Nats that each output token lies below the honest target's argmax, given what was put out before it."""
    scored = bench().run([*g.ids, *g.output], 0, logprobs=LogprobRequest(len(g.ids) - 1, top=1)).logprobs
    tops = [row[0][0] for row in scored.input_top[1:]]
    return [top - entry[0] for top, entry in zip(tops, scored.input_token[1:], strict=True)]


def test_every_fault_is_registered_with_a_kind_and_a_sentence():
    faults = all_faults()
    assert len({spec.name for spec in faults}) == len(faults) >= 35
    for spec in faults:
        assert spec.kind
        assert spec.doc.endswith(".")
        assert spec.name == spec.name.lower().replace("_", "-")
        assert type(make_fault(spec.name, 0)).__doc__


def test_every_fault_has_a_test():
    assert {spec.name for spec in all_faults()} - CHECKED == set()


# -- acceptance -------------------------------------------------------------------------------------------------------
@checks("accept-unverified")
def test_a_wrong_draft_token_is_put_out_and_kept_as_context(bench, ids, expected):
    g = bench("nextn", "accept-unverified:1").run(ids[ARITHMETIC])
    at = first_difference(g.output, expected[ARITHMETIC])
    assert at is not None
    assert max(regrets(bench, g)) > 1
    assert g.known == [*g.ids, *g.output][: len(g.known)], "the engine goes on from what it put out"


def test_the_rate_is_a_share_of_blocks_and_repeatable(bench, ids):
    fault = make_fault("accept-unverified:0.3", 7)
    g = bench("nextn").start(ids[STORY])
    struck = [step for step in range(1000) if fault.strikes(g, step)]
    assert 250 <= len(struck) <= 350
    assert struck == [step for step in range(1000) if make_fault("accept-unverified:0.3", 7).strikes(g, step)]
    assert struck != [step for step in range(1000) if make_fault("accept-unverified:0.3", 8).strikes(g, step)]


@checks("accept-one-too-many")
def test_the_first_rejected_draft_is_taken(bench, ids, expected):
    g = bench("nextn", "accept-one-too-many").run(ids[COPY])
    assert first_difference(g.output, expected[COPY]) is not None
    assert g.tally.histogram[0] == 0, "no block is left with nothing accepted"
    assert max(regrets(bench, g)) > 1


@checks("bonus-dropped", "bonus-doubled")
def test_the_bonus_token_is_lost_or_repeated(bench, ids, expected, name):
    g = bench("dflash", name).run(ids[ARITHMETIC])
    right = expected[ARITHMETIC]
    # The prefill puts out one token, the first block eight, all of them right for this prompt.
    assert g.output[:9] == ([*right[:8], right[9]] if name == "bonus-dropped" else right[:9])
    assert g.output[9] == (right[10] if name == "bonus-dropped" else right[8])


@checks("mask-token-dropped")
def test_a_real_mask_token_is_dropped(bench, ids, expected):
    victim = expected[ARITHMETIC][4]
    g = bench("dflash", f"mask-token-dropped:{victim}").run(ids[ARITHMETIC])
    assert g.output == [expected[ARITHMETIC][0], *(t for t in expected[ARITHMETIC][1:] if t != victim)]
    assert make_fault("mask-token-dropped", 0).rate == 5, "the tiny draft's mask token"


@checks("speculation-off")
def test_speculation_is_silently_off(bench, ids, expected):
    g = bench("nextn", "speculation-off").run(ids[ARITHMETIC])
    assert g.output == expected[ARITHMETIC]
    assert "spec_verify_ct" not in answer(g, final=True)["meta_info"]


@checks("random-draft")
def test_an_untrained_draft_gains_nothing(bench, ids, expected):
    g = bench("dflash", "random-draft").run(ids[ARITHMETIC])
    assert g.output == expected[ARITHMETIC]
    assert answer(g, final=True)["meta_info"]["spec_accept_length"] == pytest.approx(1.0, abs=0.1)


@checks("accept-length-halved")
def test_accept_length_falls_but_the_output_is_right(bench, honest, ids, expected):
    right, g = honest("dflash", ids[COPY]), bench("dflash", "accept-length-halved").run(ids[COPY])
    assert g.output == right.output == expected[COPY]
    assert len(g.tally.histogram) <= 5
    assert 1.2 * right.tally.steps < g.tally.steps


# -- states -----------------------------------------------------------------------------------------------------------
def committed_block(bench, fault, ids):
    """The state after one verified block, and what an honest engine has there."""
    pair = []
    for name in (fault, None):
        g = bench("nextn", name).start(ids)
        while not g.tally.steps or sum(g.tally.histogram[:3]) == 0:  # until a block was partly rejected
            g.step()
        pair.append(g)
    bad, good = pair
    assert bad.output == good.output
    return bad, good


def state_differences(bad, good):
    kv = bad.state.kv[0].length - good.state.kv[0].length
    layers = list(zip(bad.state.gdn, good.state.gdn, strict=True))
    recurrent = any(abs(a.s - b.s).max() > 1e-6 for a, b in layers)
    conv = any(abs(a.conv - b.conv).max() > 1e-6 for a, b in layers)
    return kv, recurrent, conv


@checks("kv-not-rolled-back", "recurrent-not-rolled-back", "conv-not-rolled-back")
def test_rejected_tokens_stay_in_one_kind_of_state(bench, ids, name):
    kv, recurrent, conv = state_differences(*committed_block(bench, name, ids[ARITHMETIC]))
    assert (kv > 0, recurrent, conv) == (name[:2] == "kv", name[:2] == "re", name[:2] == "co")


@pytest.mark.parametrize("name", ["kv-not-rolled-back", "recurrent-not-rolled-back", "conv-not-rolled-back"])
def test_a_missing_rollback_changes_the_answer(bench, ids, expected, name):
    g = bench("dflash", name).run(ids[COPY])
    assert first_difference(g.output, expected[COPY]) is not None


@checks("cache-lags-by-one")
def test_cache_and_position_lag(bench, ids, expected):
    engine = bench("dflash", "cache-lags-by-one")
    g = engine.start(ids[COPY])
    while not g.tally.correct:
        g.step()
    assert g.state.length == g.state.kv[0].length == len(g.known) - 1
    assert first_difference(engine.run(ids[COPY]).output, expected[COPY]) is not None


@checks("state-from-wrong-slot")
def test_the_state_is_one_slot_too_early(bench, ids, expected):
    g = bench("dflash", "state-from-wrong-slot").run(ids[ARITHMETIC])
    assert first_difference(g.output, expected[ARITHMETIC]) is not None


@checks("boundary-state-lost")
def test_the_state_is_lost_at_a_boundary(bench, ids, expected):
    g = bench("dflash", "boundary-state-lost:64").run(ids[STORY])
    boundary = 64 - len(g.ids)
    at = first_difference(g.output, expected[STORY])
    assert at is not None
    assert at >= boundary - 8
    assert bench("dflash", "boundary-state-lost").run(ids[STORY], 40).output == expected[STORY][:40]


@checks("short-prompt-state-lost")
def test_short_prompts_lose_their_state(bench, ids, expected):
    engine = bench("nextn", "short-prompt-state-lost:15")
    assert first_difference(engine.run(ids[ARITHMETIC]).output, expected[ARITHMETIC]) is not None
    assert engine.run(ids[COPY]).output == expected[COPY]


@checks("chunk-state-lost")
def test_the_state_is_lost_between_chunks(bench, ids, expected):
    bad = bench("nextn", "chunk-state-lost", chunk=32).run(ids[COPY])
    assert first_difference(bad.output, expected[COPY]) is not None
    assert bench("nextn", chunk=32).run(ids[COPY]).output == expected[COPY]
    assert bench("nextn", "chunk-state-lost", chunk=128).run(ids[COPY]).output == expected[COPY]


@checks("stale-state-on-hit")
def test_a_hit_resumes_from_the_wrong_state(bench, ids, expected):
    engine = bench("nextn", "stale-state-on-hit", cached=True)
    assert engine.run(ids[COPY]).output == expected[COPY]
    assert engine.run(ids[STORY], 24).output == expected[STORY][:24]
    hit = engine.run(ids[COPY])
    assert hit.cached == 64
    assert first_difference(hit.output, expected[COPY]) is not None


@checks("state-leaks")
def test_state_leaks_to_the_next_request(bench, ids, expected):
    engine = bench(None, "state-leaks")
    assert engine.run(ids[STORY], 60).output == expected[STORY][:60], "the first request finds a clean slot"
    assert engine.run(ids[ARITHMETIC], 30).finish is not None
    assert engine.run(ids[STORY], 60).output != expected[STORY][:60]


@checks("batch-mixed")
def test_requests_mix_only_when_several_are_in_flight(bench, ids, expected):
    engine = bench("nextn", "batch-mixed")
    assert engine.run(ids[COPY]).output == expected[COPY]
    together = [engine.start(ids[COPY]), engine.start(ids[STORY])]
    for g in together:
        g.peers = together
    while any(g.finish is None for g in together):
        for g in together:
            if g.finish is None:
                g.step()
    assert any(g.output != expected[i] for g, i in zip(together, (COPY, STORY), strict=True))


@checks("rope-off-by-one")
def test_positions_drift(bench, honest, ids):
    engine = bench("nextn", "rope-off-by-one")
    g = engine.start(ids[COPY])
    while sum(g.tally.histogram[1:]) < 2:
        g.step()
    assert engine.fault.rope_shift(g) == 2
    asked = LogprobRequest(-1)
    lists = [
        run(ids[COPY], 48, logprobs=asked).logprobs.output_token
        for run in (partial(honest, "nextn"), bench("nextn", "rope-off-by-one").run)
    ]
    assert max(abs(a[0] - b[0]) for a, b in zip(*lists, strict=False)) > 0.05


@checks("not-repeatable")
def test_every_second_answer_differs(bench, ids, expected):
    engine = bench(None, "not-repeatable:2")
    outputs = [engine.run(ids[COPY]).output for _ in range(3)]
    assert outputs[0] == outputs[2] == expected[COPY]
    assert outputs[1] != outputs[0]


# -- stopping and penalties -------------------------------------------------------------------------------------------
@checks("stop-token-in-block-ignored")
def test_a_stop_token_inside_a_run_is_missed(bench, ids, expected):
    g = bench("dflash", "stop-token-in-block-ignored").run(ids[ARITHMETIC])
    right = expected[ARITHMETIC]
    assert g.output[: len(right)] == right
    assert len(g.output) > len(right)


@checks("stop-string-in-block-ignored")
def test_a_stop_string_inside_a_run_is_missed(bench, honest, ids):
    right = honest("dflash", ids[ARITHMETIC], stop=("60",))
    assert right.finish == Finish("stop", len(right.output), "60")
    g = bench("dflash", "stop-string-in-block-ignored").run(ids[ARITHMETIC], stop=("60",))
    assert len(g.output) > len(right.output)
    assert g.output[: len(right.output)] == right.output


@checks("length-before-stop")
def test_length_is_checked_before_stop(bench, honest, ids, expected):
    right = expected[ARITHMETIC]
    cap = len(right) + 1
    assert honest("dflash", ids[ARITHMETIC], cap).finish == Finish("stop", len(right), 1)
    g = bench("dflash", "length-before-stop").run(ids[ARITHMETIC], cap)
    assert g.finish == Finish("length", cap)
    assert g.output[:-1] == right, "a token follows the stop token"


@checks("one-token-too-many")
def test_the_cap_is_overrun(bench, ids, expected):
    g = bench("nextn", "one-token-too-many").run(ids[ARITHMETIC], 7)
    assert g.output == expected[ARITHMETIC][:8]
    assert g.finish == Finish("length", 8)


@checks("min-new-tokens-ignored", "min-new-tokens-per-step")
def test_min_new_tokens_is_ignored_or_counted_in_steps(bench, honest, ids, expected, name):
    right = honest("nextn", ids[ARITHMETIC], 60, min_new_tokens=24)
    g = bench("nextn", name).run(ids[ARITHMETIC], 60, min_new_tokens=24)
    if name == "min-new-tokens-ignored":
        assert g.output == expected[ARITHMETIC]
    else:
        assert len(g.output) > len(right.output) >= 24


@checks("penalties-ignored", "penalties-per-step")
def test_penalties_are_ignored_or_counted_in_steps(bench, honest, ids, name):
    how = {"repetition_penalty": 1.3}
    right, g = honest("nextn", ids[STORY], 48, **how), bench("nextn", name).run(ids[STORY], 48, **how)
    plain = honest("nextn", ids[STORY], 48)
    assert right.output != plain.output
    if name == "penalties-ignored":
        assert g.output == plain.output
    else:
        assert g.output not in (right.output, plain.output)


# -- reporting --------------------------------------------------------------------------------------------------------
@checks("logprobs-shifted", "logprobs-zero", "logprobs-miss-last")
def test_logprobs_are_misreported(bench, honest, ids, name):
    asked = LogprobRequest(-1, top=2)
    good = answer(honest("nextn", ids[ARITHMETIC], logprobs=asked), final=True)["meta_info"]
    bad = answer(bench("nextn", name).run(ids[ARITHMETIC], logprobs=asked), final=True)["meta_info"]
    right, wrong = good["output_token_logprobs"], bad["output_token_logprobs"]
    assert right != wrong
    if name == "logprobs-shifted":
        assert wrong == [right[0], *right[:-1]]
        assert bad["output_top_logprobs"][1] == good["output_top_logprobs"][0]
    elif name == "logprobs-zero":
        assert [entry[0] for entry in wrong] == [0.0] * len(right)
    else:
        assert wrong == right[:-1]
        assert bad["output_token_logprobs_length"] == len(right) - 1


@checks("text-not-the-ids")
def test_the_text_lacks_a_token(bench, honest, ids):
    good = answer(honest("nextn", ids[ARITHMETIC]), final=True)
    bad = answer(bench("nextn", "text-not-the-ids").run(ids[ARITHMETIC]), final=True)
    assert bad["output_ids"] == good["output_ids"]
    assert good["text"].startswith(bad["text"])
    assert len(bad["text"]) < len(good["text"])


@checks("usage-past-end")
def test_usage_counts_past_the_end(bench, ids, expected):
    body = answer(bench("dflash", "usage-past-end").run(ids[ARITHMETIC]), final=True)
    assert body["output_ids"] == expected[ARITHMETIC]
    assert body["meta_info"]["completion_tokens"] > len(body["output_ids"])


# -- the server -------------------------------------------------------------------------------------------------------
@checks("error-at-request", "garbage-at-request", "hang-at-request")
def test_one_request_is_troubled(name):
    fault = make_fault(f"{name}:2", 0)
    trouble = name.removesuffix("-at-request")
    assert [fault.arriving(n) for n in (1, 2, 3)] == ["", trouble, ""]


@checks("trickle")
def test_every_answer_trickles():
    assert make_fault("trickle", 0).arriving(1) == "trickle"


@checks("die-at-request")
def test_the_process_dies(monkeypatch):
    ended = []
    monkeypatch.setattr("os._exit", ended.append)
    fault = make_fault("die-at-request:2", 0)
    assert fault.arriving(1) == ""
    assert not ended
    fault.arriving(2)
    assert ended == [1]


def test_an_honest_engines_hooks_change_nothing(honest, ids, expected):
    hooks = make_fault(None, 0)
    g = honest("nextn", ids[ARITHMETIC])
    body = answer(g, final=True)
    assert hooks.answer(g, copy.deepcopy(body)) == body
    assert hooks.arriving(1) == ""
    assert g.output == expected[ARITHMETIC]
