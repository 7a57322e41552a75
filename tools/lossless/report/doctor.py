"""A draft triage for the terminal and for scripts."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lossless.doctor.diagnosis import Diagnosis, worst_outcome

STYLES = {"ok": "green", "wrong": "bold red", "suspicious": "yellow", "unknown": "dim"}
OUTCOMES = {"fine": "bold green", "wrong": "bold red", "unclear": "bold yellow"}


def doctor_view(diagnoses: Iterable[Diagnosis]) -> RenderableType:
    """One table a variant, in the order of the rules, and its conclusion below. Neighbors that say the same share a
    line."""
    parts: list[RenderableType] = []
    for diagnosis in diagnoses:
        if parts:
            parts.append(Text(""))
        parts += [Text(diagnosis.variant, style="bold"), _table(diagnosis), Text("")]
        parts.append(Text(diagnosis.conclusion, style=OUTCOMES[diagnosis.outcome]))
        if diagnosis.next:
            parts.append(Text(f"→ {diagnosis.next}"))
    return Group(*parts)


def doctor_json(diagnoses: Iterable[Diagnosis]) -> dict[str, Any]:
    """Plain JSON values."""
    found = list(diagnoses)
    return {
        "outcome": worst_outcome(found),
        "variants": [
            {
                "variant": d.variant,
                "outcome": d.outcome,
                "conclusion": d.conclusion,
                "next": d.next,
                "findings": [
                    {
                        "rule": f.rule,
                        "status": f.status,
                        "detail": f.detail,
                        "remedy": f.remedy,
                        "numbers": dict(f.numbers),
                    }
                    for f in d.findings
                ],
            }
            for d in found
        ],
    }


def _table(diagnosis: Diagnosis) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for (status, detail, remedy), same in groupby(diagnosis.findings, lambda f: (f.status, f.detail, f.remedy)):
        text = Text(detail)
        if remedy and status in ("wrong", "suspicious"):
            text.append(f"\n→ {remedy}")
        rules = [f.rule for f in same]
        table.add_row(Text(status, STYLES[status]), rules[0] if len(rules) == 1 else f"{rules[0]} … {rules[-1]}", text)
    return table
