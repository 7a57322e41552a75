"""The parts of the benchmark; each returns plain JSON values."""

import sys
import time
from dataclasses import replace
from typing import Any

from benchmarks.detection import epsilon as trial
from benchmarks.detection import faults, noise
from benchmarks.detection.plan import ALGORITHMS, CHUNK, FAULTS, NoiseCase, Prompts, noises
from benchmarks.detection.recording import Workshop, union
from benchmarks.detection.sensitivity import measure_sensitivity

from lossless.analysis import Analysis
from lossless.report.evidence import status

GPU_RUNS = ("honest", "deterministic")


def say(line: str) -> None:
    """Progress for whoever waits."""
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)


def run_faults(workshop: Workshop, prompts: Prompts, *, short: bool, only: frozenset[str]) -> list[dict[str, Any]]:
    """One row a fault and rate; ``only`` names faults (NAME or NAME:RATE), all if empty."""
    cases = [c for c in FAULTS if (c.short or not short) and (not only or {c.fault, c.argument} & only)]
    if short:
        cases = [c.shortened() for c in cases]
    core = replace(FAULTS[0], staged=True)
    base = workshop.record("base", union([prompts.fault(core), *(prompts.fault(c) for c in cases)]), {})
    say(f"baseline of {len(base.prompts)} prompts: {base.epsilon.describe()}")
    for algorithm, options in ALGORITHMS.items():
        honest = workshop.record(
            f"honest-{algorithm}",
            prompts.fault(FAULTS[0]),
            {faults.VARIANT: ("--dtype", workshop.dtype, *options, *CHUNK)},
            algorithms={faults.VARIANT: algorithm},
            seeded_from=base.store,
        )
        outcome = status(honest, list(honest.verdicts()))
        if outcome != "proven":
            raise SystemExit(f"the honest {algorithm} variant is not proven but {outcome}: nothing can be measured")
        faults.remember_acceptance(honest, algorithm)
    rows = []
    for case in cases:
        row = faults.row(case, faults.run_fault(case, workshop, prompts, base.store))
        rows.append(row)
        say(f"{case.argument}: {'detected' if row['detected'] else 'MISSED'}, {row['caught']} of {row['trials']}")
    return rows


def run_noise(workshop: Workshop, prompts: Prompts, *, short: bool) -> tuple[dict[str, Any], list[Analysis]]:
    """Every noise and the recorded GPU runs; also the runs, for what follows."""
    analyses = noise.record_noise(workshop, prompts, short=short)
    cases: tuple[NoiseCase, ...] = noises(0.0)
    pairs = [p for a in analyses for v in a.manifest.variants for p in noise.pairs_of(a, noise.kind_of(v, cases))]
    say(f"{len(pairs)} noisy pairs")
    data = noise.summary(pairs)
    first = analyses[0]
    data["epsilon"] = first.epsilon.value
    data["epsilon_from"] = first.epsilon.describe()
    gpu = []
    for name in GPU_RUNS[: 1 if short else None]:
        gpu += noise.pairs_of(trial.gpu_run(name, workshop.folder), f"recorded on an H200, {name}")
    data["recorded_gpu"] = noise.summary(gpu)
    everything = noise.summary([*pairs, *gpu])
    data["with_recorded_gpu"] = {k: everything[k] for k in ("pairs", "false_alarms", "upper_95", "rules")}
    alarms = [p for p in (*pairs, *gpu) if p.pair.ours.kind == "divergent"]
    data["alarms"] = [
        {"variant": p.variant, "kind": p.kind, "prompt": p.prompt, "detail": p.pair.ours.detail} for p in alarms
    ]
    return data, analyses


def run_sensitivity(workshop: Workshop, prompts: Prompts, first: Analysis, *, short: bool) -> dict[str, Any]:
    """Planted tokens at the epsilon that the noise runs' baseline calibrated."""
    return measure_sensitivity(first, workshop, prompts, short=short)


def run_epsilon(workshop: Workshop, prompts: Prompts, engine: list[Analysis], *, short: bool) -> dict[str, Any]:
    """k and floor against data, and bad floors."""
    honest, lossy = (trial.gpu_run(n, workshop.folder / "trial") for n in ("honest", "lossy"))
    options = ("--dtype", workshop.dtype, *ALGORITHMS["NEXTN"], *CHUNK)
    return {
        "gpu": trial.by_factor([honest, trial.gpu_run("deterministic", workshop.folder / "trial")], lossy),
        "gpu_floor": honest.epsilon.describe(),
        "engine": trial.by_factor(engine, None),
        "bad_floors": trial.bad_floors(trial.samples(honest)),
        "wrong_baselines": [] if short else trial.wrong_baselines(workshop, prompts, options),
    }
