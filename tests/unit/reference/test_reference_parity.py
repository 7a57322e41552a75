"""The numpy engine against the model's own training code: hidden states, greedy ids, and the drafts' accept lengths."""

import numpy as np
import pytest

KINDS = (None, "nextn", "dflash")


def hidden_states(target, ids, piece=64):
    state = target.new_state(len(ids))
    rows = []
    for start in range(0, len(ids), piece):
        block = target.extend(ids[start : start + piece], state)
        target.commit(state, block, block.tokens)
        rows.append(block.hidden)
    return np.concatenate(rows)


@pytest.mark.parametrize("piece", [1, 8, 64])
def test_hidden_states_are_those_of_the_training_code(load_target, prompts, training_code, piece):
    names = [name for name in training_code if name.startswith("hidden_")]
    assert len(names) == 4
    for name in names:
        ids = prompts[int(name.removeprefix("hidden_"))]["ids"]
        ours = hidden_states(load_target("float32"), ids, piece)
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, training_code[name], atol=1e-4, rtol=0)


def test_bfloat16_hidden_states_are_close_but_rounded(load_target, prompts, training_code):
    ours = hidden_states(load_target("bfloat16"), prompts[6]["ids"])
    theirs = training_code["hidden_6"]
    assert 1e-3 < np.abs(ours - theirs).max() < 0.5
    assert not (ours.view(np.uint32) & 0xFFFF).any(), "a bfloat16 engine's hidden states have 16 bits"


def check(bench, kind, prompts, expected, training_code, indices):
    engine = bench(kind)
    runs = {i: engine.run(prompts[i]["ids"]) for i in indices}
    different = [i for i, g in runs.items() if g.output != expected[i]]
    assert different == []
    if kind is None:
        assert all(g.tally.steps == 0 for g in runs.values())
        return
    steps = np.array([g.tally.steps for g in runs.values()])
    gain = np.array([g.tally.correct + g.tally.steps for g in runs.values()])
    # The drafts are the same float32 maths too: nearly every block is accepted to the same length.
    assert abs(int(steps.sum()) - int(training_code[f"{kind}_steps"][indices].sum())) <= 0.02 * steps.sum()
    by_category: dict[str, list[int]] = {}
    for position, i in enumerate(indices):
        by_category.setdefault(prompts[i]["category"], []).append(position)
    for category, positions in by_category.items():
        theirs = [indices[p] for p in positions]
        ours_length = gain[positions].sum() / steps[positions].sum()
        their_length = training_code[f"{kind}_gain"][theirs].sum() / training_code[f"{kind}_steps"][theirs].sum()
        assert ours_length == pytest.approx(their_length, rel=0.15), category


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_ids_of_some_prompts(bench, prompts, expected, training_code, kind):
    check(bench, kind, prompts, expected, training_code, list(range(0, 96, 24)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_ids_of_all_prompts(bench, prompts, expected, training_code, kind):
    check(bench, kind, prompts, expected, training_code, list(range(96)))
