"""The evidence of every kind of run is what the shipped schema says, and nothing else."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lossless.analysis import analyze
from lossless.protocol import Sampling
from lossless.record.store import RunStore
from lossless.reference.builtin import builtin_path
from lossless.report.evidence import SCHEMA, evidence
from lossless.report.evidence_schema import SHIPPED, evidence_schema, schema_text, with_tables
from lossless.report.table_rows import COLUMNS

PACKED = Path(__file__).parents[2] / "data" / "gpu-runs"
DOCUMENT = Path(__file__).parents[3] / "docs" / "evidence.md"
WRITE = "python -m lossless.report.evidence_schema docs/evidence.md writes it"
TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."


def problems(data: Any) -> list[str]:
    found = Draft202012Validator(json.loads(SHIPPED.read_text(encoding="utf-8"))).iter_errors(data)
    return [f"{e.json_path}: {e.message}" for e in found]


@pytest.fixture
def honest(make_run: Any) -> Any:
    run = make_run({"list-0": Sampling(96), "copy-0": Sampling(96)})
    for server in ("baseline", "nextn"):
        for prompt in run.prompts:
            run.says(server, prompt, TEXT)
    return run


def test_the_shipped_schema_is_made_from_the_types() -> None:
    assert SHIPPED.read_text(encoding="utf-8") == schema_text(), WRITE


def test_it_is_a_schema_of_this_version() -> None:
    made = evidence_schema()
    Draft202012Validator.check_schema(made)
    assert made["properties"]["schema"]["enum"] == [SCHEMA]
    assert made["$id"].endswith(f":{SCHEMA}")


def test_the_document_is_up_to_date() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == with_tables(text), WRITE
    for name, meaning in COLUMNS.items():
        assert f"| `{name}` | {meaning} |" in text


def test_every_field_is_described_and_every_object_is_closed() -> None:
    made = evidence_schema()
    objects = {"": made, **{k: d for k, d in made["$defs"].items() if "properties" in d}}
    assert all(d["additionalProperties"] is False for d in objects.values())
    assert all(d["description"] for d in objects.values())
    bare = [f"{k}.{name}" for k, d in objects.items() for name, p in d["properties"].items() if "description" not in p]
    assert bare == []


@pytest.mark.parametrize(
    "name", ["honest", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lossy", "deterministic"))]
)
def test_runs_of_real_sglang_follow_it(name: str, tmp_path: Path) -> None:
    with tarfile.open(PACKED / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "tokenizer.json").write_bytes((builtin_path() / "target" / "tokenizer.json").read_bytes())
    data = evidence(analyze(RunStore.open(tmp_path)))
    assert problems(data) == []
    assert len(data["verdicts"]) > 400


def test_divergent_and_inconclusive_runs_follow_it(honest: Any, make_run: Any) -> None:
    ids = honest.says("nextn", "copy-0", TEXT.replace("three", "seven", 1))
    honest.scored("copy-0", ids, {8: 3.0}, {8: honest.ids(TEXT)[8]})
    honest.says("nextn", "list-0", TEXT, completion_tokens=99)
    data = evidence(honest.analysis())
    assert data["status"] == "divergent"
    assert data["broken_rules"]
    assert data["verdicts"][1]["differences"]
    assert problems(data) == []
    for more in ({"folder": "none"}, {"folder": "no-epsilon", "epsilon": None}):
        data = evidence(make_run(**more).analysis())
        assert data["status"] == "inconclusive"
        assert problems(data) == []


@pytest.mark.parametrize(
    "path",
    [(), ("epsilon",), ("verdicts", 0), ("verdicts", 0, "finish"), ("controls", 0), ("servers", 0), ("prompt_set",)],
)
def test_a_field_that_the_schema_does_not_name_is_refused(honest: Any, path: tuple[Any, ...]) -> None:
    data = evidence(honest.analysis())
    assert problems(data) == []
    place = data
    for key in path:
        place = place[key]
    place["undocumented"] = 1
    (found,) = problems(data)
    assert "'undocumented' was unexpected" in found


@pytest.mark.parametrize("key", ["status", "verdicts", "epsilon", "controls"])
def test_a_missing_or_wrong_field_is_refused(honest: Any, key: str) -> None:
    data = evidence(honest.analysis())
    data[key] = 1.5
    assert problems(data)
    del data[key]
    assert any(f"'{key}' is a required property" in p for p in problems(data))
