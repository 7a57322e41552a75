"""Epsilon on trial: k and the floor against recorded GPU runs and the embedded engine; and floors bad on purpose."""

import math
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.detection.plan import FAULTS, Prompts
from benchmarks.detection.recording import Workshop

from lossless.analysis import Analysis, analyze
from lossless.analysis.controls import noise_samples
from lossless.record.plan import PLAIN
from lossless.record.store import RunStore
from lossless.reference.builtin import builtin_path
from lossless.report.evidence import status
from lossless.verdict import Kind, NoiseSample, calibrate, measure

PACKED = Path(__file__).parents[2] / "tests" / "data" / "gpu-runs"
FACTORS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)


def gpu_run(name: str, folder: Path) -> Analysis:
    """A packed run of real SGLang on a GPU: ``honest``, ``deterministic`` or ``lossy``."""
    target = folder / f"gpu-{name}"
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(PACKED / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    (target / "tokenizer.json").write_bytes((builtin_path() / "target" / "tokenizer.json").read_bytes())
    return analyze(RunStore.open(target))


def samples(analysis: Analysis) -> list[NoiseSample]:
    """The positions the floor is made of."""
    return noise_samples(analysis.baseline, analysis.prompts.values(), analysis.scoring_answers)


def outputs(analysis: Analysis) -> Iterator[tuple[bool, float]]:
    """(differs, largest regret in nats) of every plain pair that was re-scored, known issues of the version aside."""
    for j in analysis.verdicts():
        v = j.verdict
        if j.stage != PLAIN or v.kind is Kind.INCONCLUSIVE or analysis.is_known(j) or j.right is None:
            continue
        scored = analysis.scores(j.prompt, j.right)
        regrets = [] if scored is None else [r for t in range(len(scored.ids)) if (r := scored.regret(t)) is not None]
        yield bool(v.differences), max(regrets, default=0.0)


def by_factor(honest: list[Analysis], lossy: Analysis | None) -> list[dict[str, Any]]:
    """For each k: false alarms among honest pairs that differ, and corrupted ones that would pass."""
    differing = [(a, [regret for differs, regret in outputs(a) if differs]) for a in honest]
    wrong = [] if lossy is None else [regret for differs, regret in outputs(lossy) if differs]
    rows = []
    for k in FACTORS:
        row: dict[str, Any] = {
            "k": k,
            "epsilon": [round(calibrate(a.noise, k=k).value, 4) for a in honest],
            "false_alarms": sum(r > calibrate(a.noise, k=k).limit for a, regrets in differing for r in regrets),
            "of_differing": sum(len(regrets) for _, regrets in differing),
        }
        if lossy is not None:
            limit = calibrate(lossy.noise, k=k).limit
            row |= {"lossy_within_epsilon": sum(r <= limit for r in wrong), "of_lossy": len(wrong)}
        rows.append(row)
    return rows


def bad_floors(real: list[NoiseSample]) -> list[dict[str, Any]]:
    """What a bound becomes when the floor's evidence is bad: freak positions, too few tokens."""
    freak = NoiseSample(-0.1, -5.1, 5.0)
    cases = {
        "as measured": real,
        "one outlier of 5 nats": [*real, freak],
        "two outliers of 5 nats": [*real, freak, freak],
        "three outliers of 5 nats": [*real, freak, freak, freak],
        "150 tokens": real[:150],
        "no tokens": [],
    }
    rows = []
    for name, chosen in cases.items():
        epsilon = calibrate(measure(chosen))
        value = None if math.isnan(epsilon.value) else epsilon.value
        rows.append({"case": name, "tokens": len(chosen), "epsilon": value, "problem": epsilon.problem})
    return rows


def wrong_baselines(workshop: Workshop, prompts: Prompts, variant: tuple[str, ...]) -> list[dict[str, Any]]:
    """Whole runs on a baseline that is itself wrong: its decode loses state, or its logits jump by nats."""
    chosen = prompts.fault(replace(FAULTS[0], staged=True))
    baselines = {
        "baseline loses its recurrent state every 16 tokens": ("--fault", "boundary-state-lost:16"),
        "baseline's logits jump by up to 4 nats": ("--logit-noise", "4"),
    }
    rows = []
    for number, (name, options) in enumerate(baselines.items()):
        shop = replace(workshop, extra=options)
        analysis = shop.record(
            f"wrong-baseline-{number}", chosen, {"variant": variant}, algorithms={"variant": "NEXTN"}
        )
        judged = list(analysis.verdicts())
        differing = [j for j in judged if j.verdict.differences]
        rows.append(
            {
                "case": name,
                "tokens": analysis.noise.tokens,
                "epsilon": analysis.epsilon.value,
                "problem": analysis.epsilon.problem,
                "outcome": status(analysis, judged),
                "near_ties": sum(j.verdict.kind is Kind.NEAR_TIE for j in judged),
                "labels": sorted({j.verdict.label for j in differing}),
            }
        )
    return rows
