"""The golden file format: what is written is read back, byte for byte the same, and damage is named."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lossless.errors import UsageError
from lossless.golden import GoldenFile, Provenance, read_golden, read_goldens
from lossless.golden.files import GoldenOutput, parse_golden

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["@ids", '"@ids"', '"token_ids": "@ids"', "中文\n\t", "\u2028", "⟦⟧", '{"a": [1]}']
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**31), 2**31) | TEXT
PROVENANCE = Provenance("sglang", "0.5.19", "bfloat16", None, "t", "p", {"page_size": 1})
GOLDENS = st.builds(
    GoldenFile,
    prompt=TEXT,
    category=TEXT,
    input=TEXT,
    output=st.builds(
        GoldenOutput,
        text=TEXT,
        token_ids=st.lists(st.integers(0, 300_000), max_size=40).map(tuple),
        finish_reason=st.sampled_from(["stop", "length"]),
        finish_matched=st.one_of(st.none(), st.integers(0, 300_000), TEXT),
    ),
    provenance=st.builds(
        Provenance,
        engine=TEXT,
        version=TEXT,
        dtype=TEXT,
        model=st.none() | TEXT,
        tokenizer=TEXT,
        prompt=TEXT,
        arguments=st.dictionaries(TEXT, SCALARS, max_size=3),
    ),
)


def golden(ids: tuple[int, ...] = (5, 6, 1), text: str = "ab", prompt: str = "list-0") -> GoldenFile:
    return GoldenFile(prompt, "list", "Count.", GoldenOutput(text, ids, "stop", 1), PROVENANCE)


@given(GOLDENS)
@example(golden(text="@ids"))
@example(golden(ids=()))
@settings(deadline=None, max_examples=150)
def test_what_is_written_is_read_back_and_written_alike(value: GoldenFile) -> None:
    text = value.dumps()
    assert parse_golden(text, where="here") == value
    assert parse_golden(text.encode(), where="here").dumps() == text
    assert json.loads(text)["output"]["token_ids"] == list(value.output.token_ids)
    assert text.endswith("}\n")


def test_a_file_is_readable() -> None:
    assert golden(ids=tuple(range(18))).dumps() == (
        """{
  "prompt": "list-0",
  "category": "list",
  "input": "Count.",
  "output": {
    "text": "ab",
    "token_ids": [
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
      16, 17
    ],
    "finish_reason": "stop",
    "finish_matched": 1
  },
  "provenance": {
    "engine": "sglang",
    "version": "0.5.19",
    "dtype": "bfloat16",
    "model": null,
    "tokenizer": "t",
    "prompt": "p",
    "arguments": {
      "page_size": 1
    }
  }
}
"""
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"prompt": "list-0"}',
        b"\xff\xfe{}",
        golden().dumps().encode().replace(b"0.5.19", b"\xff"),
        golden().dumps().encode().replace(b"5, 6, 1", b'5, "6", 1'),
        golden().dumps().encode().replace(b"5, 6, 1", b"5, 6.5, 1"),
        golden().dumps().encode()[:-5],
    ],
    ids=["empty", "cut", "null", "list", "fields missing", "no text", "bad byte", "text id", "float id", "no end"],
)
def test_damage_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "list-0.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_golden(tmp_path, "list-0")
    assert f"the golden file {path} is damaged" in str(caught.value)
    assert "--snapshot-update" in str(caught.value.hint)


def test_a_file_of_another_prompt_is_refused(tmp_path: Path) -> None:
    (tmp_path / "copy-0.json").write_text(golden().dumps())
    with pytest.raises(UsageError, match=r"copy-0\.json says it belongs to prompt 'list-0'"):
        read_golden(tmp_path, "copy-0")


def test_all_goldens_of_a_folder(tmp_path: Path) -> None:
    for name in ("list-0", "copy-0"):
        (tmp_path / f"{name}.json").write_text(golden(prompt=name).dumps())
    (tmp_path / "story-0.json").write_text("{")
    (tmp_path / "logic-0.json").write_text(golden().dumps())
    (tmp_path / "_acceptance-nextn.json").write_text("not a prompt")
    (tmp_path / "README.md").write_text("neither")
    found, damaged = read_goldens(tmp_path)
    assert sorted(found) == ["copy-0", "list-0"]
    assert sorted(damaged) == ["logic-0", "story-0"]
    assert str(tmp_path / "story-0.json") in damaged["story-0"]
    assert read_goldens(tmp_path / "absent") == ({}, {})
    assert read_golden(tmp_path, "absent") is None
