"""Looking at a profile's files and flags: each check in order, and each finding what it is for."""

import json
from pathlib import Path
from typing import Any

import pytest
from model_folders import (
    MTP_TENSORS,
    TARGET_CONFIG,
    VOCABULARY,
    changed,
    dflash,
    draft_folder,
    nextn,
    only,
    profile,
    results,
    target_folder,
    words,
    write_safetensors,
)

from lossless.profiles import load_profile, shipped_names
from lossless.profiles.check import CheckResult, check_profile, summary
from lossless.profiles.profile import BASELINE, Baseline, Variant


@pytest.mark.parametrize("name", ["tiny", "tiny-bfloat16", "tiny-sglang-gpu"])
def test_the_shipped_tiny_model_is_in_order(name: str) -> None:
    found = check_profile(load_profile(name))
    assert {result.status for result in found} == {"ok"}
    names = {(result.subject, result.name) for result in found}
    assert {("target", "weight-files"), ("nextn", "mtp-weights"), ("dflash", "dense-lm-head")} <= names
    assert ("target", "prompt-room") in names
    assert summary(found) == f"{len(found)} ok"


def test_every_shipped_profile_can_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOSSLESS_SGLANG_CPU_SITE", "/somewhere")
    for name in shipped_names():
        assert all(result.status in ("ok", "skipped") for result in check_profile(load_profile(name))), name


def test_a_made_up_pair_is_in_order(tmp_path: Path) -> None:
    target, draft = target_folder(tmp_path / "target"), draft_folder(tmp_path / "draft", vocabulary=words())
    prompts = tmp_path / "p.jsonl"
    prompts.write_text(json.dumps({"id": "a", "category": "x", "ids": [2, 3]}) + "\n")
    found = check_profile(
        profile(
            target,
            nextn(speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4),
            dflash(draft, speculative_num_draft_tokens=8),
            args={"max-mamba-cache-size": 40},
            prompts=str(prompts),
        )
    )
    assert [result for result in found if result.status != "ok"] == []
    assert not any(result.remedy for result in found)


def test_results_come_by_severity_with_a_summary(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target", config=changed(TARGET_CONFIG, eos_token_id=None), mtp={})
    found = check_profile(profile(target, nextn(), args={"max-mamba-cache-size": 4}))
    statuses = [result.status for result in found]
    assert statuses == sorted(statuses, key=["fail", "warn", "skipped", "ok"].index)
    counts = {status: statuses.count(status) for status in statuses}
    assert counts["fail"] == 3  # no MTP head, too few slots for either server
    assert counts["warn"] == 1
    assert summary(found).startswith("3 failed, 1 warning, 1 skipped, ")
    assert all((result.remedy is not None) == (result.status in ("fail", "warn")) for result in found)
    assert summary([]) == "nothing to check"
    assert summary([CheckResult("x", "y", "warn", "", ""), CheckResult("x", "y", "warn", "", "")]) == "2 warnings"


# What cannot be looked at


def test_attached_servers_and_hub_ids_are_skipped() -> None:
    attached = profile(
        "auto",
        Variant("nextn", None, url="http://127.0.0.1:2"),
        kind="attach",
        command=(),
        baseline=Baseline(url="http://127.0.0.1:1"),
    )
    assert [(r.status, r.name) for r in check_profile(attached)] == [("skipped", "model-folder")]
    hub = profile("Qwen/Qwen3-8B", nextn(), dflash("incoai/Some-DFlash2"))
    assert {r.status for r in check_profile(hub)} == {"skipped", "ok"}
    assert "Qwen/Qwen3-8B is a hub id" in only(hub, "target", "model-folder").detail
    assert only(hub, "dflash", "draft-folder").status == "skipped"


def test_a_hub_draft_of_a_target_on_disk_is_skipped(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")
    result = only(profile(target, dflash("incoai/Some-DFlash2")), "dflash", "draft-folder")
    assert result.status == "skipped"
    assert "hub id" in result.detail


def test_other_algorithms_have_no_rules(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")
    draft = draft_folder(tmp_path / "draft")
    made = profile(target, Variant("eagle3", "EAGLE3", str(draft)), Variant("ngram", "NGRAM"))
    assert only(made, "eagle3", "draft-fit").status == "skipped"
    assert not [r for r in check_profile(made) if r.subject == "ngram" and r.name != "state-slots"]


def test_missing_folders_fail(tmp_path: Path) -> None:
    missing = only(profile(tmp_path / "none", nextn()), "target", "model-folder")
    assert missing.status == "fail"
    assert "none" in missing.detail
    (tmp_path / "empty").mkdir()
    assert "no config.json" in only(profile(tmp_path / "empty"), "target", "model-folder").detail
    assert only(profile("builtin:huge"), "target", "model-folder").status == "fail"
    target = target_folder(tmp_path / "target")
    assert only(profile(target, dflash(tmp_path / "none")), "dflash", "draft-folder").status == "fail"
    assert only(profile(target, dflash(None)), "dflash", "draft-folder").status == "fail"


@pytest.mark.parametrize("content", ["{", "[]", "\udcff"])
def test_a_broken_configuration_fails(tmp_path: Path, content: str) -> None:
    target = target_folder(tmp_path / "target")
    (target / "config.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    result = only(profile(target), "target", "model-folder")
    assert result.status == "fail"
    assert "config.json" in result.detail


# Weight files


def test_a_missing_weight_file_fails(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")
    (target / "model_mtp.safetensors").unlink()
    result = only(profile(target), "target", "weight-files")
    assert result.status == "fail"
    assert "model_mtp.safetensors is missing (model.safetensors.index.json names it)" in result.detail


def test_a_cut_off_weight_file_fails(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")
    path = target / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    result = only(profile(target), "target", "weight-files")
    assert result.status == "fail"
    assert "model.safetensors is broken: it is cut off" in result.detail


def test_index_and_headers_must_agree(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")
    write_safetensors(target / "model_mtp.safetensors", {"mtp.other.weight": ("BF16", (2, 2))})
    lost, extra = results(profile(target), "target", "weight-files")
    assert (lost.status, extra.status) == ("fail", "warn")
    assert "mtp.fc.weight" in lost.detail
    assert "mtp.other.weight" in extra.detail


def test_a_file_that_the_index_does_not_name_is_a_warning(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target", mtp={})
    write_safetensors(target / "model_mtp.safetensors", MTP_TENSORS)
    result = only(profile(target), "target", "weight-files")
    assert result.status == "warn"
    assert "model_mtp.safetensors, so SGLang does not load it" in result.detail
    head = only(profile(target, nextn()), "nextn", "mtp-weights")
    assert head.status == "fail"
    assert "names no tensor of the MTP head, though its file is there" in head.detail


def test_an_index_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")
    (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../x.safetensors"}}))
    found = results(profile(target), "target", "weight-files")
    assert found[0].status == "fail"
    assert "outside the folder" in found[0].detail
    (target / "model.safetensors.index.json").write_text("{}")
    assert "no weight_map" in only(profile(target), "target", "model-folder").detail


def test_a_folder_without_safetensors_is_skipped(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target", mtp={})
    for path in target.glob("*.safetensors*"):
        path.unlink()
    assert only(profile(target), "target", "weight-files").status == "skipped"
    assert only(profile(target, nextn()), "nextn", "mtp-weights").status == "skipped"


# Types


@pytest.mark.parametrize(
    ("entries", "status", "words_"),
    [
        ({"dtype": "auto"}, "ok", "bfloat16"),
        ({"dtype": "bfloat16"}, "ok", "bfloat16"),
        ({"dtype": "bf16"}, "fail", "use one of"),
        ({"dtype": "half"}, "warn", "their values change"),
        ({"dtype": "float32"}, "warn", "no float32 kernels"),
        ({"dtype": "float", "args": {"device": "cpu"}}, "ok", "float32"),
        ({"dtype": "float32", "kind": "reference"}, "ok", "float32"),
    ],
)
def test_dtypes(tmp_path: Path, entries: dict[str, Any], status: str, words_: str) -> None:
    result = only(profile(target_folder(tmp_path / "target"), **entries), "target", "dtype")
    assert result.status == status
    assert words_ in f"{result.detail} {result.remedy}"


def test_a_type_that_the_configuration_has_wrong(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target", config=changed(TARGET_CONFIG, dtype="float16"))
    result = only(profile(target), "target", "dtype")
    assert result.status == "warn"
    assert result.detail == "config.json says float16, the files hold bfloat16"


# Vocabulary and end tokens


def test_a_tokenizer_with_more_ids_than_rows_fails(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target", vocabulary=words(VOCABULARY + 1))
    result = only(profile(target), "target", "vocabulary")
    assert result.status == "fail"
    assert f"ids up to {VOCABULARY}, the model {VOCABULARY} rows" in result.detail


def test_fewer_ids_than_rows_are_in_order(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target", vocabulary=words(VOCABULARY - 4))
    assert only(profile(target), "target", "vocabulary").status == "ok"


def test_rows_must_match_the_configuration(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target", config=changed(TARGET_CONFIG, vocab_size=VOCABULARY + 8))
    result = only(profile(target), "target", "vocabulary")
    assert result.status == "fail"
    assert "lm_head.weight has 32 rows" in result.detail
    nothing = target_folder(tmp_path / "nothing", config=changed(TARGET_CONFIG, vocab_size=None))
    assert only(profile(nothing), "target", "vocabulary").status == "fail"


def test_a_missing_or_broken_tokenizer_is_skipped(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")
    (target / "tokenizer.json").write_text("{}")
    assert "cannot be read" in only(profile(target), "target", "vocabulary").detail
    (target / "tokenizer.json").unlink()
    assert only(profile(target), "target", "vocabulary").status == "skipped"


def test_end_tokens(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")
    (target / "generation_config.json").write_text('{"eos_token_id": [1, 0]}')
    assert only(profile(target), "target", "end-tokens").detail == "an answer ends at 0, 1"
    (target / "generation_config.json").write_text('{"eos_token_id": [99]}')
    assert only(profile(target), "target", "end-tokens").status == "fail"
    none = target_folder(tmp_path / "none", config=changed(TARGET_CONFIG, eos_token_id=None))
    assert only(profile(none), "target", "end-tokens").status == "warn"


# NEXTN


def test_a_checkpoint_without_the_head_fails_for_nextn(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target", mtp={})
    result = only(profile(target, nextn()), "nextn", "mtp-weights")
    assert result.status == "fail"
    assert "no mtp.* tensors" in result.detail
    other = target_folder(tmp_path / "other", mtp={}, config=changed(TARGET_CONFIG, architectures=["OtherModel"]))
    assert only(profile(other, nextn()), "nextn", "mtp-weights").status == "warn"


def test_the_head_may_be_the_layer_after_the_last(tmp_path: Path) -> None:
    config = changed(TARGET_CONFIG, architectures=["DeepseekV3ForCausalLM"])
    config["text_config"]["num_nextn_predict_layers"] = 1
    target = target_folder(tmp_path / "target", config=config, mtp={"model.layers.6.eh_proj.weight": ("BF16", (8, 16))})
    assert only(profile(target, nextn()), "nextn", "mtp-weights").status == "ok"


def test_the_copies_that_a_head_makes_are_told_before_they_cost_the_pool(tmp_path: Path) -> None:
    # Qwen3.8-27B's sizes; the field report measured 5.53 GB for a head of 0.85 GB.
    big = changed(TARGET_CONFIG, vocab_size=248320, hidden_size=5120)
    target = target_folder(tmp_path / "target", config=big)
    result = only(profile(target, nextn()), "nextn", "draft-memory")
    assert result.status == "warn"
    assert "4.7 GB more" in result.detail
    assert not results(profile(target, nextn(), args={"device": "cpu"}), "nextn", "draft-memory")
    assert not results(profile(target, nextn(), kind="reference"), "nextn", "draft-memory")


@pytest.mark.parametrize(
    ("flags", "status"),
    [
        ({}, "ok"),
        ({"speculative_num_steps": 3, "speculative_num_draft_tokens": 4}, "ok"),
        ({"speculative_num_steps": 3, "speculative_num_draft_tokens": 5}, "warn"),
        ({"speculative_num_steps": 3, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 16}, "ok"),
        ({"speculative_num_draft_tokens": 4}, "fail"),
        ({"speculative_eagle_topk": 1}, "fail"),
    ],
)
def test_the_flags_of_a_chain(tmp_path: Path, flags: dict[str, int], status: str) -> None:
    assert only(profile(target_folder(tmp_path / "target"), nextn(**flags)), "nextn", "chain").status == status


# Capacity


@pytest.mark.parametrize(
    ("flags", "slots", "status"),
    [
        ({}, 10, "ok"),  # 3 states and 2 that track, for each of 2 requests
        ({}, 8, "warn"),  # the field report: capped to 1
        ({}, 4, "fail"),
        ({"disable-overlap-schedule": True}, 6, "ok"),
        ({"disable-overlap-schedule": True, "page-size": 16}, 6, "warn"),
        ({"disable-overlap-schedule": True, "page-size": 16}, 8, "ok"),
        ({"mamba-radix-cache-strategy": "extra_buffer_lazy"}, 8, "ok"),
        ({"mamba-radix-cache-strategy": "no_buffer"}, 6, "ok"),
        ({"linear-attn-backend": "flashinfer"}, 6, "ok"),
        ({"disable-radix-cache": True}, 2, "ok"),
        ({"max-running-requests": 1}, 5, "ok"),
    ],
)
def test_state_slots(tmp_path: Path, flags: dict[str, Any], slots: int, status: str) -> None:
    target = target_folder(tmp_path / "target")
    made = profile(target, nextn(), concurrency=2, args={"max-mamba-cache-size": slots, **flags})
    assert only(made, "nextn", "state-slots").status == status
    assert only(made, BASELINE, "state-slots").status == status


def test_the_slots_of_the_field_report(tmp_path: Path) -> None:
    made = profile(target_folder(tmp_path / "target"), concurrency=2, args={"max-mamba-cache-size": 8})
    result = only(made, BASELINE, "state-slots")
    assert result.detail.startswith("max-mamba-cache-size 8 lets 1 of 2 requests run at once (5 slots each)")
    assert result.remedy is not None
    assert result.remedy.startswith("set max-mamba-cache-size = 10")


def test_slots_matter_for_hybrid_models_on_sglang_only(tmp_path: Path) -> None:
    plain = changed(TARGET_CONFIG, layer_types=["full_attention"] * 6)
    target = target_folder(tmp_path / "plain", config=plain)
    assert not results(profile(target, args={"max-mamba-cache-size": 4}), BASELINE, "state-slots")
    hybrid = target_folder(tmp_path / "hybrid")
    assert not results(profile(hybrid, kind="reference"), BASELINE, "state-slots")
    assert only(profile(hybrid), BASELINE, "state-slots").status == "skipped"
    # Without the files, whoever sizes the cache has a hybrid model.
    assert only(profile("a/b", args={"max-mamba-cache-size": 4}), BASELINE, "state-slots").status == "fail"


def prompt_file(folder: Path, tokens: int, max_new_tokens: int) -> str:
    path = folder / "prompts.jsonl"
    path.write_text(
        json.dumps(
            {
                "id": "long",
                "category": "x",
                "ids": [2],
                "exact_tokens": tokens,
                "sampling": {"max_new_tokens": max_new_tokens},
            }
        )
    )
    return str(path)


@pytest.mark.parametrize(
    ("entries", "status", "words_"),
    [
        ({}, "ok", "the longest of 1 requests takes 1100 of 4096 tokens"),
        ({"args": {"context-length": 1024}}, "fail", "context length is 1024 tokens"),
        ({"args": {"context-length": 1101}}, "fail", "cut off after 99 new tokens"),
        ({"args": {"context-length": 1102}}, "ok", "1100 of 1102"),
        ({"args": {"max-total-tokens": 1050}}, "fail", "the KV pool holds 1050 tokens"),
        ({"args": {"max-total-tokens": 1050}, "max_new_tokens": 40}, "ok", "1040 of 1050"),
    ],
)
def test_the_longest_prompt(tmp_path: Path, entries: dict[str, Any], status: str, words_: str) -> None:
    made = profile(target_folder(tmp_path / "target"), prompts=prompt_file(tmp_path, 1000, 100), **entries)
    result = only(made, "target", "prompt-room")
    assert result.status == status
    assert words_ in result.detail


def test_prompts_that_cannot_be_encoded_are_skipped(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")  # no chat template
    result = only(profile(target), "target", "prompt-room")
    assert result.status == "skipped"
    assert "could not be encoded" in result.detail


@pytest.mark.parametrize("config", [{"max_position_embeddings": None}, {"rope_scaling": {"factor": 4.0}}])
def test_a_context_that_config_json_does_not_say_is_skipped(tmp_path: Path, config: dict[str, Any]) -> None:
    changes = changed(TARGET_CONFIG)
    changes["text_config"] |= config
    target = target_folder(tmp_path / "target", config=changes)
    assert "how long the context is" in only(profile(target), "target", "prompt-room").detail
    prompts = prompt_file(tmp_path, 1000, 100)
    bounded = profile(target, prompts=prompts, args={"context-length": 1024})
    assert only(bounded, "target", "prompt-room").status == "fail"


def test_the_draft_is_looked_at_too(tmp_path: Path) -> None:
    target, draft = target_folder(tmp_path / "target"), draft_folder(tmp_path / "draft")
    (draft / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    result = only(profile(target, dflash(draft)), "dflash", "weight-files")
    assert result.status == "fail"
    assert "pointer of Git LFS" in result.detail
