"""Benign numeric differences: another order of summation, and noise on the logits."""

import numpy as np
import pytest

from lossless.errors import UsageError
from lossless.reference import builtin_path
from lossless.reference.numerics import LogitNoise, reordered
from lossless.reference.options import parse_options
from lossless.reference.server import load_models
from lossless.reference.target import Target
from lossless.reference.weights import Weights

FOLDER = builtin_path() / "target"
IDS = list(range(100, 140))


@pytest.fixture(scope="module")
def stored() -> Weights:
    return Weights.load(FOLDER)


def logits(target: Target) -> np.ndarray:
    return target.logits(target.extend(IDS, target.new_state(64)).hidden)


def test_another_order_is_the_same_model_with_other_rounding(stored: Weights) -> None:
    plain = logits(Target.load(FOLDER, "float32", stored))
    other = logits(Target.load(FOLDER, "float32", reordered(stored, 256, 1)))
    assert (plain != other).mean() > 0.5
    np.testing.assert_allclose(plain, other, atol=1e-3)


@pytest.mark.parametrize("option", ["--speculative-num-steps=3", "--speculative-num-steps=1"])
def test_the_nextn_head_is_reordered_too(option: str) -> None:
    options = ["--speculative-algorithm", "NEXTN", option]
    drafts = []
    for order in ("0", "2"):
        models = load_models(parse_options([*options, "--summation-order", order]))
        state, head = models.target.new_state(64), models.drafter
        assert head is not None
        block = models.target.extend(IDS, state)
        models.target.commit(state, block, len(IDS))
        memory = head.new_state(64)
        head.feed(memory, block, len(IDS), [*IDS[1:], 200])
        drafts.append(head.propose(memory, 200, len(IDS)))
    assert drafts[0] == drafts[1]


@pytest.mark.parametrize("nats", [0.05, 0.3])
def test_noise_moves_a_gap_by_no_more_than_it_says(stored: Weights, nats: float) -> None:
    plain = logits(Target.load(FOLDER, "float32", stored))
    noisy = logits(Target.load(FOLDER, "float32", stored, LogitNoise(nats, seed=3)))
    shift = noisy - plain
    spread = shift.max(axis=1) - shift.min(axis=1)
    assert spread.max() <= nats + 1e-4
    assert spread.min() > 0.9 * nats


def test_noise_is_repeatable_and_depends_on_the_seed(stored: Weights) -> None:
    a, b, c = (logits(Target.load(FOLDER, "float32", stored, LogitNoise(0.1, seed))) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()


@pytest.mark.parametrize(
    "argv",
    [
        ["--summation-order", "-1"],
        [
            "--summation-order",
            "1",
            "--speculative-algorithm",
            "DFLASH",
            "--speculative-draft-model-path",
            "builtin:tiny",
        ],
        ["--logit-noise", "-0.1"],
        ["--logit-noise", "inf"],
        ["--logit-noise", "nan"],
    ],
)
def test_senseless_numbers_are_refused(argv: list[str]) -> None:
    with pytest.raises(UsageError, match=argv[0]):
        parse_options(argv)
