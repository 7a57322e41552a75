"""What a sequence leaves behind: any split of the tokens gives the same state, and a rejected token leaves none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossless.reference.logprobs import LogprobRequest
from lossless.reference.prefix_cache import BLOCK_TOKENS, PrefixCache
from lossless.reference.state import GDNState, KVCache, TargetState

LONG = 12  # a prompt of more than 64 tokens
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def text(prompts):
    return (prompts[12]["ids"] + prompts[24]["ids"] + prompts[84]["ids"])[:100]


def snapshot(state):
    arrays = [array.copy() for cache in state.kv for array in cache.read(0, cache.length)]
    return arrays + [array.copy() for layer in state.gdn for array in (layer.s, layer.conv)]


def run_pieces(target, ids, sizes):
    state = target.new_state(len(ids))
    at = 0
    for size in [*sizes, *[1] * len(ids)]:
        if at == len(ids):
            break
        block = target.extend(ids[at : at + size], state)
        target.commit(state, block, block.tokens)
        at += block.tokens
    return target.logits(block.hidden[-1:])[0], state


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_any_split_of_a_prompt_gives_the_same_logits(load_target, text, data):
    target = load_target("float32")
    sizes = data.draw(st.lists(st.integers(1, 64), min_size=3, max_size=40), label="piece sizes")
    logits, state = run_pieces(target, text, sizes)
    reference, reference_state = run_pieces(target, text, [64, 64])
    np.testing.assert_allclose(logits, reference, atol=TOLERANCE, rtol=0)
    for ours, theirs in zip(snapshot(state), snapshot(reference_state), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", [1, 4, 8])
def test_an_uncommitted_block_leaves_no_trace(load_target, text, dtype, width):
    target = load_target(dtype)
    _, state = run_pieces(target, text[:40], [40])
    before = snapshot(state)
    block = target.extend(text[40 : 40 + width], state)
    target.commit(state, block, 0)
    assert state.length == 40
    for ours, theirs in zip(snapshot(state), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kept", range(1, 9))
def test_a_partly_committed_block_is_as_if_the_rest_had_never_been(load_target, text, kept):
    target = load_target("float32")
    _, state = run_pieces(target, text[:40], [40])
    wrong = text[40 : 40 + kept] + [7, 4000, 7, 4000, 9, 9, 9, 9][kept:]
    block = target.extend(wrong, state)
    target.commit(state, block, kept)
    _, expected = run_pieces(target, text[: 40 + kept], [40, 1, 1, 1])
    assert state.length == expected.length == 40 + kept
    for ours, theirs in zip(snapshot(state), snapshot(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-4)


def test_bfloat16_keeps_16_bit_caches_and_a_32_bit_recurrent_state(load_target, text):
    _, state = run_pieces(load_target("bfloat16"), text, [64, 3])
    sixteen = [array for cache in state.kv for array in cache.read(0, cache.length)] + [g.conv for g in state.gdn]
    assert not any((np.ascontiguousarray(array).view(np.uint32) & 0xFFFF).any() for array in sixteen)
    assert all((layer.s.view(np.uint32) & 0xFFFF).any() for layer in state.gdn)


@pytest.mark.parametrize("size", [0, 65])
def test_a_block_has_bounds(load_target, size):
    target = load_target("float32")
    with pytest.raises(ValueError, match=f"1 to 64 tokens, got {size}"):
        target.extend([1] * size, target.new_state(1))


def test_a_cache_grows_beyond_its_first_capacity():
    cache = KVCache(1, 2, 2)
    for value in range(5):
        cache.put(np.full((1, 1, 2), value, np.float32), np.full((1, 1, 2), -value, np.float32))
        cache.length += 1
    k, v = cache.read(0, 5)
    assert k[0, :, 0].tolist() == [0, 1, 2, 3, 4]
    assert v[0, :, 1].tolist() == [0, -1, -2, -3, -4]


# -- prefix cache -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [None, "nextn", "dflash"])
def test_a_hit_answers_like_a_miss(bench, prompts, kind):
    engine = bench(kind, cached=True)
    ids = prompts[LONG]["ids"]
    miss, hit = engine.run(ids, 48), engine.run(ids, 48)
    assert (miss.cached, hit.cached) == (0, BLOCK_TOKENS)
    assert hit.output == miss.output
    assert hit.tally.histogram == miss.tally.histogram, "the draft's memory is restored too"
    for ours, theirs in zip(snapshot(hit.state), snapshot(miss.state), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("kind", [pytest.param(None, marks=pytest.mark.slow), "dflash"])
def test_generated_text_can_be_hit_at_256_tokens(bench, prompts, kind):
    engine = bench(kind, cached=True)
    first = engine.run(prompts[48]["ids"], 260, ignore_eos=True)
    ids = [*first.ids, *first.output]
    hit = engine.run(ids, 8, ignore_eos=True)
    assert hit.cached == 256
    assert hit.output == bench(kind).run(ids, 8, ignore_eos=True).output


def test_a_prompt_is_never_hit_to_its_end(bench, prompts):
    engine = bench(cached=True)
    ids = prompts[LONG]["ids"][:BLOCK_TOKENS]
    assert engine.run(ids, 2).cached == engine.run(ids, 2).cached == 0
    assert engine.run([*ids, 9], 2).cached == BLOCK_TOKENS


@pytest.mark.parametrize(("start", "cached"), [(-1, 64), (64, 64), (63, 0), (0, 0)])
def test_input_logprobs_cap_the_hit(bench, prompts, start, cached):
    engine = bench(cached=True)
    ids = prompts[LONG]["ids"]
    engine.run(ids, 1)
    g = engine.run(ids, 1, logprobs=LogprobRequest(start))
    assert g.cached == cached
    assert len(g.logprobs.input_token) == (len(ids) - start if start >= 0 else 0)


def small_state(tokens, value):
    cache = KVCache(1, tokens, 1)
    filled = np.full((1, tokens, 1), value, np.float32)
    cache.put(filled, filled)
    cache.length = tokens
    gdn = GDNState(np.full((1, 1, 1), value, np.float32), np.full((1, 1), value, np.float32))
    state = TargetState([cache, gdn])
    state.length = tokens
    return state


def insert(cache, ids, value):
    state = small_state(len(ids), value)
    cache.insert(ids, [layer.copy() for layer in state.gdn], np.zeros(1, np.float32), state, None)


def test_the_least_recently_used_leaf_is_evicted():
    cache = PrefixCache(max_blocks=2)
    a, b, c = ([value] * BLOCK_TOKENS for value in (1, 2, 3))
    insert(cache, a, 1)
    insert(cache, b, 2)
    assert cache.match(a, 64) is not None  # now b is the older one
    insert(cache, c, 3)
    assert len(cache) == 2
    assert cache.match(b, 64) is None
    assert cache.match(a, 64) is not None
    assert cache.match(c, 64) is not None


def test_a_prompt_longer_than_the_cache_keeps_its_beginning():
    cache = PrefixCache(max_blocks=2)
    ids = list(range(4 * BLOCK_TOKENS))
    for end in range(BLOCK_TOKENS, len(ids) + 1, BLOCK_TOKENS):
        insert(cache, ids[:end], 1)
    assert len(cache) == 2
    found = cache.match(ids, len(ids))
    assert found is not None
    assert len(found.path()) == 2


def test_namespaces_do_not_see_each_other_and_clear_forgets():
    cache = PrefixCache(max_blocks=4)
    ids = [1] * BLOCK_TOKENS
    insert(cache, ids, 1)
    assert cache.match(ids, 64, "other") is None
    cache.clear()
    assert len(cache) == 0
    assert cache.match(ids, 64) is None


def test_restored_states_are_copies():
    cache = PrefixCache(max_blocks=4)
    ids = [1] * BLOCK_TOKENS
    insert(cache, ids, 7)
    for _ in range(2):
        state = small_state(0, 0)
        assert cache.restore(cache.match(ids, 64), state, None) == state.length == BLOCK_TOKENS
        assert float(state.gdn[0].s[0, 0, 0]) == 7
        state.gdn[0].s += 1  # must not reach the cache
