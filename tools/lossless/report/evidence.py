"""Verdicts as JSON: the evidence format. ``schema`` changes when a field changes its meaning or goes away."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from lossless.analysis import Analysis, Control, Judged
from lossless.analysis.localize import hints, run_hints
from lossless.report.context import context_evidence
from lossless.verdict import Kind, Violation

SCHEMA = 1


def evidence(analysis: Analysis) -> dict[str, Any]:
    """Everything a script may want of one run: plain JSON values only, numbers that are none become null. A merged run
    has what each shard found by itself under ``shards``."""
    m = analysis.manifest
    judged = list(analysis.verdicts())
    outcome = status(analysis, judged)
    data: dict[str, Any] = _plain(
        {
            "schema": SCHEMA,
            "run": analysis.store.path.name,
            "status": outcome,
            "profile": m.profile,
            "kind": m.kind,
            "target": m.target,
            "dtype": m.dtype,
            "fault": m.fault,
            "created": m.created,
            "tool_version": m.tool_version,
            "prompt_set": {"name": m.prompt_set, "digest": m.prompt_digest, "prompts": len(analysis.prompts)},
            "versions": {name: server.info.get("version") for name, server in analysis.servers.items()},
            "servers": [asdict(f) for f in analysis.server_figures()],
            "epsilon": asdict(analysis.epsilon),
            "controls": [_control(c) for c in analysis.controls],
            "counts": {v: dict(Counter(j.verdict.label for j in judged if j.variant == v)) for v in m.variants},
            "known_issues": {
                v: [{**asdict(issue), "prompts": prompts} for issue, prompts in analysis.covered(v).items()]
                for v in m.variants
            },
            # A run that passed needs none, and judging it once more is not free.
            "hints": {v: () if outcome == "proven" else run_hints(analysis, v) for v in m.variants},
            "verdicts": [{**_entry(j), "hints": hints(analysis, j)} for j in judged],
            "broken_rules": [
                {"variant": variant, "prompt": prompt, **asdict(v)}
                for variant, prompt in _answered(judged)
                for v in broken_by_speculation(analysis, variant, prompt)
            ],
            "golden": [
                _entry(g) for p in analysis.goldens if p in analysis.prompts and (g := analysis.golden_verdict(p))
            ],
            "acceptance": {
                v: {
                    c: {"accept_length": a.accept_length, "verify_steps": a.verify_steps, "prompts": a.prompts}
                    for c, a in analysis.acceptance(v).items()
                }
                for v in m.variants
            },
            "speed": {
                s: {c: {"tokens_per_s": x.tokens_per_s, "tokens": x.tokens} for c, x in analysis.speed(s).items()}
                for s in analysis.servers
            },
            **context_evidence(analysis),
            "timings": {s: _timings(analysis, s) for s in analysis.servers},
        }
    )
    if analysis.shards:
        data["shards"] = [_shard(shard, judged) for shard in analysis.shards]
    return data


def _shard(shard: Analysis, judged: Sequence[Judged]) -> dict[str, Any]:
    own = [j for j in judged if j.prompt.id in shard.prompts]
    whole = evidence(shard)
    kept = ("status", "created", "versions", "servers", "epsilon", "controls", "timings")
    found = shard.manifest.shard
    return {
        "shard": None if found is None else found.index,
        "of": None if found is None else found.total,
        "key": shard.manifest.key,
        "prompts": len(shard.prompts),
        **{name: whole[name] for name in kept},
        "counts": {v: dict(Counter(j.verdict.label for j in own if j.variant == v)) for v in shard.manifest.variants},
    }


def status(analysis: Analysis, judged: list[Judged]) -> str:
    """``proven``, ``divergent`` or ``inconclusive``: the worst of the run, known issues of the SGLang version aside
    (they are listed by name). A server that died under stress is inconclusive: it said nothing wrong. So is no evidence
    at all."""
    kinds = {j.verdict.kind for j in judged if not analysis.is_known(j)}
    if Kind.DIVERGENT in kinds or any(broken_by_speculation(analysis, *key) for key in _answered(judged)):
        return "divergent"
    if any(s.server in analysis.manifest.variants and s.divergent for s in analysis.survival):
        return "divergent"
    if not kinds or Kind.INCONCLUSIVE in kinds or any(c.failure for c in analysis.controls):
        return "inconclusive"
    if any(not s.ok for s in analysis.survival):
        return "inconclusive"
    return "proven"


def broken_by_speculation(analysis: Analysis, variant: str, prompt_id: str) -> tuple[Violation, ...]:
    """Stop, count, text and logprob rules that a variant's answers break in any stage, where the baseline keeps them
    and no known issue covers the prompt. Two wrong answers may be alike in their tokens: verdicts do not see these."""
    if variant not in analysis.manifest.variants or analysis.known_issue(variant, prompt_id) is not None:
        return ()
    both = {v.reason for v in analysis.broken_rules("baseline", prompt_id)}
    return tuple(v for v in analysis.broken_rules(variant, prompt_id) if v.reason not in both)


def _answered(judged: list[Judged]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((j.variant, j.prompt.id) for j in judged))


def _control(control: Control) -> dict[str, Any]:
    return asdict(control)


def judged_json(judged: Judged) -> dict[str, Any]:
    """One verdict as plain JSON values."""
    data: dict[str, Any] = _plain(_entry(judged))
    return data


def _entry(judged: Judged) -> dict[str, Any]:
    v = asdict(judged.verdict)
    del v["epsilon"]  # once for the run is enough
    return {
        "prompt": judged.prompt.id,
        "category": judged.prompt.category,
        "group": judged.prompt.group,
        "variant": judged.variant,
        "stage": judged.stage,
        "turn": judged.turn,
        "verdict": v.pop("kind"),
        "label": judged.verdict.label,
        **v,
        "finish": {
            name: None if t is None else {"type": t.finish.type, "matched": t.finish.matched}
            for name, t in zip(("baseline", "variant"), (judged.left, judged.right), strict=True)
        },
    }


def _timings(analysis: Analysis, name: str) -> dict[str, Any]:
    state = analysis.store.server(name)
    if state is None:
        return {}
    return {
        "start_s": round(state.start_s, 3),
        "generate_s": round(state.generate_s, 3),
        "score_s": round(state.score_s, 3),
        "stage_s": state.stage_s,
    }


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
