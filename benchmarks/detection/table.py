"""docs/detection.md from docs/detection.json."""

from collections.abc import Iterable, Sequence
from typing import Any

MANY = 0.09  # share of wrong tokens, each under epsilon, that the budget of a short output must find

HEAD = """\
# How far the verdict can be trusted

Made by `{command}` (then `python -m benchmarks.detection.figure` for the pictures); the numbers behind it are in
[detection.json](detection.json). Baseline and variants are real servers of the embedded engine, in bfloat16; the
suite's own recorder asks them, the suite's own analysis judges, and epsilon is what each run calibrated. A short
version runs in CI (`tests/integration/test_detection.py`) and fails when a fault of this table is no longer detected.
"""


def markdown(data: dict[str, Any]) -> str:
    """The whole page; parts that were not run are left out."""
    parts = [HEAD.format(command=data.get("command", "python -m benchmarks.detection --full"))]
    if "faults" in data:
        parts += _faults(data["faults"])
    if "noise" in data:
        parts += _noise(data["noise"])
        parts += _rules(data)
    if "sensitivity" in data:
        parts += _sensitivity(data["sensitivity"])
    if "epsilon" in data:
        parts += _epsilon(data["epsilon"])
    if data.get("took"):
        took = [[part, _num(t["wall_s"]), _num(t["cpu_s"])] for part, t in data["took"].items()]
        parts += ["## What it took", _table(("part", "wall s", "CPU s"), took)]
    return "\n\n".join(parts) + "\n"


def _faults(rows: Sequence[dict[str, Any]]) -> list[str]:
    caught = [r for r in rows if r["detected"]]
    names = {r["name"] for r in rows}
    ever = {r["name"] for r in caught}
    lines = [
        [
            f"`{r['name']}`" + (" (in the baseline)" if r["planted_in"] == "baseline" else ""),
            "" if r["rate"] is None else f"{r['rate']:g}",
            "yes" if r["detected"] else "**missed**",
            f"{r['caught']}/{r['trials']}",
            r["how"] or "",
            str(r["verdict"] or ""),
            r["reason"] or "",
            _none(r["prompts"]),
            _none(r["tokens"]),
        ]
        for r in rows
    ]
    columns = ("fault", "rate", "detected", "trials", "how", "verdict", "reason", "answers", "tokens")
    missed = [f"- `{r['name']}`{_at(r)}: {r['why']}" for r in rows if not r["detected"]]
    return [
        "## Planted faults",
        f"{len(ever)} of {len(names)} faults are detected in every trial at one rate at least, and {len(caught)} of "
        f"{len(rows)} rows (a trial is one variant with one seed).",
        "*How*: `parity` by an answer's verdict, `rules` by a stop, text, usage or logprob rule, `controls` by a "
        "control that makes everything inconclusive, `server` by an answer that never came, `golden` by the golden "
        "accept length (the output is right, so the verdicts stay proven, but the suite's golden test fails). "
        "*Answers* and *tokens*: how many were compared until the first sign, in the slowest trial that found it.",
        _table(columns, lines),
        *(["Missed:", "\n".join(missed)] if missed else []),
    ]


def _at(row: dict[str, Any]) -> str:
    return "" if row["rate"] is None else f" at {row['rate']:g}"


def _noise(data: dict[str, Any]) -> list[str]:
    gpu, both = data["recorded_gpu"], data["with_recorded_gpu"]
    lines = []
    recorded = [(k if "H200" in k else f"recorded on an H200, {k}", c) for k, c in gpu["kinds"].items()]
    for kind, c in [*data["kinds"].items(), *recorded]:
        verdicts = [str(c.get(k, 0)) for k in ("identical", "near-tie", "divergent", "inconclusive")]
        lines.append([kind, str(c["pairs"]), *verdicts, f"{c['largest_regret']:.3g}"])
    return [
        "## Benign noise",
        f"{data['pairs']} noisy pairs of the embedded engine ({data['differing']} with different tokens): "
        f"**{data['false_alarms']} false alarms**, so with 95% confidence fewer than {data['upper_95']:.2%} "
        f"(rule of three). With {gpu['pairs']} pairs recorded from SGLang on an H200 ({gpu['differing']} different) it "
        f"is {both['false_alarms']} of {both['pairs']}, fewer than {both['upper_95']:.2%}. "
        f"{_capital(data['epsilon_from'])}.",
        _table(("noise", "pairs", "identical", "near-tie", "divergent", "inconclusive", "largest regret, nats"), lines),
        "The embedded engine computes requests one by one even when several are in flight, so being asked at once adds "
        "no rounding of its own there; the recorded GPU runs hold real batches.",
    ]


def _rules(data: dict[str, Any]) -> list[str]:
    rules = data["noise"]["with_recorded_gpu"]["rules"]
    panels = data.get("sensitivity", {}).get("panels", {})
    epsilon = data.get("sensitivity", {}).get("epsilon", 0.0)
    above = [b for b in panels.get("size", []) if b["low"] >= epsilon]
    many = [b for b in panels.get("small", []) if b["low"] >= MANY]
    lines = []
    for name, r in rules.items():
        row = [
            f"**{name}**" if name == "ours" else name,
            _share(r["pairs"], r["of_pairs"]),
            _share(r["runs"], r["of_runs"]),
        ]
        row += [_percent(above, name), _percent(panels.get("share", []), name), _percent(many, name)]
        lines.append(row)
    columns = (
        "rule",
        "false alarms, pairs",
        "false alarms, runs of 10",
        "finds one wrong token above epsilon",
        "finds more of them",
        f"finds {MANY:.0%} or more, each under epsilon",
    )
    return [
        "## Beside the rules that others use",
        "The same honest pairs and the same corrupted outputs, judged by each rule. The rule on the match rate looks "
        "at runs: its detections are for a run of ten outputs that are all corrupted.",
        _table(columns, lines),
        _verdict(rules, panels, epsilon),
        "- Text equality: the texts are equal (SGLang's parity kit).\n"
        "- Match rate: more than `int(0.6 * n)` of n outputs are equal (vLLM's end-to-end tests of speculation).\n"
        "- Top-5 at the first mismatch: each side's token is among the other's five best (vLLM's "
        "`check_logprobs_close`); what comes after is not looked at.\n"
        "- Greedy gap: a token up to 0.25 nats below the argmax is fine, and 1% of a run's tokens may lie beyond. The "
        "bound is fixed, the budget is this benchmark's reading of the rule.",
    ]


def _verdict(rules: dict[str, Any], panels: dict[str, Any], epsilon: float) -> str:
    """Where ours is not ahead, in words; from the numbers."""
    bins = [(panel, b) for panel, found in panels.items() for b in found if panel != "size" or b["low"] >= epsilon]
    lines = []
    for name, r in rules.items():
        if name == "ours":
            continue
        more = r["pairs"] - rules["ours"]["pairs"]
        better = [panel for panel, b in bins if b["detected"][name] > b["detected"]["ours"] + 1e-9]
        worse = [b for _, b in bins if b["detected"][name] < b["detected"]["ours"] - 1e-9]
        alarms = f"{more} false alarms more than ours" if more > 0 else "no more false alarms than ours"
        found = f"notices less at {len(worse)} of {len(bins)} points, more at {len(better)}"
        if better:
            found += ", all of them errors under epsilon" if set(better) == {"small"} else ", also above epsilon"
        lines.append(f"- {name}: {alarms}; {found}.")
    head = "Where each stands to ours at the points of the figure (without one wrong token under epsilon, a near-tie):"
    return "\n".join([head, "", *lines])


def _sensitivity(data: dict[str, Any]) -> list[str]:
    names = list(data["panels"]["size"][0]["detected"])
    titles = {
        "size": "One wrong token, by its regret",
        "share": "Wrong tokens beyond twice epsilon, by their share",
        "small": "Wrong tokens under epsilon each, by their share",
    }
    parts = [
        "## Sensitivity",
        "![Detection probability against the size of the corruption](sensitivity.png)",
        f"{data['outputs']} real outputs with planted wrong tokens: the honest variant goes on from each one, and the "
        f"baseline re-scores the whole. {_capital(data['epsilon_from'])}.",
    ]
    for panel, title in titles.items():
        lines = [
            [
                f"{b['low']:g} to {b['high']:g} nats" if panel == "size" else f"{b['share']:.1%} ({b['wrong']:.1f})",
                str(b["outputs"]),
                f"{b['regret']:.3g}",
                *(f"{b['detected'][n]:.0%}" for n in names),
                ", ".join(f"{r} {n}" for r, n in b["reasons"].items()),
            ]
            for b in data["panels"][panel]
        ]
        first = "regret" if panel == "size" else "wrong tokens (a mean output's)"
        parts += [f"### {title}", _table((first, "outputs", "median regret", *names, "our reasons"), lines)]
    return parts


def _epsilon(data: dict[str, Any]) -> list[str]:
    gpu = [
        [
            f"{r['k']:g}" + (" (ours)" if r["k"] == 1.5 else ""),
            ", ".join(f"{e:.3g}" for e in r["epsilon"]),
            f"{r['false_alarms']}/{r['of_differing']}",
            f"{r['lossy_within_epsilon']}/{r['of_lossy']}",
            f"{e['false_alarms']}/{e['of_differing']}",
        ]
        for r, e in zip(data["gpu"], data["engine"], strict=True)
    ]
    bad = [
        [r["case"], str(r["tokens"]), "none" if r["problem"] else f"{r['epsilon']:.3g}", r["problem"] or ""]
        for r in data["bad_floors"]
    ]
    wrong = [
        [
            r["case"],
            r["outcome"],
            str(r["near_ties"]),
            r["problem"] or f"epsilon {r['epsilon']:.3g}",
            ", ".join(r["labels"]),
        ]
        for r in data["wrong_baselines"]
    ]
    parts = [
        "## Epsilon on trial",
        "Epsilon is k times the noise floor. What each k would have done with the runs recorded on an H200 (SGLang, "
        f"bfloat16; {data['gpu_floor']}) and with the embedded engine: honest pairs that differ and would be called "
        "divergent, and outputs of a lossy server that would lie within epsilon.",
        _table(
            (
                "k",
                "epsilon on the H200, nats",
                "false alarms, H200",
                "lossy within epsilon, H200",
                "false alarms, engine",
            ),
            gpu,
        ),
        "### Bad floors",
        "The floor is the third largest shift, so one or two freak positions move it no further than the next honest "
        "one; three lift it above the cap, and then there is no bound at all, not a wider one.",
        _table(("evidence", "tokens", "epsilon", "problem"), bad),
    ]
    if wrong:
        parts += [
            "A baseline that is itself wrong, against an honest variant:",
            _table(("baseline", "outcome", "near-ties passed", "epsilon", "verdicts of what differs"), wrong),
        ]
    parts.append(
        "### The budget\n\nMany small errors stay under epsilon each; the request's budget finds them: see *Wrong "
        "tokens under epsilon each* above, where our reason is `budget`."
    )
    return parts


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _percent(bins: Sequence[dict[str, Any]], name: str) -> str:
    """Share of the outputs in these bins that a rule notices."""
    total = sum(b["outputs"] for b in bins)
    return f"{sum(b['detected'][name] * b['outputs'] for b in bins) / total:.0%}" if total else "not run"


def _share(count: int, of: int) -> str:
    return f"{count}/{of} ({count / of:.1%})" if of else "none"


def _none(value: int | None) -> str:
    return "" if value is None else str(value)


def _num(value: float) -> str:
    return f"{value:.0f}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
