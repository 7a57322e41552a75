"""``lossless init --url``: two running servers become an attach profile, without a key in it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from lossless.commands import init
from lossless.profiles import load_profile
from lossless.profiles.survey import Seen, survey_servers
from lossless.profiles.writing import profile_toml
from lossless.reference.background import background
from lossless.servers.pair import ServerFacts

app = typer.Typer(rich_markup_mode=None)
app.callback()(lambda: None)
init.register(app)

INFO: dict[str, Any] = {"version": "0.5.19", "dtype": "bfloat16", "context_length": 8192, "max_running_requests": 4}
BASE = Seen("http://127.0.0.1:30000/", ServerFacts(INFO, {"model_path": "/models/Qwen3-8B"}))
NEXTN = Seen(
    "http://127.0.0.1:30100",
    ServerFacts({**INFO, "speculative_algorithm": "EAGLE"}, {"model_path": "/models/Qwen3-8B"}),
)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[str, str]]:
    with (
        background(["--model-path", "builtin:tiny"]) as base,
        background(["--model-path", "builtin:tiny", "--speculative-algorithm", "NEXTN"]) as nextn,
    ):
        yield base, nextn


def written(tmp_path: Path, facts: Any) -> Path:
    path = tmp_path / "p.toml"
    path.write_text(profile_toml(facts, path), encoding="utf-8")
    return path


def test_running_servers_become_a_profile(
    pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-do-not-write-this-anywhere")
    path = tmp_path / "servers.toml"
    options = ["--url", pair[0], "--variant-url", f"nextn={pair[1]}", "--api-key-env", "MY_KEY", "-o", str(path)]
    result = CliRunner().invoke(app, ["init", *options], env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    assert f"wrote {path}" in result.output.replace("\n", "")
    profile = load_profile(str(path))
    assert (profile.kind, profile.target, profile.api_key_env) == ("attach", "auto", "MY_KEY")
    assert (profile.baseline.url, profile.variants["nextn"].url) == pair
    assert profile.variants["nextn"].algorithm == "EAGLE"
    assert "sk-do-not" not in path.read_text(encoding="utf-8") + result.output + result.stderr
    assert "NOT A" not in path.read_text(encoding="utf-8")


def test_what_keeps_servers_from_being_a_pair_is_told(tmp_path: Path) -> None:
    other = replace(NEXTN, facts=replace(NEXTN.facts, server_info={**NEXTN.facts.server_info, "dtype": "float16"}))
    text = written(tmp_path, survey_servers(BASE, {"nextn": other})).read_text(encoding="utf-8")
    assert "# NOT A PAIR: dtype: baseline 'bfloat16', variant 'float16'" in text
    assert '# allow_differences = ["dtype"]' in text
    profile = load_profile(str(tmp_path / "p.toml"))
    assert (profile.allow_differences, profile.concurrency) == ((), 4)


def test_a_baseline_that_speculates_and_a_variant_that_does_not_are_told(tmp_path: Path) -> None:
    text = written(tmp_path, survey_servers(NEXTN, {"plain": BASE})).read_text(encoding="utf-8")
    assert "# NOT A BASELINE: speculative_algorithm is 'EAGLE', expected none" in text
    assert "# NOT LOSSLESS: speculative_algorithm is None, expected an algorithm" in text


def test_what_a_server_calls_itself_stays_a_comment_and_holds_no_key(tmp_path: Path) -> None:
    evil = {**INFO, "version": '0.5.19\nkind = "sglang"\n# --api-key=sk-abcdefghijklmnopqrstuvwxyz'}
    facts = survey_servers(replace(BASE, facts=replace(BASE.facts, server_info=evil)), {"nextn": NEXTN})
    path = written(tmp_path, facts)
    assert load_profile(str(path)).kind == "attach"
    assert "abcdefghijkl" not in path.read_text(encoding="utf-8")


def test_a_model_that_is_elsewhere_needs_a_tokenizer(tmp_path: Path) -> None:
    facts = survey_servers(BASE, {"nextn": NEXTN}, name="mine")
    assert "/models/Qwen3-8B is not a folder on this machine: set target" in "\n".join(facts.found)
    assert load_profile(str(written(tmp_path, facts))).name == "mine"


def test_the_tokenizer_may_be_in_a_folder_of_its_own(pair: tuple[str, str], tmp_path: Path) -> None:
    options = ["--url", pair[0], "--variant-url", f"nextn={pair[1]}", "-o", str(tmp_path / "p.toml"), "--target"]
    missing = CliRunner().invoke(app, ["init", *options, str(tmp_path)])
    assert "there is no tokenizer.json in that folder" in str(missing.exception)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert CliRunner().invoke(app, ["init", *options, str(tmp_path)]).exit_code == 0
    assert load_profile(str(tmp_path / "p.toml")).target == str(tmp_path)
