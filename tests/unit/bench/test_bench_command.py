"""``lossless bench``: what it shows, writes and refuses, without a server."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from bench_made import bench, sample, server
from typer.testing import CliRunner

from lossless.bench.file import BenchFile
from lossless.bench.tables import tables
from lossless.commands.bench import register
from lossless.errors import UsageError


def invoke(*args: str) -> Any:
    app = typer.Typer()
    register(app)
    app.command()(lambda: None)
    return CliRunner().invoke(app, ["bench", *args])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = bench({"baseline": server("baseline", [sample()]), "nextn": server("nextn", [sample(verify_steps=7)])})
    BenchFile(tmp_path).change(lambda _: bench(made.servers, tables=tables(made)))
    return tmp_path


def test_show_prints_what_a_folder_holds(folder: Path) -> None:
    result = invoke("--show", str(folder))
    assert result.exit_code == 0
    assert "One request at a time" in result.output
    assert "| code | nextn | 20.0 (1 of 3) |" in invoke("--show", str(folder), "--markdown").output
    assert json.loads(invoke("--show", str(folder), "--json").output)["schema"] == 1


@pytest.mark.parametrize("name", ["post.md", "all.json"])
def test_output_is_written_by_its_ending(folder: Path, name: str) -> None:
    path = folder / name
    result = invoke("--show", str(folder), "-o", str(path))
    assert result.exit_code == 0
    assert result.output == ""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("**sglang-lossless bench" if name == "post.md" else "{")


def test_an_incomplete_bench_has_another_exit_status(folder: Path) -> None:
    died = server("nextn", [sample()], complete=False, problem="it died")
    BenchFile(folder).change(lambda _: bench({"nextn": died}))
    assert invoke("--show", str(folder)).exit_code == 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--show", "nowhere"], "holds no bench.json"),
        (["--streams", "1,two"], "--streams '1,two': expected numbers"),
        (["--repeats", "0"], "repeats is 0; allowed: 1 to 100"),
        (["--profile", "nothing"], "nothing"),
        (["--categories", "poem", "--no-prefill"], "no category 'poem'"),
        (["--lengths", "16"], "too short"),
        (["--variant-url", "nextn"], "expected NAME=URL"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(*args)
    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)
    assert not list(tmp_path.rglob("*.log"))
