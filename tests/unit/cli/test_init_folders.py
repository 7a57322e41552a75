"""``lossless init --target``: the file that it writes loads, and passes the profile check."""

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from syrupy.assertion import SnapshotAssertion
from typer.testing import CliRunner

from lossless.commands import init
from lossless.errors import LosslessError, UsageError
from lossless.profiles import load_profile
from lossless.profiles.check import check_profile
from lossless.profiles.checks.model_folder import ModelFolder
from lossless.profiles.safetensors_header import TensorInfo
from lossless.profiles.survey import survey_folders
from lossless.profiles.writing import profile_name, profile_toml, toml_value
from lossless.reference.builtin import builtin_path
from lossless.servers.argv import server_argv

TARGET, DRAFT = builtin_path() / "target", builtin_path() / "dflash2"
GB = 1024**3

app = typer.Typer(rich_markup_mode=None)
app.callback()(lambda: None)
init.register(app)


def run(*args: str | Path) -> Any:
    return CliRunner().invoke(app, ["init", *map(str, args)], env={"COLUMNS": "100"})


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def large(name: str = "Qwen3.8-27B-INT4", gigabytes: int = 17, **config: Any) -> ModelFolder:
    """A quantized hybrid model of that size, without a file."""
    text = {
        "num_hidden_layers": 64,
        "vocab_size": 248320,
        "max_position_embeddings": 262144,
        "linear_num_value_heads": 48,
    }
    whole = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": text,
        "vision_config": {},
        "quantization_config": {"quant_method": "compressed-tensors"},
        **config,
    }
    headers = {
        "model.safetensors": {
            "model.layers.0.mlp.weight_packed": TensorInfo("I32", (gigabytes * GB // 4,)),
            "mtp.fc.weight": TensorInfo("BF16", (5120, 10240)),
        }
    }
    return ModelFolder(Path("/models") / name, whole, {}, None, headers, {})


def test_target_and_draft_become_a_profile(snapshot: SnapshotAssertion) -> None:
    result = run("--target", TARGET, "--draft", DRAFT, "--name", "mine")
    assert result.exit_code == 0, result.output
    assert result.output == snapshot(name="printed")
    text = Path("mine.toml").read_text(encoding="utf-8")
    assert text.replace(str(builtin_path()), "/models/tiny") == snapshot(name="written")
    profile = load_profile("mine.toml")
    assert (profile.name, profile.kind, profile.dtype) == ("mine", "sglang", "bfloat16")
    assert (profile.target, profile.variants["dflash"].draft) == (str(TARGET), str(DRAFT))
    assert {r.status for r in check_profile(profile)} == {"ok"}
    argv = server_argv(profile, "dflash", 30000)
    at = argv.index("--speculative-num-draft-tokens")
    assert (argv[at + 1], argv[argv.index("--max-mamba-cache-size") + 1]) == ("8", "40")


def test_a_target_alone_gets_its_own_head(tmp_path: Path) -> None:
    assert run("--target", TARGET).exit_code == 0
    assert list(load_profile(str(tmp_path / "target.toml")).variants) == ["nextn"]


def test_a_draft_alone_is_the_variant_of_a_target_without_a_head(tmp_path: Path) -> None:
    target = tmp_path / "Headless Target"
    shutil.copytree(TARGET, target)
    (target / "model_mtp.safetensors").unlink()
    index = target / "model.safetensors.index.json"
    content = json.loads(index.read_text(encoding="utf-8"))
    content["weight_map"] = {k: v for k, v in content["weight_map"].items() if not k.startswith("mtp.")}
    index.write_text(json.dumps(content), encoding="utf-8")
    assert run("--target", target, "--draft", DRAFT).exit_code == 0
    assert list(load_profile("headless-target.toml").variants) == ["dflash"]
    with pytest.raises(UsageError, match="there is nothing to compare"):
        survey_folders(ModelFolder.read(target), None)


@pytest.mark.parametrize("card_gb", [None, 32.0])
def test_a_large_model_gets_the_flags_of_a_small_card(card_gb: float | None) -> None:
    facts = survey_folders(large(), None, card_gb=card_gb)
    Path("p.toml").write_text(profile_toml(facts, Path("p.toml")), encoding="utf-8")
    profile = load_profile("p.toml")
    assert (profile.name, profile.concurrency, profile.dtype) == ("qwen3.8-27b-int4", 2, "auto")
    assert profile.args["max-mamba-cache-size"] == 10
    assert profile.args["context-length"] == 32768
    assert profile.args["language-only"] is True
    assert profile.args["mem-fraction-static"] == 0.92
    # Nobody said how large the card is: then what costs speed or precision is a hint.
    assert ("mamba-ssm-dtype" in profile.args, "cuda-graph-backend-prefill" in profile.args) == (
        card_gb is not None,
        card_gb is not None,
    )
    assert "kv-cache-dtype" not in profile.args


def test_a_large_card_needs_no_such_flags() -> None:
    facts = survey_folders(large(), None, card_gb=80)
    flags = {flag.name for flag in facts.args}
    assert "cuda-graph-backend-prefill" not in flags
    assert facts.concurrency == 8


def test_a_card_too_small_is_told() -> None:
    with pytest.raises(UsageError, match=r"take 17\.1 GB, one card has 16 GB"):
        survey_folders(large(), None, card_gb=16)


def test_eagle_drafts_are_known_and_others_are_not() -> None:
    draft = ModelFolder(Path("/d"), {"architectures": ["LlamaForCausalLMEagle3"]}, {}, None, {}, {})
    assert survey_folders(large(), draft).variants[1].algorithm == "EAGLE3"
    other = ModelFolder(Path("/d"), {"architectures": ["LlamaForCausalLM"]}, {}, None, {}, {})
    with pytest.raises(UsageError, match="known: DFlash, DFlash2, EAGLE, EAGLE3"):
        survey_folders(large(), other)


def test_a_block_size_that_nobody_names_is_left_to_sglang() -> None:
    draft = ModelFolder(Path("/d"), {"architectures": ["DFlashDraftModel"]}, {}, None, {}, {})
    variant = survey_folders(large(), draft).variants[1]
    assert (dict(variant.args), variant.notes) == ({}, ("The draft does not say its block size; SGLang takes 16.",))


def test_an_existing_file_is_kept_without_force() -> None:
    Path("target.toml").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=r"target\.toml exists already"):
        CliRunner().invoke(app, ["init", "--target", str(TARGET)], catch_exceptions=False)
    assert Path("target.toml").read_text(encoding="utf-8") == "mine"
    assert run("--target", TARGET, "--force").exit_code == 0
    assert load_profile("target.toml").name == "target"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "nothing to write a profile for"),
        (
            ("--draft", TARGET, "--url", "http://127.0.0.1:1", "--variant-url", "nextn=http://127.0.0.1:2"),
            "running ones have their draft",
        ),
        (("--target", "nowhere"), "--target nowhere: there is no such folder"),
        (("--draft", DRAFT), "without the target it drafts for"),
        (("--target", DRAFT.parent), "has no config.json"),
        (("--target", TARGET, "--draft", TARGET), "no kind of draft that is known"),
        (("--target", TARGET, "--name", "My Profile"), "must be lower-case letters"),
        (("--target", TARGET, "-o", "x.json"), "a profile file ends in .toml"),
        (("--target", TARGET, "-o", "no/where.toml"), "there is no folder no"),
        (("--target", TARGET, "--api-key-env", "KEY"), "--api-key-env KEY is for --url"),
        (("--url", "http://127.0.0.1:1"), "without any variant's address"),
        (("--variant-url", "a=http://127.0.0.1:1"), "without the baseline's address"),
        (("--url", "http://127.0.0.1:1", "--variant-url", "x"), "expected NAME=URL"),
        (("--url", "127.0.0.1:1", "--variant-url", "a=http://127.0.0.1:1"), "is not an address"),
        (("--url", "http://127.0.0.1:1", "--variant-url", "a=http://127.0.0.1:1"), "cannot connect to"),
    ],
    ids=lambda value: " ".join(Path(v).name for v in value) if isinstance(value, tuple) else None,
)
def test_wrong_input_says_what_would_be_right(args: tuple[str | Path, ...], said: str) -> None:
    result = run(*args)
    assert isinstance(result.exception, LosslessError)
    assert said in result.exception.message
    assert not list(Path.cwd().glob("*.toml"))


def test_names_are_made_of_folders() -> None:
    assert profile_name("Qwen3.8-27B INT4!") == "qwen3.8-27b-int4"
    assert profile_name("模型") == "my-profile"


@pytest.mark.parametrize("value", ['a "b" \\ c\n\t\x7f é 模', True, 3, 0.5, ("a", 1)])
def test_values_are_written_so_that_they_read_back(value: Any) -> None:
    read = tomllib.loads(f"x = {toml_value(value)}")["x"]
    assert (tuple(read) if isinstance(read, list) else read) == value


def test_a_path_that_would_be_read_as_a_variable_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        toml_value("/models/${HOME}")
