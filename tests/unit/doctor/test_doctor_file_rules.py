"""Each rule over the files, on the tiny model as it is and with a planted fault."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doctor_cases import TINY, edited, measured, of_files, profile, rewrite, untrain

from lossless.doctor import RULES, Case, Finding, cases, diagnose
from lossless.doctor.file_rules import captured_layers, configs, files, lm_head, rotary, tokenizer
from lossless.profiles.checks.result import Subject
from lossless.profiles.profile import Variant

TARGET, DRAFT = TINY / "target", TINY / "dflash2"
FILE_RULES = (files, configs, lm_head, captured_layers, tokenizer, rotary)
Rule = Callable[[Case], Finding]


@pytest.fixture(scope="module")
def whole() -> Case:
    return of_files(TARGET, DRAFT)


@pytest.mark.parametrize("rule", FILE_RULES, ids=lambda r: r.__name__)
def test_the_tiny_pair_is_in_order(whole: Case, rule: Rule) -> None:
    found = rule(whole)
    assert (found.status, found.remedy) == ("ok", None), found
    assert found.rule == rule.__name__.replace("_", "-")


def test_an_own_head_is_in_order() -> None:
    own = of_files(TARGET)
    assert [rule(own).status for rule in FILE_RULES] == ["ok"] * len(FILE_RULES)


def test_without_folders_nothing_is_known() -> None:
    away = of_files("RedHatAI/Qwen3.8-27B-INT4", "incoai/Qwen3.8-27B-DFlash2")
    for rule in FILE_RULES:
        found = rule(away)
        assert found.status == "unknown"
        assert "hf download RedHatAI/Qwen3.8-27B-INT4" in found.detail


def test_a_draft_that_is_not_here_is_no_draft_in_order() -> None:
    found = of_files(TARGET, "incoai/Qwen3.8-27B-DFlash2")
    assert {rule.__name__: rule(found).status for rule in FILE_RULES} == {
        "files": "ok",
        "configs": "unknown",
        "lm_head": "unknown",
        "captured_layers": "unknown",
        "tokenizer": "ok",
        "rotary": "unknown",
    }


def test_a_separate_draft_of_another_algorithm_is_not_judged() -> None:
    other = replace(profile(TARGET), variants={"eagle": Variant("eagle", "EAGLE3", str(DRAFT))})
    (found,) = cases(other, None)
    assert (configs(found).status, configs(found).detail) == ("unknown", "no rules for a separate draft of EAGLE3")


def test_an_algorithm_without_a_draft_has_nothing_to_fit() -> None:
    (found,) = cases(replace(profile(TARGET), variants={"ngram": Variant("ngram", "NGRAM")}), None)
    assert (configs(found).status, files(found).status) == ("ok", "ok")


def _set(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        inner = config
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to

    return change


PLANTED: list[tuple[str, Rule, Callable[[dict[str, Any]], None], str, str]] = [
    ("vocabulary", configs, _set("vocab_size", to=5000), "wrong", "vocab_size 5000 (target: 4096)"),
    ("width", configs, _set("hidden_size", to=512), "wrong", "hidden_size 512 (target: 256)"),
    ("block", configs, _set("dflash_config", "block_size", to=4), "suspicious", "trained for blocks of 4"),
    ("mask", configs, _set("dflash_config", "mask_token_id", to=9999), "wrong", "mask_token_id 9999 is outside"),
    ("kind", configs, lambda c: (c.update(architectures=["X"]), c.pop("dflash_config")), "wrong", "no DFlash draft"),
    ("layers", captured_layers, _set("dflash_config", "target_layer_ids", to=[1, 3, 5, 7]), "wrong", "from 0 to 6"),
    ("count", captured_layers, _set("dflash_config", "num_target_layers", to=12), "wrong", "target of 12 layers"),
    ("theta", rotary, _set("rope_parameters", "rope_theta", to=1e6), "wrong", "rope_theta 10000.0 and"),
]


@pytest.mark.parametrize(("rule", "change", "status", "said"), [p[1:] for p in PLANTED], ids=[p[0] for p in PLANTED])
def test_a_planted_fault_of_the_draft_is_found(
    tmp_path: Path, rule: Rule, change: Callable[[dict[str, Any]], None], status: str, said: str
) -> None:
    found = rule(of_files(TARGET, edited(DRAFT, tmp_path / "draft", change), speculative_num_draft_tokens=8))
    assert found.status == status
    assert said in found.detail
    assert found.remedy


def test_another_base_of_the_rotary_embedding_is_suspicious(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["rope_theta"] = config["rope_parameters"]["rope_theta"] = 1e6

    found = rotary(of_files(TARGET, edited(DRAFT, tmp_path / "draft", change)))
    assert (found.status, found.detail[:32]) == ("suspicious", "the draft's theta is 1e+06, the ")
    assert found.numbers["draft"]["theta"] == 1e6


def test_a_scaled_target_with_an_unscaled_draft_is_suspicious(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["text_config"]["rope_parameters"] |= {"rope_type": "yarn", "factor": 4.0}

    target = edited(TARGET, tmp_path / "target", change)
    found = rotary(of_files(target, DRAFT))
    assert found.status == "suspicious"
    assert "(yarn, factor 4)" in found.detail
    assert rotary(of_files(target)).status == "ok"  # the head shares the target's config


@pytest.mark.parametrize(("context", "status"), [(4096, "ok"), (8192, "suspicious")])
def test_the_draft_must_reach_as_far_as_the_context(context: int, status: str) -> None:
    found = rotary(of_files(TARGET, DRAFT, context_length=context))
    assert found.status == status
    assert (f"context is {context} tokens" in found.detail) == (status != "ok")


def test_a_draft_without_some_of_its_tensors_is_wrong(tmp_path: Path) -> None:
    draft = edited(DRAFT, tmp_path / "draft")
    rewrite(draft / "model.safetensors", lambda name, value: None if name.startswith(("fc.", "layers.1.")) else value)
    found = files(of_files(TARGET, draft))
    assert (found.status, found.numbers["missing"]) == ("wrong", ["fc", "layers.1"])


def test_a_missing_file_is_wrong(tmp_path: Path) -> None:
    target = edited(TARGET, tmp_path / "target")
    (target / "model_mtp.safetensors").unlink()
    assert files(of_files(target)).status == "wrong"


def test_a_checkpoint_without_its_head_is_wrong(tmp_path: Path) -> None:
    target = edited(TARGET, tmp_path / "target")
    (target / "model_mtp.safetensors").unlink()
    index = target / "model.safetensors.index.json"
    lines = index.read_text(encoding="utf-8").splitlines()
    kept = "\n".join(line for line in lines if "mtp" not in line)
    index.write_text(kept.replace(",\n  }", "\n  }").replace(",\n    }", "\n    }"), encoding="utf-8")
    found = lm_head(of_files(target))
    assert (found.status, "random weights" in found.detail) == ("wrong", True)


def test_a_quantized_output_head_is_suspicious(tmp_path: Path) -> None:
    target = edited(TARGET, tmp_path / "target")
    for path in target.glob("model-*.safetensors"):
        rewrite(path, lambda name, value: value.astype("int8") if name == "lm_head.weight" else value)
    found = lm_head(of_files(target, DRAFT))
    assert (found.status, "lm_head is quantized" in found.detail) == ("suspicious", True)


@pytest.mark.parametrize(("own", "constant"), [(False, 1.0), (True, 0.0)], ids=["dflash", "nextn"])
def test_an_untrained_head_is_suspicious_and_with_nothing_accepted_wrong(
    tmp_path: Path, own: bool, constant: float
) -> None:
    target = edited(TARGET, tmp_path / "target")
    draft = edited(DRAFT, tmp_path / "draft")
    untrain(target / "model_mtp.safetensors" if own else draft / "model.safetensors", constant)
    found = of_files(target) if own else of_files(target, draft)
    assert lm_head(found).status == "suspicious"
    assert lm_head(replace(found, run=measured({"code": 1.04}))).status == "wrong"
    assert lm_head(replace(found, run=measured({"code": 3.0}))).status == "suspicious"


@pytest.mark.parametrize(("moved", "status"), [(2, "suspicious"), (1000, "wrong")])
def test_a_tokenizer_with_other_ids_is_wrong(tmp_path: Path, moved: int, status: str) -> None:
    draft = edited(DRAFT, tmp_path / "draft")
    path = draft / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    words = list(content["model"]["vocab"])[-moved:]
    ids = [content["model"]["vocab"][word] for word in words]
    content["model"]["vocab"] |= dict(zip(words, [*ids[1:], ids[0]], strict=True))
    path.write_text(json.dumps(content), encoding="utf-8")
    assert tokenizer(of_files(TARGET, draft)).status == status


def test_a_draft_without_a_tokenizer_uses_the_targets(tmp_path: Path) -> None:
    draft = edited(DRAFT, tmp_path / "draft")
    (draft / "tokenizer.json").unlink()
    assert tokenizer(of_files(TARGET, draft)).status == "ok"


@pytest.mark.parametrize(("version", "status"), [(None, "suspicious"), ("0.5.19", "wrong"), ("0.5.23", "ok")], ids=str)
def test_layers_one_early_is_a_fault_of_one_version(tmp_path: Path, version: str | None, status: str) -> None:
    target = edited(TARGET, tmp_path / "target", lambda c: c.update(architectures=["Qwen3_5ForCausalLM"]))
    found = of_files(target, DRAFT)
    run = None if version is None else measured(version=version)
    assert captured_layers(replace(found, run=run)).status == status


def test_every_rule_has_a_name_of_its_own(whole: Case) -> None:
    names = [rule(whole).rule for rule in RULES]
    assert len(set(names)) == len(names)


def test_the_first_thing_wrong_is_a_cause_and_not_its_consequence(tmp_path: Path) -> None:
    draft = edited(DRAFT, tmp_path / "draft", _set("dflash_config", "num_target_layers", to=12))
    found = diagnose(replace(of_files(TARGET, draft), run=measured({"code": 1.04})))
    assert found.outcome == "wrong"
    assert found.conclusion.startswith("first thing wrong: captured-layers: ")


def test_a_suspicion_above_is_named_as_the_likely_cause(whole: Case) -> None:
    checks = (*(whole.checks or ()), Subject("dflash").warn("block-size", "blocks of 4", "set it to 4"))
    found = diagnose(replace(whole, checks=checks, run=measured({"code": 1.04})))
    assert found.conclusion.startswith("first thing wrong: draft-head: ")
    assert found.conclusion.endswith("A likely cause stands above it: configs.")
    assert found.next == "set it to 4"
