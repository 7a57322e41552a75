"""The tables of the page that need no script: controls, acceptance, speed, servers."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from lossless.analysis import Analysis
from lossless.analysis.acceptance import by_category
from lossless.errors import UsageError
from lossless.record.plan import HIT, ORDER, PLAIN, TOGETHER
from lossless.record.store import RecordedPrompt
from lossless.report.context import context_evidence, needle_line, skipped
from lossless.report.html.provenance import arguments, provenance, reproduce
from lossless.verdict import Kind

BENCH = "bench.json"
ALL = "all"


@dataclass(frozen=True, slots=True)
class BenchTable:
    """One table of ``bench.json``: shown as it is."""

    title: str
    columns: list[str]
    rows: list[list[str | int | float | None]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bench:
    """``bench.json`` in a run folder."""

    tables: list[BenchTable]


def view(analysis: Analysis, command: str) -> dict[str, Any]:
    """What the template shows beside the verdicts."""
    m = analysis.manifest
    context = context_evidence(analysis)
    return {
        "run": analysis.store.path.name,
        "command": command,
        "manifest": m,
        "problems": _problems(analysis),
        "controls": analysis.controls,
        "epsilon": analysis.epsilon,
        "load": load(analysis),
        "acceptance": {v: acceptance_rows(analysis, v) for v in m.variants},
        "histograms": {v: found for v in m.variants if (found := histogram(analysis, v))},
        "by_context": by_context(context),
        "needles": needle_line(analysis) if context["needles"] else None,
        "skipped": list(skipped(analysis)),
        "survival": [{"server": s.server, "ok": s.ok, "detail": s.detail} for s in analysis.survival],
        "speed": speed_rows(analysis),
        "bench": bench(analysis),
        "servers": analysis.server_figures(),
        "timings": timings(analysis),
        "known": {v: list(analysis.covered(v).items()) for v in m.variants if analysis.covered(v)},
        "provenance": provenance(analysis),
        "arguments": arguments(analysis),
        "reproduce": reproduce(analysis, command),
    }


def _problems(analysis: Analysis) -> list[str]:
    """Why the run is not complete, a line a server."""
    states = {name: analysis.store.server(name) for name in analysis.servers}
    return [
        f"{name}: {'it was never started' if s is None else s.problem or 'recording did not end'}"
        for name, s in states.items()
        if s is None or s.problem or not s.complete
    ]


def load(analysis: Analysis) -> dict[str, Any]:
    """Each server against itself alone on an empty cache, by verdict: at once, from the cache, after others."""
    asked = {
        TOGETHER: f"up to {analysis.manifest.concurrency} at once",
        HIT: "from the prefix cache",
        ORDER: "after others",
    }
    staged = {stage: [item for item in analysis.staged() if item[0] == stage] for stage in asked}
    there = [stage for stage in asked if staged[stage]]
    rows = []
    for name in analysis.servers:
        cells = []
        for stage in there:
            found = Counter(str(analysis.within(name, p, s, turn).verdict.kind) for s, p, turn in staged[stage])
            cells.append([[str(kind), found[kind]] for kind in Kind if found[kind]])
        rows.append({"server": name, "cells": cells})
    return {"stages": [asked[stage] for stage in there], "rows": rows if there else []}


def acceptance_rows(analysis: Analysis, variant: str) -> list[dict[str, Any]]:
    """Accept length by category: pooled, and its spread over prompts (tokens a verify step)."""
    groups = by_category(analysis.prompts.values())
    rows = []
    for category, pooled in analysis.acceptance(variant).items():
        prompts = groups.get(category) or [p for ps in groups.values() for p in ps]
        lengths = sorted(_lengths(analysis, variant, prompts))
        rows.append(
            {
                "category": category,
                "pooled": pooled.accept_length,
                "prompts": len(lengths),
                "steps": pooled.verify_steps,
                "least": lengths[0] if lengths else None,
                "median": statistics.median(lengths) if lengths else None,
                "most": lengths[-1] if lengths else None,
            }
        )
    return rows


def _lengths(analysis: Analysis, variant: str, prompts: Sequence[RecordedPrompt]) -> list[float]:
    answers = [analysis.servers[variant].answers.get((PLAIN, p.id, 0)) for p in prompts]
    return [a.completion_tokens / a.spec_verify_ct for a in answers if a and a.spec_verify_ct and len(a.output_ids) > 1]


def histogram(analysis: Analysis, variant: str) -> dict[str, Any] | None:
    """Share of verify steps by accepted draft tokens, a row a category. Where the server reports no such histogram:
    share of prompts by accept length."""
    groups = by_category(analysis.prompts.values())
    rows: dict[str, list[int]] = {}
    for category, prompts in groups.items():
        found = [analysis.servers[variant].answers.get((PLAIN, p.id, 0)) for p in prompts]
        lists = [a.accept_histogram for a in found if a is not None and a.accept_histogram]
        if lists:
            rows[category] = _summed(lists)
    if rows:
        return _shares(rows, "verify steps by accepted draft tokens", "steps")
    for category, prompts in groups.items():
        lengths = _lengths(analysis, variant, prompts)
        if lengths:
            rows[category] = [[int(x) for x in lengths].count(n) for n in range(int(max(lengths)) + 1)]
    return _shares(rows, "prompts by accept length, rounded down", "prompts") if rows else None


def _summed(lists: Sequence[Sequence[int]]) -> list[int]:
    width = max(map(len, lists))
    return [sum(h[i] for h in lists if i < len(h)) for i in range(width)]


def _shares(rows: Mapping[str, list[int]], title: str, unit: str) -> dict[str, Any]:
    width = max(map(len, rows.values()))
    every = {**rows, ALL: _summed(list(rows.values()))}
    found = []
    for category, short in every.items():
        counts, total = [*short, *[0] * (width - len(short))], sum(short)
        shares = [n / total if total else 0.0 for n in counts]
        found.append({"category": category, "total": total, "counts": counts, "shares": shares})
    return {"title": title, "unit": unit, "columns": list(range(width)), "rows": found}


def by_context(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The curve of accept length against prompt length as rows, where there are two lengths or more."""
    rows = [{"variant": variant, **point} for variant, points in found["accept_by_context"].items() for point in points]
    return rows if len({row["prompt_tokens"] for row in rows}) > 1 else []


def speed_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """Decode speed by category: tokens a second of each server, and each variant's ratio to the baseline."""
    found = {name: analysis.speed(name) for name in analysis.servers}
    rows = []
    for category, own in found["baseline"].items():
        base = own.tokens_per_s
        rates = {v: found[v][category].tokens_per_s for v in analysis.manifest.variants}
        rows.append(
            {
                "category": category,
                "baseline": base,
                "variants": {v: {"rate": r, "ratio": r / base if r and base else None} for v, r in rates.items()},
            }
        )
    return rows


def bench(analysis: Analysis) -> list[BenchTable]:
    """The tables of ``bench.json``, if the run has one.

    Raises:
        UsageError: it is not of the expected form.
    """
    path = analysis.store.path / BENCH
    if not path.is_file():
        return []
    try:
        tables = msgspec.json.decode(path.read_bytes(), type=Bench).tables
    except msgspec.DecodeError as problem:
        raise UsageError(f"{path} is damaged: {problem}", hint="remove it, or run the benchmark again") from None
    for table in tables:
        if any(len(row) != len(table.columns) for row in table.rows):
            raise UsageError(f"{path} is damaged: a row of {table.title!r} has not {len(table.columns)} values")
    return [replace(t, rows=[[None if v != v else v for v in row] for row in t.rows]) for t in tables]


def timings(analysis: Analysis) -> list[dict[str, Any]]:
    """Wall seconds of each server's start, stages and re-scoring."""
    states = [s for name in analysis.servers if (s := analysis.store.server(name)) is not None]
    names = list(dict.fromkeys(stage for s in states for stage in s.stage_s))
    return [
        {"name": s.name, "start_s": s.start_s, "stages": {stage: s.stage_s.get(stage) for stage in names}}
        for s in states
    ]
