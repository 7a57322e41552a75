"""Benign noise: honest variants whose arithmetic differs from the baseline's. Nothing of it may be called divergent."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.detection.plan import NoiseCase, Prompts, noises
from benchmarks.detection.recording import Workshop
from benchmarks.detection.rules import RULES, Pair, upper_95

from lossless.analysis import Analysis
from lossless.verdict import Kind

SET = 10  # pairs that make one run, for rules that look at a run
FLOOR_PROMPTS = 30
STAGES = {"plain": None, "together": "concurrent against alone", "hit": "cache hit against miss"}


@dataclass(frozen=True, slots=True)
class NoisyPair:
    """One pair, from which variant and of which kind of noise; ``origin`` says where it was computed."""

    variant: str
    kind: str
    prompt: str
    pair: Pair


def record_noise(workshop: Workshop, prompts: Prompts, *, short: bool) -> list[Analysis]:
    """One run a noise, on one baseline; the logits are noised up to the floor measured on that baseline."""
    chosen = prompts.noise(short=short)
    # The baseline answers some with logprobs too, for its noise floor; the variants need not.
    asked = [replace(p, group="parity") if p.group == "json" and n < FLOOR_PROMPTS else p for n, p in enumerate(chosen)]
    base = workshop.record("noise-base", tuple(asked), {})
    found = []
    for case in noises(base.noise.value):
        if short and not case.short:
            continue
        options = ("--dtype", workshop.dtype, *case.options)
        found.append(
            workshop.record(
                f"noise-{case.name}",
                chosen,
                {case.name: options},
                algorithms={case.name: case.algorithm},
                seeded_from=base.store,
                allow=case.allow,
            )
        )
    return found


def pairs_of(analysis: Analysis, kind: str) -> list[NoisyPair]:
    """Every pair of a run that was really compared: alone, at once, from the cache, on both servers; then the variant's
    own answers at once and from the cache against those alone."""
    found = []
    for variant in analysis.manifest.variants:
        judged = [j for j in analysis.verdicts() if j.variant == variant and not analysis.is_known(j)]
        judged += [
            analysis.within(variant, prompt, stage, turn)
            for stage, prompt, turn in analysis.staged()
            if stage in ("together", "hit")
        ]
        for j in judged:
            if j.stage == "logprobs" or j.left is None or j.right is None:
                continue
            label = STAGES.get(j.stage) or kind
            pair = Pair(j.left, j.right, analysis.scores(j.prompt, j.right), j.verdict)
            found.append(NoisyPair(variant, label, j.prompt.id, pair))
    return found


def kind_of(variant: str, cases: Iterable[NoiseCase]) -> str:
    return next((c.kind for c in cases if c.name == variant), "bfloat16 rounding")


def summary(pairs: Sequence[NoisyPair]) -> dict[str, Any]:
    """Counts by kind of noise, and the false alarms with their 95% upper bound."""
    alarms = sum(p.pair.ours.kind is Kind.DIVERGENT for p in pairs)
    return {
        "pairs": len(pairs),
        "tokens": sum(len(p.pair.variant.ids) for p in pairs),
        "false_alarms": alarms,
        "upper_95": upper_95(alarms, len(pairs)),
        "inconclusive": sum(p.pair.ours.kind is Kind.INCONCLUSIVE for p in pairs),
        "differing": sum(p.pair.baseline.ids != p.pair.variant.ids for p in pairs),
        "kinds": {kind: _counts([p for p in pairs if p.kind == kind]) for kind in dict.fromkeys(p.kind for p in pairs)},
        "rules": alarms_by_rule(pairs),
    }


def _counts(pairs: Sequence[NoisyPair]) -> dict[str, Any]:
    kinds = Counter(str(p.pair.ours.kind) for p in pairs)
    regrets = [p.pair.ours.regret.largest for p in pairs if p.pair.ours.regret is not None]
    return {"pairs": len(pairs), **dict(sorted(kinds.items())), "largest_regret": max(regrets, default=0.0)}


def alarms_by_rule(pairs: Sequence[NoisyPair]) -> dict[str, Any]:
    """False alarms of each rule on the same pairs: pair by pair, and in runs of ten pairs of one variant."""
    by_variant: dict[tuple[str, str], list[Pair]] = {}
    for p in pairs:
        by_variant.setdefault((p.variant, p.kind), []).append(p.pair)
    sets = [group[i : i + SET] for group in by_variant.values() for i in range(0, len(group) - SET + 1, SET)]
    return {
        name: {
            "pairs": sum(rule([p.pair]) for p in pairs),
            "of_pairs": len(pairs),
            "runs": sum(rule(s) for s in sets),
            "of_runs": len(sets),
        }
        for name, rule in RULES.items()
    }


__all__ = ["NoisyPair", "alarms_by_rule", "kind_of", "pairs_of", "record_noise", "summary"]
