"""The JSON Schema of the evidence format: made from ``evidence_format``, shipped as ``evidence.schema.json``.

Both the shipped file and the tables are written by ``python -m lossless.report.evidence_schema docs/evidence.md``.
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from lossless.report.evidence_format import EvidenceFile
from lossless.report.markdown import table

DIALECT = "https://json-schema.org/draft/2020-12/schema"  # what msgspec's schemas follow
MARKERS = ("<!-- made from the schema: begin -->", "<!-- made from the schema: end -->")
SHIPPED = Path(__file__).with_name("evidence.schema.json")


def evidence_schema() -> dict[str, Any]:
    """The schema, strict: a field that it does not name is an error, so no field goes undocumented."""
    made = msgspec.json.schema(EvidenceFile)
    definitions = made.pop("$defs")
    top = definitions.pop("EvidenceFile")
    return {
        "$schema": DIALECT,
        "$id": f"urn:sglang-lossless:evidence:{top['properties']['schema']['enum'][0]}",
        **_strict(top),
        "title": "sglang-lossless evidence",
        "$defs": {name: _strict(definition) for name, definition in sorted(definitions.items())},
    }


def schema_text() -> str:
    """The shipped file's text."""
    return json.dumps(evidence_schema(), ensure_ascii=False, indent=2) + "\n"


def _strict(definition: dict[str, Any]) -> dict[str, Any]:
    if "description" in definition:
        definition["description"] = " ".join(definition["description"].split())
    if definition.get("type") == "object" and "properties" in definition:
        definition["additionalProperties"] = False
    return definition


def schema_tables() -> str:
    """The schema as Markdown tables, one an object: the reference part of ``docs/evidence.md``."""
    made = evidence_schema()
    parts = [_table(made)]
    for name, definition in made["$defs"].items():
        body = _table(definition) if "properties" in definition else _kind(definition)
        parts.append(f"### {name}\n\n{definition['description']}\n\n{body}")
    return "\n\n".join(parts)


def with_tables(document: str) -> str:
    """A document with everything between its two markers replaced by the tables."""
    before, _, rest = document.partition(MARKERS[0])
    after = rest.partition(MARKERS[1])[2]
    return f"{before}{MARKERS[0]}\n\n{schema_tables()}\n\n{MARKERS[1]}{after}"


def _table(definition: dict[str, Any]) -> str:
    needed = definition.get("required", ())
    rows = [
        [f"`{name}`{'' if name in needed else ' (optional)'}", _kind(field), field["description"]]
        for name, field in definition["properties"].items()
    ]
    return table(["field", "type", "meaning"], rows)


def _kind(field: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return " or ".join(_kind(choice) for choice in field["anyOf"])
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field["type"] == "array":
        return f"list of {_kind(field['items'])}"
    return f"object of {_kind(field['additionalProperties'])}" if field["type"] == "object" else str(field["type"])


if __name__ == "__main__":
    SHIPPED.write_text(schema_text(), encoding="utf-8")
    for path in map(Path, sys.argv[1:]):
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
