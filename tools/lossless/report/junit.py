"""Properties for JUnit XML: what a test report shows beside passed and failed.

Every value is text. Names begin with ``lossless_``; lengths are in tokens, logprobs in nats.
"""

import math
from collections.abc import Iterator
from typing import Any

from lossless.analysis import Analysis, Judged

Property = tuple[str, str]


def verdict_properties(analysis: Analysis, judged: Judged) -> Iterator[Property]:
    """One verdict's numbers; what is not known is left out."""
    v = judged.verdict
    first = v.differences[0] if v.differences else None
    answer = analysis.servers[judged.variant].answers.get((judged.stage, judged.prompt.id, judged.turn))
    steps = answer.spec_verify_ct if answer is not None else None
    values: dict[str, object] = {
        "verdict": v.label,
        "reason": v.reason,
        "position": None if first is None else first.variant_start,
        "gap_nats": None if first is None else first.gap,
        "regret_max_nats": None if v.regret is None else v.regret.largest,
        "regret_sum_nats": None if v.regret is None else v.regret.total,
        "epsilon_nats": None if v.epsilon is None or v.epsilon.problem else v.epsilon.value,
        "tokens": v.variant_tokens,
        "accept_length": answer.completion_tokens / steps if answer is not None and steps else None,
    }
    yield from _properties(values)


def place_properties(analysis: Analysis, *, prompt: str | None, server: str | None, stage: str) -> Iterator[Property]:
    """What a test is about."""
    known = analysis.prompts.get(prompt or "")
    values: dict[str, object] = {
        "variant": server,
        "prompt": prompt,
        "category": None if known is None else known.category,
        "stage": stage if prompt else None,
    }
    yield from _properties(values)


def run_properties(evidence: dict[str, Any], gpu: str | None) -> Iterator[Property]:
    """What the whole run is about, from its evidence."""
    counts: dict[str, int] = {}
    for labels in evidence["counts"].values():
        for label, count in labels.items():
            kind = str(label).partition(" (")[0]
            counts[kind] = counts.get(kind, 0) + int(count)
    values: dict[str, object] = {
        "status": evidence["status"],
        "run": evidence["run"],
        "profile": evidence["profile"],
        "target": evidence["target"],
        "dtype": evidence["dtype"],
        "prompts": evidence["prompt_set"]["name"],
        "fault": evidence["fault"],
        "gpu": gpu,
        "epsilon_nats": evidence["epsilon"]["value"] if evidence["epsilon"]["problem"] is None else None,
        "controls_failed": sum(not c["ok"] for c in evidence["controls"]),
        "tool_version": evidence["tool_version"],
        **{f"version_{server}": version for server, version in evidence["versions"].items()},
        **{f"count_{kind}": count for kind, count in counts.items()},
    }
    yield from _properties(values)


def _properties(values: dict[str, object]) -> Iterator[Property]:
    for name, value in values.items():
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            continue
        yield f"lossless_{name}", f"{value:.6g}" if isinstance(value, float) else str(value)
