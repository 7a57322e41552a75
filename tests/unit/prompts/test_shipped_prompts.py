"""The shipped prompt sets hold what the ways speculation fails ask for, whatever the tokenizer."""

import re
from dataclasses import replace
from importlib import resources

import pytest

from lossless.errors import UsageError
from lossless.prompts import GROUPS, SUBSETS, Prompt, PromptSet, Tokenizer, load_prompts

BLOCK = 8  # K: tokens verified at once by the shipped drafts
SEED_CATEGORIES = {
    "common-sense",
    "mathematics",
    "chinese-writing",
    "list",
    "logic",
    "summary",
    "chinese-knowledge",
    "code",
}
HAN = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_folder(str(resources.files("lossless.reference") / "tiny" / "target"))


@pytest.fixture(scope="module")
def standard() -> PromptSet:
    return load_prompts("standard")


def words(prompt: Prompt) -> str:
    if prompt.messages is not None:
        return "\n".join(message.content for message in prompt.messages)
    return prompt.text or ""


@pytest.mark.parametrize("name", SUBSETS)
def test_every_prompt_can_be_sent(name: str, tokenizer: Tokenizer) -> None:
    prompts = load_prompts(name).prompts
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    for prompt in prompts:
        ids = tokenizer.encode(prompt)
        assert 1 <= len(ids) <= 1500
        assert tokenizer.sampling(prompt).max_new_tokens >= 1


def test_sets_grow() -> None:
    quick, standard, full = ([p.id for p in load_prompts(name).prompts] for name in SUBSETS)
    assert 8 <= len(quick) <= 10
    assert len(standard) >= 40
    assert set(quick) < set(standard) < set(full)


def test_quick_holds_the_seed_categories() -> None:
    assert {prompt.category for prompt in load_prompts("quick").prompts} >= SEED_CATEGORIES


def test_standard_covers_every_group_but_stress_in_both_languages(standard: PromptSet) -> None:
    assert {prompt.group for prompt in standard.prompts} == set(GROUPS) - {"stress"}
    chinese = [prompt for prompt in standard.prompts if HAN.search(words(prompt))]
    assert len({words(prompt) for prompt in chinese}) >= 10
    assert len({words(prompt) for prompt in standard.prompts if prompt not in chinese}) >= 40


def test_full_has_every_group() -> None:
    assert {prompt.group for prompt in load_prompts("full").prompts} == set(GROUPS)


@pytest.mark.parametrize("name", ["long", "stress"])
def test_a_set_of_its_own_is_quick_and_its_group(name: str) -> None:
    prompts = load_prompts(name).prompts
    source = load_prompts("standard" if name == "long" else "full")
    own = [prompt.id for prompt in source.prompts if prompt.group == name]
    assert [prompt.id for prompt in prompts] == [*(p.id for p in load_prompts("quick").prompts), *own]
    assert len(own) >= 4


def test_stress_prompts_run_until_they_are_stopped() -> None:
    stress = load_prompts("stress").in_group("stress")
    assert all(prompt.sampling.ignore_eos and prompt.sampling.max_new_tokens >= 32 for prompt in stress)


def test_short_prompts_have_every_length_up_to_two_blocks_and_one(standard: PromptSet, tokenizer: Tokenizer) -> None:
    lengths = [len(tokenizer.encode(prompt)) for prompt in standard.in_group("short")]
    assert lengths == list(range(1, 2 * BLOCK + 2))
    assert all(prompt.sampling.max_new_tokens > BLOCK for prompt in standard.in_group("short"))


def test_caps_run_from_one_to_two_blocks_and_one(standard: PromptSet) -> None:
    caps = {prompt.id: prompt.sampling.max_new_tokens for prompt in standard.in_group("cap")}
    assert caps == {f"cap-{cap:02d}": cap for cap in range(1, 2 * BLOCK + 2)}


def test_stop_group_has_every_kind_of_end(standard: PromptSet, tokenizer: Tokenizer) -> None:
    stops = standard.in_group("stop")
    assert any(prompt.sampling.stop for prompt in stops)
    assert any(prompt.sampling.no_stop_trim for prompt in stops)
    assert any(not prompt.sampling.skip_special_tokens for prompt in stops)
    assert any(prompt.sampling.ignore_eos for prompt in stops)
    assert any(tokenizer.sampling(prompt).stop_token_ids for prompt in stops)


def test_cached_prompts_share_a_long_prefix(standard: PromptSet, tokenizer: Tokenizer) -> None:
    ids = [tokenizer.encode(prompt) for prompt in standard.in_group("cache") if not HAN.search(words(prompt))]
    shared = next(i for i, column in enumerate(zip(*ids, strict=False)) if len(set(column)) > 1)
    assert len(ids) >= 3
    assert shared > 128


def test_at_least_eight_run_together(standard: PromptSet) -> None:
    assert len(standard.in_group("concurrent")) >= 8


@pytest.mark.parametrize("boundary", [256, 512])
def test_outputs_cross_page_and_chunk_boundaries(boundary: int, standard: PromptSet, tokenizer: Tokenizer) -> None:
    long = [p for p in standard.in_group("long") if p.sampling.ignore_eos]  # these reach their cap
    lengths = [(len(tokenizer.encode(prompt)), prompt.sampling.max_new_tokens) for prompt in long]
    assert any(prompt < boundary < prompt + output for prompt, output in lengths)
    assert any(prompt > boundary for prompt, _ in lengths)


def test_exact_lengths_hold_whatever_the_text(standard: PromptSet, tokenizer: Tokenizer) -> None:
    exact = [prompt for prompt in standard.prompts if prompt.exact_tokens is not None]
    assert exact
    assert all(len(tokenizer.encode(prompt)) == prompt.exact_tokens for prompt in exact)
    one_letter = [replace(prompt, text="a") for prompt in exact if prompt.text is not None]
    assert all(len(tokenizer.encode(prompt)) == prompt.exact_tokens for prompt in one_letter)


def test_unicode_group_holds_the_mask_token_and_wide_characters(standard: PromptSet, tokenizer: Tokenizer) -> None:
    group = standard.in_group("unicode")
    mask = tokenizer.encode_text("<|MASK|>")
    assert len(mask) == 1
    assert any(mask[0] in tokenizer.encode(prompt) for prompt in group)
    assert any(len(character.encode()) == 4 for prompt in group for character in words(prompt))


def test_penalties_come_with_their_plain_prompt(standard: PromptSet) -> None:
    params = {prompt.id: prompt for prompt in standard.in_group("params")}
    changed = [prompt for prompt in params.values() if prompt.same_as is not None]
    keys = {"min_new_tokens", "frequency_penalty", "presence_penalty", "repetition_penalty"}
    assert {key for prompt in changed for key in prompt.sampling.payload()} >= keys
    for prompt in changed:
        plain = params[prompt.same_as or ""]
        assert prompt.messages == plain.messages
        assert not keys & plain.sampling.payload().keys()


def test_the_first_prompt_comes_again_at_the_end(standard: PromptSet) -> None:
    order = standard.in_group("order")
    assert standard.prompts[-len(order) :] == order
    first = standard.prompts[0]
    assert order[0].same_as == first.id
    assert (order[0].messages, order[0].sampling) == (first.messages, first.sampling)


def test_only_full_asks_for_a_grammar(standard: PromptSet) -> None:
    assert not [prompt for prompt in standard.prompts if prompt.sampling.json_schema]
    assert [prompt for prompt in load_prompts("full").prompts if prompt.sampling.json_schema]


def test_shipped_prompts_say_which_sets_hold_them() -> None:
    ids = {name: {prompt.id for prompt in load_prompts(name).prompts} for name in SUBSETS}
    for prompt in load_prompts("full").prompts:
        assert prompt.subsets == tuple(name for name in SUBSETS if prompt.id in ids[name])


class TestDigest:
    def test_is_the_same_when_loaded_again(self, standard: PromptSet) -> None:
        assert load_prompts("standard").digest == standard.digest
        assert re.fullmatch("[0-9a-f]{64}", standard.digest)

    def test_depends_on_content_and_order_but_not_on_the_name(self, standard: PromptSet) -> None:
        first, *rest = standard.prompts
        longer = replace(first, sampling=replace(first.sampling, max_new_tokens=first.sampling.max_new_tokens + 1))
        assert PromptSet("other", standard.prompts).digest == standard.digest
        assert PromptSet("standard", (longer, *rest)).digest != standard.digest
        swapped = (standard.prompts[1], standard.prompts[0], *standard.prompts[2:])
        assert PromptSet("standard", swapped).digest != standard.digest

    def test_of_one_prompt_ignores_the_sets_that_hold_it(self, standard: PromptSet) -> None:
        prompt = standard.prompts[0]
        assert replace(prompt, subsets=()).digest == prompt.digest
        assert replace(prompt, thinking=True).digest != prompt.digest


class TestSelect:
    def test_keeps_order_and_what_is_repeated(self, standard: PromptSet) -> None:
        chosen = standard.select(["order-first-again", "short-01"])
        assert [prompt.id for prompt in chosen.prompts] == ["common-sense", "short-01", "order-first-again"]

    def test_names_the_prompts_there_are(self, standard: PromptSet) -> None:
        with pytest.raises(UsageError, match=r"no prompt 'shorts'.*short-01"):
            standard.select(["shorts"])
