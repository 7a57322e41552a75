"""The compact result table of a run: one row a (variant, prompt, stage), for spreadsheets and scripts."""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from lossless.analysis import Analysis, Judged
from lossless.analysis.analysis import BASELINE
from lossless.protocol import Answer
from lossless.record.plan import TOGETHER
from lossless.report import markdown
from lossless.report.evidence import status

SCHEMA = 1
_FORMULA = re.compile(r"\s*[=+\-@]|[\t\r\n]")

COLUMNS = {
    "variant": "the judged server",
    "prompt": "prompt id",
    "stage": "how it was asked: plain, together, hit, order, logprobs",
    "turn": "which of the stage's requests for this prompt, from 0",
    "category": "kind of task",
    "verdict": "identical, near-tie, divergent or inconclusive",
    "reason": "why it is divergent or inconclusive, else empty",
    "reconverged": "true or false where the outputs differ, else empty",
    "known_issue": "id of the known issue of the SGLang version that explains a divergence, else empty",
    "position": "where the first difference starts in the variant's output, tokens from 0",
    "gap": "the variant's token there below the baseline's argmax, nats",
    "regret_max": "largest regret of the output, nats",
    "regret_sum": "sum of its regrets, nats",
    "epsilon": "near-tie bound of the run, nats",
    "baseline_tokens": "output tokens of the baseline",
    "variant_tokens": "output tokens of the variant",
    "accept_length": "completion tokens a verify step, bonus token included",
    "baseline_tokens_per_s": "completion tokens a second of client wall time; empty where requests ran at once",
    "variant_tokens_per_s": "the same of the variant",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row; the fields are those of ``COLUMNS``, in its order. None is an empty cell."""

    variant: str
    prompt: str
    stage: str
    turn: int
    category: str
    verdict: str
    reason: str | None
    reconverged: bool | None
    known_issue: str | None
    position: int | None
    gap: float | None
    regret_max: float | None
    regret_sum: float | None
    epsilon: float | None
    baseline_tokens: int
    variant_tokens: int
    accept_length: float | None
    baseline_tokens_per_s: float | None
    variant_tokens_per_s: float | None


def table_rows(analysis: Analysis, judged: Iterable[Judged]) -> Iterator[Row]:
    """Rows of the given verdicts of this run, in their order."""
    for j in judged:
        v, key = j.verdict, (j.stage, j.prompt.id, j.turn)
        first = v.differences[0] if v.differences else None
        answer = analysis.servers[j.variant].answers.get(key)
        issue = analysis.known_issue(j.variant, j.prompt.id) if analysis.is_known(j) else None
        yield Row(
            variant=j.variant,
            prompt=j.prompt.id,
            stage=j.stage,
            turn=j.turn,
            category=j.prompt.category,
            verdict=str(v.kind),
            reason=None if v.reason is None else str(v.reason),
            reconverged=v.reconverged,
            known_issue=None if issue is None else issue.id,
            position=None if first is None else first.variant_start,
            gap=_finite(None if first is None else first.gap),
            regret_max=_finite(None if v.regret is None else v.regret.largest),
            regret_sum=_finite(None if v.regret is None else v.regret.total),
            epsilon=None if analysis.epsilon.problem else _finite(analysis.epsilon.value),
            baseline_tokens=v.baseline_tokens,
            variant_tokens=v.variant_tokens,
            accept_length=_accept_length(answer),
            baseline_tokens_per_s=_speed(analysis, BASELINE, key),
            variant_tokens_per_s=_speed(analysis, j.variant, key),
        )


def as_csv(_analysis: Analysis, rows: Iterable[Row]) -> str:
    """RFC 4180 with a header line. A text cell that a spreadsheet would take for a formula gets a leading apostrophe
    (https://owasp.org/www-community/attacks/CSV_Injection); numbers stay numbers."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(getattr(row, f.name)) for f in fields(row)])
    return out.getvalue()


def as_json(analysis: Analysis, rows: Iterable[Row]) -> str:
    """One object: the run, its status, and the rows with null for empty cells."""
    m = analysis.manifest
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "run": analysis.store.path.name,
        "status": status(analysis, list(analysis.verdicts())),
        "profile": m.profile,
        "prompt_set": m.prompt_set,
        "rows": [asdict(row) for row in rows],
    }
    return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def as_markdown(_analysis: Analysis, rows: Iterable[Row]) -> str:
    """A table for a pull request or an issue."""
    numbers = [i for i, f in enumerate(fields(Row)) if "int" in str(f.type) or "float" in str(f.type)]
    cells = ([_text(getattr(row, f.name)) for f in fields(row)] for row in rows)
    return markdown.table([name.replace("_", " ") for name in COLUMNS], cells, right=numbers) + "\n"


FORMATS: dict[str, Callable[[Analysis, Iterable[Row]], str]] = {
    "csv": as_csv,
    "markdown": as_markdown,
    "json": as_json,
}


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and _FORMULA.match(value):
        return f"'{value}"
    return value


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return markdown.number(value) if isinstance(value, float) else markdown.escape(str(value))


def _accept_length(answer: Answer | None) -> float | None:
    if answer is None or not answer.spec_verify_ct:
        return None
    return answer.completion_tokens / answer.spec_verify_ct


def _speed(analysis: Analysis, server: str, key: tuple[str, str, int]) -> float | None:
    """Tokens a second of one answer; None for requests that shared the server."""
    recorded = analysis.servers[server]
    answer, seconds = recorded.answers.get(key), recorded.wall_s.get(key)
    if answer is None or not seconds or key[0] == TOGETHER:
        return None
    return answer.completion_tokens / seconds


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value
