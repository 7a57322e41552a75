"""What the page shows, from one analysis: plain JSON values, compact enough for hundreds of long outputs."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from lossless.analysis import Analysis, Judged
from lossless.analysis.localize import hints, run_hints
from lossless.prompts import Tokenizer
from lossless.protocol import Sampling
from lossless.protocol.redact import redact, redact_object
from lossless.record.plan import PLAIN
from lossless.record.store import RecordedPrompt
from lossless.report.evidence import status
from lossless.report.excerpt import excerpt
from lossless.report.failure import NEXT
from lossless.report.html import sections
from lossless.report.html.outputs import Outputs, Vocabulary, units
from lossless.verdict import Difference, Kind

SHOWN_CANDIDATES = 12  # differences of one answer whose candidate lists are kept
SHOWN_EXCERPTS = 500  # answers that did not pass whose words stand in the table

BUCKETS = {
    "divergent": ("D", "divergent"),
    "inconclusive": ("?", "inconclusive"),
    "known": ("K", "known issue"),
    "forked": ("F", "near-tie, forked"),
    "reconverged": ("R", "near-tie, reconverged"),
    "identical": ("I", "identical"),
}
"""Every verdict with its letter and name, worst first."""


@dataclass(frozen=True, slots=True)
class Report:
    """``view`` feeds the template. ``index`` is read when the page opens; ``vocabulary`` and one of ``chunks`` (one a
    prompt, in the index's order) when a prompt is chosen."""

    view: dict[str, Any]
    index: dict[str, Any]
    vocabulary: dict[str, Any]
    chunks: tuple[dict[str, Any], ...]


def collect(analysis: Analysis, *, strict: bool = False, command: str | None = None) -> Report:
    """Everything the page shows. ``strict``: forks count as divergent. ``command`` is how to name the run to the
    ``lossless`` command; its path if it is not given.

    Raises:
        UsageError: a file of the run is damaged.
    """
    verdicts = list(analysis.verdicts())
    goldens = [g for p in analysis.goldens if p in analysis.prompts and (g := analysis.golden_verdict(p))]
    outcome = status(analysis, verdicts)
    if strict and any(not j.verdict.passed(strict=True) and j.verdict.kind is Kind.NEAR_TIE for j in verdicts):
        outcome = "divergent"
    every = [*verdicts, *goldens]
    found = [bucket(analysis, j) for j in every]
    compared = list(zip(verdicts, found, strict=False))
    grouped: dict[str, list[tuple[int, Judged]]] = defaultdict(list)
    for number, j in enumerate(every):
        grouped[j.prompt.id].append((number, j))
    prompts = [p for p in analysis.prompts.values() if p.id in grouped]
    vocabulary = Vocabulary(analysis.token_text)
    chunks = tuple(_chunk(analysis, p, grouped[p.id], vocabulary) for p in prompts)
    names = {
        "variants": list(dict.fromkeys(j.variant for j in every)),
        "stages": list(dict.fromkeys(j.stage for j in every)),
    }
    command = command or str(analysis.store.path)
    index = {
        "command": command,
        "buckets": [[key, *names_] for key, names_ in BUCKETS.items()],
        **names,
        "prompts": [[p.id, p.category, p.group, _short(p.text)] for p in prompts],
        "answers": _answers(analysis, every, found, {p.id: i for i, p in enumerate(prompts)}, names),
    }
    view = {
        **sections.view(analysis, command),
        "status": outcome,
        "strict": strict,
        "sentence": sentence(analysis, compared, outcome, strict=strict),
        "counts": _counts(analysis, compared),
        "buckets": BUCKETS,
        "hints": {v: () if outcome == "proven" else run_hints(analysis, v) for v in analysis.manifest.variants},
        "goldens": _goldens(list(zip(goldens, found[len(verdicts) :], strict=True))),
        "prompts": len(prompts),
        "answers": len(every),
    }
    return Report(
        redact_object(_listed(view)),
        redact_object(index),
        {"ids": vocabulary.ids, "texts": [redact(t) for t in vocabulary.texts]},
        chunks,
    )


def bucket(analysis: Analysis, judged: Judged) -> str:
    """One of ``BUCKETS``."""
    verdict = judged.verdict
    if verdict.kind is Kind.NEAR_TIE:
        return "reconverged" if verdict.reconverged else "forked"
    return "known" if analysis.is_known(judged) else str(verdict.kind)


def sentence(analysis: Analysis, compared: list[tuple[Judged, str]], outcome: str, *, strict: bool) -> str:
    """Why the run's status is what it is, in one or two sentences; ``compared`` are the verdicts with their buckets."""
    found = Counter(b for _, b in compared)
    total = len(compared)
    near = found["forked"] + found["reconverged"]
    known = f" {found['known']} more diverge by known faults of this SGLang version." if found["known"] else ""
    if outcome == "proven":
        ties = f" and {near} are near-ties within epsilon {analysis.epsilon.value:.4g} nats" if near else ""
        return (
            f"All controls hold. Of {total} compared answers, {found['identical']} are identical to the baseline's"
            f"{ties}.{known}"
        )
    if outcome == "divergent":
        bad = [j for j, b in compared if b == "divergent"]
        if not bad and strict:
            return f"Near-ties that do not reconverge: {found['forked']}. --strict does not accept them."
        if not bad and any(s.divergent for s in analysis.survival):
            return "A server answers otherwise under or after stress than before it."
        if not bad:
            return "All compared tokens are accounted for, but an answer breaks a stop, count, text or logprob rule."
        reasons = Counter(str(j.verdict.reason) for j in bad)
        why = ", ".join(f"{n} by {reason}" for reason, n in reasons.most_common(4))
        regrets = [r for j in bad if (r := worst_nats(j)) is not None]
        far = (
            f" The worst token is {max(regrets):.4g} nats below the baseline's choice; epsilon is "
            f"{analysis.epsilon.value:.4g}."
            if regrets and not analysis.epsilon.problem
            else ""
        )
        return f"{len(bad)} of {total} compared answers are not what the baseline would have said: {why}.{far}{known}"
    failed = [c for c in analysis.controls if not c.ok]
    if failed:
        return f"Nothing is proven: the control “{failed[0].name}” of {failed[0].scope} failed. {failed[0].detail}"
    if hurt := [s for s in analysis.survival if not s.ok]:
        return f"Nothing is proven: {hurt[0].server} did not come through the stress test. {hurt[0].detail}"
    if not compared:
        return "Nothing is proven: no answers were compared."
    return f"Nothing is proven: the evidence for {found['inconclusive']} of {total} compared answers is missing."


def worst_nats(judged: Judged) -> float | None:
    """The largest regret of an answer, or its first difference's where the rest was not judged (nats)."""
    verdict = judged.verdict
    gaps = [d.gap for d in verdict.differences if d.gap is not None]
    if verdict.regret is not None:
        gaps.append(verdict.regret.largest)
    return max(gaps, default=None)


def _answers(
    analysis: Analysis,
    every: list[Judged],
    found: list[str],
    place: dict[str, int],
    names: dict[str, list[str]],
) -> dict[str, list[Any]]:
    """One column a property, one row an answer; a detail is null where it only says that all is equal."""
    buckets = list(BUCKETS)
    shown = [i for i, b in enumerate(found) if b in ("divergent", "known", "inconclusive")][:SHOWN_EXCERPTS]
    excerpts = {i: _excerpt(analysis, every[i]) for i in shown}
    return {
        "prompt": [place[j.prompt.id] for j in every],
        "variant": [names["variants"].index(j.variant) for j in every],
        "stage": [names["stages"].index(j.stage) for j in every],
        "turn": [j.turn for j in every],
        "bucket": [buckets.index(b) for b in found],
        "reason": [None if j.verdict.reason is None else str(j.verdict.reason) for j in every],
        "tokens": [j.verdict.variant_tokens for j in every],
        "first": [j.verdict.differences[0].variant_start if j.verdict.differences else None for j in every],
        "worst": [units(worst_nats(j)) for j in every],
        "detail": [None if j.verdict.kind is Kind.IDENTICAL else j.verdict.detail for j in every],
        "words": [excerpts.get(i) for i in range(len(every))],
    }


def _chunk(
    analysis: Analysis, prompt: RecordedPrompt, answers: Iterable[tuple[int, Judged]], vocabulary: Vocabulary
) -> dict[str, Any]:
    """One prompt: what was asked, each distinct output, and each answer's verdict in full."""
    outputs = Outputs(analysis, prompt, vocabulary)
    entries = []
    for number, j in answers:
        v = j.verdict
        recorded = analysis.servers[j.variant].answers.get((j.stage, prompt.id, j.turn))
        entries.append(
            {
                "answer": number,
                "left": outputs.add(j.left),
                "right": outputs.add(j.right),
                "names": list(j.names),
                "label": v.label,
                "detail": v.detail,
                "next": None if v.reason is None else NEXT[v.reason],
                "notes": list(v.notes),
                "hints": [] if v.passed() else [asdict(h) for h in hints(analysis, j)],
                "reconverged": v.reconverged,
                "differences": [_difference(d, vocabulary, k) for k, d in enumerate(v.differences)],
                "regret": None if v.regret is None else asdict(v.regret),
                "budget": None if v.budget is None else asdict(v.budget),
                "epsilon": None if v.epsilon is None or v.epsilon.problem else v.epsilon.value,
                "steps": recorded.spec_verify_ct if recorded else None,
                "cached": recorded.cached_tokens if recorded else None,
            }
        )
    rest = {"text": prompt.text, "sampling": _sampling(prompt.sampling), "answers": entries}
    return {**redact_object(_listed(rest)), "tokens": len(prompt.ids), "outputs": outputs.packed}


def _difference(d: Difference, vocabulary: Vocabulary, number: int) -> dict[str, Any]:
    """``at``: baseline start, end, variant start, end. Candidates and tokens are places in the vocabulary."""
    tokens = {
        name: None if token is None else [vocabulary[token.token_id], units(token.logprob)]
        for name, token in (("left", d.baseline_token), ("right", d.variant_token))
    }
    return {
        "at": [d.baseline_start, d.baseline_end, d.variant_start, d.variant_end],
        "equal": d.reconverged_for,
        "to_end": d.to_end,
        "gap": d.gap,
        "top2": d.top2_gap,
        "rank": d.rank,
        "ties": d.ties,
        **tokens,
        "candidates": [[vocabulary[c.token_id], units(c.logprob)] for c in d.candidates]
        if number < SHOWN_CANDIDATES
        else [],
    }


def _excerpt(analysis: Analysis, judged: Judged) -> list[str] | None:
    """The words before the first difference, and both sides of it."""
    if not judged.verdict.differences or judged.left is None or judged.right is None:
        return None
    d = judged.verdict.differences[0]
    tokenizer: Tokenizer | None = analysis.tokenizer

    def text(ids: Any) -> str:
        return tokenizer.decode(ids, False) if tokenizer else " ".join(map(str, ids))

    left = excerpt(judged.left.ids, d.baseline_start, d.baseline_end, text)
    right = excerpt(judged.right.ids, d.variant_start, d.variant_end, text)
    return [
        _tail(("" if left.starts else "…") + left.before, 48),
        _short(left.differing, 48),
        _short(right.differing, 48),
    ]


def _counts(analysis: Analysis, compared: list[tuple[Judged, str]]) -> list[dict[str, Any]]:
    """Answers by verdict, a row for each variant alone and one for its other passes."""
    rows = []
    for variant in analysis.manifest.variants:
        for plain in (True, False):
            own = [b for j, b in compared if j.variant == variant and (j.stage == PLAIN) is plain]
            if own:
                found = Counter(own)
                rows.append(
                    {
                        "name": variant if plain else f"{variant}, all other passes",
                        "answers": len(own),
                        "counts": {b: found[b] for b in BUCKETS},
                    }
                )
    return rows


def _goldens(judged: list[tuple[Judged, str]]) -> dict[str, Any]:
    found = Counter(b for _, b in judged)
    drifted = [
        {"prompt": g.prompt.id, "bucket": b, "label": g.verdict.label, "detail": g.verdict.detail}
        for g, b in judged
        if b != "identical"
    ]
    order = list(BUCKETS)
    drifted.sort(key=lambda row: (order.index(row["bucket"]), row["prompt"]))
    return {"compared": len(judged), "counts": {b: found[b] for b in BUCKETS if found[b]}, "drifted": drifted}


def _sampling(sampling: Sampling) -> dict[str, Any]:
    """What a request asked for beside the defaults; ``max_new_tokens`` always."""
    default = asdict(Sampling(max_new_tokens=1))
    return {k: v for k, v in asdict(sampling).items() if k == "max_new_tokens" or v != default[k]}


def _short(text: str, length: int = 120) -> str:
    line = " ".join(text.split()) if length == 120 else text
    return line if len(line) <= length else line[: length - 1] + "…"


def _tail(text: str, length: int) -> str:
    return text if len(text) <= length else "…" + text[-length + 1 :]


def _listed(value: Any) -> Any:
    """Tuples and dataclasses as plain JSON values, so that nothing is missed when keys are masked; no NaN."""
    if hasattr(value, "__dataclass_fields__"):
        return _listed(asdict(value))
    if isinstance(value, dict):
        return {str(k): _listed(v) for k, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [_listed(v) for v in value] if isinstance(value, list | tuple) else value
