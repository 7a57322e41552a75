"""How small a corruption is noticed: our verdict and the plain rules on the same planted outputs."""

from collections.abc import Sequence
from itertools import pairwise
from math import comb
from random import Random
from typing import Any

from benchmarks.detection.noise import SET
from benchmarks.detection.plan import ALGORITHMS, CHUNK, Prompts
from benchmarks.detection.planting import Planted, many_wrong_tokens, one_wrong_token, running
from benchmarks.detection.recording import Workshop
from benchmarks.detection.rules import MATCH_RATE, RULES

from lossless.analysis import Analysis
from lossless.prompts import load_prompts
from lossless.record.store import RecordedPrompt
from lossless.suite.prepare import recorded_prompt

SIZES = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 24.0)  # nats, edges of the bins
SHARES = (0.02, 0.05, 0.1, 0.2)
SMALL_SHARES = (0.5, 1.0)  # of the positions that offer a wrong token under epsilon
SIZE_PROMPTS = ("common-sense", "chinese-writing", "list", "logic", "code", "raw-text", "chinese-poem", "mathematics")
LONG_PROMPTS = (
    *("raw-text", "chinese-poem", "chinese-writing", "common-sense", "many-turns", "code-class"),
    *(f"story-{n:02}" for n in range(10)),
    *("chinese-03", "chinese-04", "concurrent-story", "cache-story", "cache-chinese-story"),
)
SHARE_EDGES = (0.0, 0.04, 0.08, 0.16, 1.0)  # shares of an output's tokens
SMALL_EDGES = (0.0, 0.03, 0.06, 0.09, 0.12, 1.0)
SHORTEST = 20  # tokens; a share of fewer says little
SMALLEST = 0.01  # nats; less is a tie, and no error
SET_SIZE = SET


def measure_sensitivity(analysis: Analysis, workshop: Workshop, prompts: Prompts, *, short: bool) -> dict[str, Any]:
    """Planted outputs at the epsilon that ``analysis`` (honest servers) calibrated, and what each rule says."""
    random = Random(4)
    options = ("--dtype", workshop.dtype, *ALGORITHMS["NEXTN"], *CHUNK)
    eos, epsilon = analysis.eos_ids, analysis.epsilon
    own_rate = analysis.noise.regret_rate
    found: list[Planted] = []
    with running(prompts.tokenizer, eos, epsilon, own_rate, workshop.baseline_options(), options) as bench:
        few = _prompts(prompts, SIZE_PROMPTS[:3] if short else SIZE_PROMPTS, 24)
        found += one_wrong_token(bench, few, SIZES, 3 if short else 20, random)
        shares, small = (SHARES[1:3], SMALL_SHARES[2:]) if short else (SHARES, SMALL_SHARES)
        many = _prompts(prompts, LONG_PROMPTS[:2] if short else LONG_PROMPTS, 48)
        bounds = (2 * epsilon.value, 16.0)
        found += many_wrong_tokens(bench, "share", many[:8], bounds, shares, random)
        below = (SMALLEST, 0.8 * epsilon.value)
        small_ones = many_wrong_tokens(bench, "small", many, below, small, random)
        found += [p for p in small_ones if p.regret <= epsilon.limit]  # as the baseline re-scores them
        generated = bench.generated
    return {
        "epsilon": epsilon.value,
        "epsilon_from": epsilon.describe(),
        "outputs": len(found),
        "generated": generated,
        "panels": {
            "size": [_bin(group, low, high) for low, high, group in _by_size(found)],
            "share": [_bin(group, low, high) for low, high, group in _by_share(found, "share", SHARE_EDGES)],
            "small": [_bin(group, low, high) for low, high, group in _by_share(found, "small", SMALL_EDGES)],
        },
    }


def _prompts(prompts: Prompts, names: Sequence[str], cap: int) -> tuple[RecordedPrompt, ...]:
    shipped = {p.id: p for p in load_prompts("full").prompts}
    return tuple(recorded_prompt(shipped[name], prompts.tokenizer, cap) for name in names)


def _by_size(found: Sequence[Planted]) -> list[tuple[float, float, list[Planted]]]:
    """Bins by the re-scored regret, which is the baseline's word and not the variant's."""
    size = [p for p in found if p.panel == "size"]
    bins = [(low, high, [p for p in size if low <= p.regret < high]) for low, high in pairwise(SIZES)]
    return [b for b in bins if b[2]]


def _by_share(found: Sequence[Planted], panel: str, edges: Sequence[float]) -> list[tuple[float, float, list[Planted]]]:
    chosen = [p for p in found if p.panel == panel and p.tokens >= SHORTEST]
    bins = [(low, high, [p for p in chosen if low <= p.wrong / p.tokens < high]) for low, high in pairwise(edges)]
    return [b for b in bins if b[2]]


def _bin(group: Sequence[Planted], low: float, high: float) -> dict[str, Any]:
    """One point: how many outputs, their corruption, and the share each rule notices."""
    regrets = sorted(p.regret for p in group)
    reasons = [p.reason for p in group if p.flags["ours"]]
    share_equal = sum(p.equal for p in group) / len(group)
    detected = {name: sum(p.flags[name] for p in group) / len(group) for name in RULES}
    # A rule on the share of equal outputs looks at a run: here one whose every output is corrupted like this.
    detected["match rate over 60%"] = _fails(share_equal)
    return {
        "low": low,
        "high": high,
        "outputs": len(group),
        "regret": regrets[len(regrets) // 2],
        "largest_regret": regrets[-1],
        "wrong": sum(p.wrong for p in group) / len(group),
        "share": sum(p.wrong for p in group) / sum(p.tokens for p in group),
        "detected": detected,
        "reasons": {r: reasons.count(r) for r in dict.fromkeys(reasons) if r is not None},
    }


def _fails(equal: float) -> float:
    """Chance that at most int(0.6 n) of n outputs are equal, each with chance ``equal``."""
    n, most = SET_SIZE, int(MATCH_RATE * SET_SIZE)
    return sum(comb(n, k) * equal**k * (1 - equal) ** (n - k) for k in range(most + 1))
