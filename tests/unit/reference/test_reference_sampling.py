"""Sampling parameters, penalties, stop rules and detokenizing, by SGLang's rules."""

from itertools import pairwise

import numpy as np
import pytest

from lossless.reference.logprobs import LogprobLists, LogprobRequest
from lossless.reference.sampling import NO_GRAMMAR, Penalties, SamplingParams, parse_sampling
from lossless.reference.stops import Finish, StopRules
from lossless.reference.text import TextStream

EOS = frozenset({0, 1})


# -- parameters -------------------------------------------------------------------------------------------------------
def test_defaults_are_sglangs():
    params = parse_sampling({"temperature": 0}, 4096)
    assert params == SamplingParams(max_new_tokens=128)
    assert not params.penalized


def test_null_means_default_and_a_single_stop_string_is_a_list_of_one():
    params = parse_sampling({"temperature": 0.0, "max_new_tokens": None, "stop": "END", "stop_token_ids": [7, None]}, 9)
    assert (params.max_new_tokens, params.stop, params.stop_token_ids) == (128, ("END",), frozenset({7}))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, "decodes greedily"),
        ({"temperature": 0.7}, "decodes greedily"),
        ({"temperature": -1}, "non-negative finite number"),
        ({"temperature": float("nan")}, "non-negative finite number"),
        ({"temperature": "0"}, "temperature must be a number"),
        ({"max_new_tokens": -1}, "max_new_tokens must be at least 0, got -1"),
        ({"max_new_tokens": 1.5}, "max_new_tokens must be an integer"),
        ({"max_new_tokens": True}, "max_new_tokens must be an integer"),
        ({"min_new_tokens": 5, "max_new_tokens": 4}, r"min_new_tokens must be in \[0, max_new_tokens\(4\)\], got 5"),
        ({"frequency_penalty": 2.5}, r"frequency_penalty must be in \[-2, 2\], got 2.5"),
        ({"presence_penalty": -3}, r"presence_penalty must be in \[-2, 2\]"),
        ({"repetition_penalty": 0}, r"repetition_penalty must be in \(0, 2\]"),
        ({"stop": [1]}, "stop must be a string or a list of strings"),
        ({"stop": ["x"] * 33}, "at most 32 stop strings are allowed, got 33"),
        ({"logit_bias": {"4096": 1.0}}, "logit_bias must has keys in"),
        ({"n": 2}, "n=2 is not supported"),
        ({"json_schema": "{}"}, "--grammar-backend none"),
        ({"regex": "a+"}, "--grammar-backend none"),
        ({"ebnf": "root ::= x"}, "--grammar-backend none"),
        ({"regex": "a", "ebnf": "b"}, "Only one of json_schema, regex, ebnf"),
        ({"temprature": 0}, "Unexpected sampling parameter 'temprature'"),
    ],
)
def test_bad_parameters_are_named(raw, message):
    given = raw if "temperature" in raw or not raw else {"temperature": 0, **raw}
    with pytest.raises(ValueError, match=message):
        parse_sampling(given, 4096)


def test_an_empty_grammar_means_none():
    assert parse_sampling({"temperature": 0, "json_schema": "", "regex": None}, 9) == SamplingParams()
    assert "json_schema" in NO_GRAMMAR


def test_top_k_1_is_greedy_at_any_temperature():
    assert parse_sampling({"temperature": 0.7, "top_k": 1}, 9) == SamplingParams()


# -- penalties --------------------------------------------------------------------------------------------------------
def test_without_penalties_logits_pass_untouched():
    logits = np.ones((2, 4), np.float32)
    assert Penalties(SamplingParams(), EOS, 4).adjust(logits, [1]) is logits


def test_frequency_and_presence_count_output_tokens():
    p = Penalties(SamplingParams(frequency_penalty=0.5, presence_penalty=0.25), EOS, 4)
    p.record([2, 2, 3], 3)
    row = p.adjust(np.zeros((1, 4), np.float32), [])[0]
    assert row.tolist() == [0, 0, -1.25, -0.75]


def test_repetition_divides_positive_and_multiplies_negative_logits():
    p = Penalties(SamplingParams(repetition_penalty=2.0), EOS, 4)
    p.record([1, 2], 2)
    row = p.adjust(np.array([[4.0, 4.0, -4.0, -4.0]], np.float32), [])[0]
    assert row.tolist() == [4, 2, -8, -4]


def test_min_new_tokens_masks_every_stop_token():
    p = Penalties(SamplingParams(min_new_tokens=2, stop_token_ids=frozenset({3})), EOS, 5)
    assert np.isneginf(p.adjust(np.zeros((1, 5), np.float32), [])[0]).tolist() == [True, True, False, True, False]
    p.record([4, 4], 2)
    assert not np.isneginf(p.adjust(np.zeros((1, 5), np.float32), [])).any()


def test_a_blocks_rows_are_judged_by_the_drafts_before_them():
    p = Penalties(SamplingParams(frequency_penalty=1.0, min_new_tokens=2), EOS, 5)
    p.record([2], 1)
    rows = p.adjust(np.zeros((3, 5), np.float32), [2, 3])
    assert rows[:, 2].tolist() == [-1, -2, -2]
    assert rows[:, 3].tolist() == [0, 0, -1]
    assert np.isneginf(rows[:, 1]).tolist() == [True, False, False]


def test_logit_bias_is_added():
    p = Penalties(SamplingParams(logit_bias=((2, 1.5),)), EOS, 4)
    assert p.adjust(np.zeros((1, 4), np.float32), [])[0].tolist() == [0, 0, 1.5, 0]


@pytest.mark.parametrize("kind", ["nextn", "dflash"])
@pytest.mark.parametrize(
    ("index", "options"),
    [
        (48, {"frequency_penalty": 1.5}),
        (48, {"presence_penalty": 1.0, "repetition_penalty": 1.3}),
        (0, {"min_new_tokens": 40}),
    ],
    ids=["frequency", "presence+repetition", "min_new_tokens"],
)
def test_speculation_is_lossless_under_penalties(honest, prompts, kind, index, options):
    ids = prompts[index]["ids"]
    plain, spec = honest(None, ids, 48, **options), honest(kind, ids, 48, **options)
    assert spec.output == plain.output
    assert spec.finish == plain.finish
    assert spec.output != honest(None, ids, 48).output, "the parameters change this prompt's answer"


# -- stop rules -------------------------------------------------------------------------------------------------------
@pytest.fixture
def rules(bench):
    def make(limit=100, **params):
        return StopRules(SamplingParams(**params), EOS, limit, bench().models.tokenizer)

    return make


def test_a_stop_token_anywhere_in_a_run_ends_it(rules):
    assert rules().check([5, 6, 1, 7, 8], 4) == Finish("stop", 3, 1)
    assert rules().check([5, 6, 7], 3) is None


def test_the_tokens_of_earlier_steps_are_not_looked_at_again(rules):
    assert rules().check([1, 6, 7], 2) is None


def test_ignore_eos_also_ignores_stop_token_ids(rules):
    assert rules(ignore_eos=True, stop_token_ids=frozenset({6})).check([6, 1], 2) is None
    assert rules(stop_token_ids=frozenset({6})).check([6, 1], 2) == Finish("stop", 1, 6)


def test_length_ends_at_the_cap_and_a_stop_beyond_the_cap_is_length_too(rules):
    assert rules(3).check([5, 6, 7, 8], 2) == Finish("length", 3)
    assert rules(3).check([5, 6, 7, 1], 2) == Finish("length", 3)
    assert rules(3).check([5, 6, 1, 8], 2) == Finish("stop", 3, 1)


def test_a_stop_string_wins_over_a_stop_token_and_ends_at_its_first_token(rules, bench):
    tokenizer = bench().models.tokenizer
    ids = tokenizer.encode("so. The answer is 7.")
    upto = next(n for n in range(1, len(ids) + 1) if "answer" in tokenizer.decode(ids[:n]))
    assert rules(stop=("answer",)).check([*ids, 1], len(ids) + 1) == Finish("stop", upto, "answer")


def test_a_stop_string_may_straddle_steps(rules, bench):
    ids = bench().models.tokenizer.encode("the end of it")
    found = [n for n in range(1, len(ids) + 1) if rules(stop=("end of",)).check(ids[:n], 1)]
    assert found
    assert "end of" in bench().models.tokenizer.decode(ids[: found[0]])


def test_finish_reasons_are_written_like_sglangs():
    assert Finish("stop", 3, 1).to_json() == {"type": "stop", "matched": 1}
    assert Finish("length", 0).to_json() == {"type": "length", "length": 0}
    assert Finish("abort", 2, message="Aborted").to_json() == {
        "type": "abort",
        "message": "Aborted",
        "status_code": None,
        "err_type": None,
    }


# -- text -------------------------------------------------------------------------------------------------------------
@pytest.fixture
def stream(bench):
    def make(prompt=(5, 6), *, skip=True, no_trim=False):
        return TextStream(bench().models.tokenizer, list(prompt), skip_special_tokens=skip, no_stop_trim=no_trim)

    return make


@pytest.mark.parametrize("text", ["Hello there, world.\n", "床前明月光，疑是地上霜。", "naïve café 🙂 done"])
def test_streamed_text_only_grows_and_never_shows_half_a_character(bench, stream, text):
    ids = bench().models.tokenizer.encode(text)
    growing = stream()
    seen = [growing.update(ids[:n]) for n in range(1, len(ids) + 1)]
    for before, after in pairwise(seen):
        assert after.startswith(before)
    assert not any("\ufffd" in part for part in seen)
    assert growing.finish(ids, None) == stream().finish(ids, None) == text


def test_stop_token_and_special_tokens_do_not_show(bench, stream):
    ids = [*bench().models.tokenizer.encode("done."), 1]
    assert stream().finish(ids, 1) == "done."
    assert stream(skip=False).finish(ids, 1) == "done."
    assert stream(skip=False, no_trim=True).finish(ids, 1) == "done.<|end|>"
    assert stream(skip=False).finish([*ids[:-1], 5], None) == "done.<|MASK|>"


def test_a_stop_string_is_cut_at_its_first_occurrence(bench, stream):
    ids = bench().models.tokenizer.encode("one stop two stop")
    assert stream().finish(ids, "stop") == "one "
    assert stream(no_trim=True).finish(ids, "stop") == "one stop"
    assert stream().finish(ids, "absent") == "one stop two stop"


# -- logprobs ---------------------------------------------------------------------------------------------------------
def test_top_logprobs_are_sorted_and_ties_list_the_lowest_id_first():
    kept = LogprobLists(LogprobRequest(-1, top=3, token_ids=(4, 0)))
    kept.add_output(2, np.array([1.0, 3.0, 3.0, 0.0, 3.0], np.float32))
    assert [token for _, token, _ in kept.output_top[0]] == [1, 2, 4]
    assert [token for _, token, _ in kept.output_ids[0]] == [4, 0]
    total = np.log(sum(np.exp([1.0, 3.0, 3.0, 0.0, 3.0])))
    assert kept.output_token[0] == [pytest.approx(3.0 - total, abs=1e-6), 2, None]


def test_a_masked_token_has_no_logprob():
    kept = LogprobLists(LogprobRequest(-1, top=2, token_ids=(1,)))
    kept.add_output(0, np.array([1.0, -np.inf], np.float32))
    assert kept.output_ids == [[[None, 1, None]]]
    assert kept.output_top[0][1] == [None, 1, None]


def test_the_first_input_entry_is_null():
    kept = LogprobLists(LogprobRequest(0, top=1))
    kept.add_input(9, None)
    assert (kept.input_token, kept.input_top) == ([[None, 9, None]], [None])
