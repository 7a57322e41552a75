"""The result table as CSV, markdown and JSON: the same rows, safe to open."""

import csv
import io
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion
from typer.testing import CliRunner

from lossless.commands import export, schema
from lossless.protocol import Sampling
from lossless.record.plan import TOGETHER
from lossless.report.evidence_schema import SHIPPED
from lossless.report.table_rows import COLUMNS, FORMATS, Row, as_csv, table_rows

TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."
FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n+1")


def invoke(*args: str) -> Any:
    app = typer.Typer()
    export.register(app)
    schema.register(app)
    return CliRunner().invoke(app, list(args))


@pytest.fixture
def run(make_run: Any) -> Any:
    made = make_run({"list-0": Sampling(96), "copy-0": Sampling(96)}, groups={"list-0": "parity"})
    for server in ("baseline", "nextn"):
        for prompt in made.prompts:
            made.says(server, prompt, TEXT)
        made.says(server, "list-0", TEXT, TOGETHER)
    ids = made.says("nextn", "copy-0", TEXT.replace("three", "seven", 1))
    made.scored("copy-0", ids, {8: 3.0}, {8: made.ids(TEXT)[8]})
    return made


@pytest.fixture
def rows(run: Any) -> list[Row]:
    analysis = run.analysis()
    return list(table_rows(analysis, analysis.verdicts()))


def test_the_columns_are_the_fields() -> None:
    assert list(COLUMNS) == [f.name for f in fields(Row)]


def test_rows_carry_the_numbers(run: Any, rows: list[Row]) -> None:
    tokens = len(run.ids(TEXT))
    by_place = {(r.prompt, r.stage): r for r in rows}
    same, bad, together = (by_place[k] for k in (("list-0", "plain"), ("copy-0", "plain"), ("list-0", TOGETHER)))
    assert (same.verdict, same.position, same.gap, same.reconverged) == ("identical", None, None, None)
    assert (same.baseline_tokens, same.variant_tokens, same.epsilon) == (tokens, tokens, 0.125)
    assert same.accept_length == tokens / (tokens // 3)
    assert same.variant_tokens_per_s == tokens / 0.5
    assert (bad.verdict, bad.reason, bad.position, bad.gap) == ("divergent", "gap", 8, 3.0)
    assert (bad.regret_max, bad.regret_sum) == (3.0, 3.0)
    assert (together.baseline_tokens_per_s, together.variant_tokens_per_s) == (None, None)
    missing = by_place["list-0", "logprobs"]
    assert (missing.verdict, missing.reason, missing.accept_length) == ("inconclusive", "missing", None)


@pytest.mark.parametrize("form", list(FORMATS))
def test_what_each_format_looks_like(run: Any, form: str, snapshot: SnapshotAssertion) -> None:
    done = invoke("export", str(run.store.path), "--format", form)
    assert done.exit_code == 0
    assert done.output.replace("\r\n", "\n") == snapshot


def test_all_formats_hold_the_same_rows(run: Any, rows: list[Row], tmp_path: Path) -> None:
    for form in FORMATS:
        done = invoke("export", str(run.store.path), "--format", form, "-o", str(tmp_path / form))
        assert (done.exit_code, done.output) == (0, "")
    with (tmp_path / "csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    data = json.loads((tmp_path / "json").read_text(encoding="utf-8"))
    assert (data["status"], data["run"]) == ("divergent", "run")
    assert len(table) == len(data["rows"]) == len(rows)
    for cells, values in zip(table, data["rows"], strict=True):
        for name, value in values.items():
            if value is None:
                assert cells[name] == ""
            elif isinstance(value, bool):
                assert cells[name] == str(value).lower()
            elif isinstance(value, float):
                assert float(cells[name]) == value
            else:
                assert cells[name] == str(value)
    assert len((tmp_path / "markdown").read_text(encoding="utf-8").splitlines()) == len(rows) + 2


@pytest.mark.parametrize("text", FORMULAS)
def test_no_text_becomes_a_formula(run: Any, rows: list[Row], text: str) -> None:
    written = as_csv(run.analysis(), [replace(rows[0], prompt=text, gap=-1.5, position=-3)])
    (cells,) = csv.DictReader(io.StringIO(written, newline=""))
    assert cells["prompt"] == f"'{text}"
    assert (cells["gap"], cells["position"]) == ("-1.5", "-3"), "numbers stay numbers"


ROW = Row("v", "p", "plain", 0, "c", "identical", *[None] * 7, 0.1, 1, 1, None, None, None)  # type: ignore[arg-type]


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    (cells,) = csv.DictReader(io.StringIO(as_csv(None, [replace(ROW, prompt=text)]), newline=""))  # type: ignore[arg-type]
    assert cells["prompt"] in (text, f"'{text}")
    assert cells["prompt"].lstrip()[:1] not in ("=", "+", "-", "@")


def test_a_place_that_cannot_be_written_is_a_usage_error(run: Any, tmp_path: Path) -> None:
    done = invoke("export", str(run.store.path), "-o", str(tmp_path / "no" / "file"))
    assert "cannot be written" in str(done.exception)


def test_schema_prints_the_shipped_file() -> None:
    done = invoke("schema")
    assert (done.exit_code, done.output) == (0, SHIPPED.read_text(encoding="utf-8"))
