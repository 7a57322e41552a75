"""Whether the quantization that a checkpoint declares is the one in its files."""

from pathlib import Path
from typing import Any

import pytest
from model_folders import (
    LAYERS,
    MTP_TENSORS,
    TARGET_CONFIG,
    TARGET_TENSORS,
    WIDTH,
    Tensors,
    changed,
    profile,
    results,
    target_folder,
)

from lossless.profiles.checks.result import CheckResult

PREFIX = "model.language_model"
IGNORED = ["lm_head", "re:.*in_proj_a$", "re:^mtp.*"]


def packed(module: str) -> Tensors:
    return {
        f"{module}.weight_packed": ("I32", (16, 1)),
        f"{module}.weight_scale": ("BF16", (16, 1)),
        f"{module}.weight_shape": ("I32", (2,)),
    }


def int4_tensors(prefix: str = PREFIX, *, packed_parts: tuple[str, ...] = ("in_proj_qkv", "down_proj")) -> Tensors:
    """A target whose layers have some of their linear parts quantized."""
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, info in TARGET_TENSORS.items():
        key = name.replace(PREFIX, prefix)
        if any(f".{part}." in name for part in packed_parts):
            tensors |= packed(key.removesuffix(".weight"))
        else:
            tensors[key] = info
    return tensors


def declared(ignore: list[str], method: str = "compressed-tensors", key: str = "ignore") -> dict[str, Any]:
    return {
        "quant_method": method,
        key: ignore,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4}}},
    }


def check(
    folder: Path, quantization: dict[str, Any] | None, tensors: Tensors, mtp: Tensors = MTP_TENSORS
) -> list[CheckResult]:
    config = TARGET_CONFIG if quantization is None else changed(TARGET_CONFIG, quantization_config=quantization)
    target = target_folder(folder / "target", config=config, tensors=tensors, mtp=mtp)
    return results(profile(target), "target", "quantization")


def test_the_clean_checkpoint_of_the_field_report(tmp_path: Path) -> None:
    (result,) = check(tmp_path, declared(IGNORED), int4_tensors())
    assert result.status == "ok"
    # in_proj_a of every layer, lm_head, and the two modules of the MTP head
    assert result.detail == f"compressed-tensors: {2 * LAYERS} modules quantized, {LAYERS + 3} kept dense by 3 entries"


def test_another_prefix_with_quantized_layers_is_the_garbage_of_the_field_report(tmp_path: Path) -> None:
    # config.json: model.language_model.layers.N.linear_attn is dense; the files: model.layers.N.linear_attn, quantized
    ignore = [f"{PREFIX}.layers.0.linear_attn.in_proj_qkv", "re:.*in_proj_a$", "re:^mtp.*"]
    (result,) = check(tmp_path, declared(ignore), int4_tensors("model"))
    assert result.status == "fail"
    assert (
        f"names '{PREFIX}.layers.0.linear_attn.in_proj_qkv', the files have 'model.layers.0.linear_attn.in_proj_qkv'"
        in result.detail
    )
    assert "it is stored quantized" in result.detail


def test_another_prefix_of_a_parent_matters_where_names_are_looked_for_anywhere(tmp_path: Path) -> None:
    ignore = [f"{PREFIX}.layers.0.linear_attn", "in_proj_a", "mtp"]
    (result,) = check(tmp_path, declared(ignore, "awq", "modules_to_not_convert"), int4_tensors("model"))
    assert result.status == "fail"
    assert "model.layers.0.linear_attn.in_proj_qkv" in result.detail


def test_another_prefix_with_dense_layers_is_a_warning(tmp_path: Path) -> None:
    ignore = [*(f"model.layers.{layer}.linear_attn.in_proj_a" for layer in range(LAYERS)), "re:^mtp.*"]
    found = check(tmp_path, declared(ignore), int4_tensors())
    assert {result.status for result in found} == {"warn"}
    assert len(found) == LAYERS
    assert all("another prefix" in result.detail for result in found)


def test_an_ignored_layer_that_is_quantized_fails(tmp_path: Path) -> None:
    (result,) = check(tmp_path, declared([*IGNORED, "re:.*layers\\.3\\.mlp.*"]), int4_tensors())
    assert result.status == "fail"
    assert f"{PREFIX}.layers.3.mlp.down_proj is stored quantized" in result.detail


def test_a_dense_layer_that_is_not_ignored_is_a_warning(tmp_path: Path) -> None:
    (result,) = check(tmp_path, declared(["lm_head", "re:^mtp.*"]), int4_tensors())
    assert result.status == "warn"
    assert "in_proj_a" in result.detail
    assert "not on the ignore list" in result.detail


def test_a_dense_head_of_a_quantized_checkpoint_must_be_ignored(tmp_path: Path) -> None:
    (result,) = check(tmp_path, declared(["lm_head", "re:.*in_proj_a$"]), int4_tensors())
    assert result.status == "warn"
    assert "mtp.fc" in result.detail


def test_names_may_be_suffixes_and_parents(tmp_path: Path) -> None:
    # llm-compressor also lists parent modules; as plain names they match nothing below them.
    ignore = ["lm_head", "linear_attn.in_proj_a", f"{PREFIX}.layers.0.mlp", "re:^mtp.*"]
    (result,) = check(tmp_path, declared(ignore), int4_tensors())
    assert result.status == "ok"


def test_entries_for_parts_that_are_not_there_do_no_harm(tmp_path: Path) -> None:
    ignore = [*IGNORED, "re:.*visual.*", "model.visual.blocks.0.attn.qkv", "vision_tower"]
    (result,) = check(tmp_path, declared(ignore), int4_tensors())
    assert result.status == "ok"


@pytest.mark.parametrize(
    ("method", "key", "ignore"),
    [
        ("awq", "modules_to_not_convert", ["in_proj_a", "mtp", "lm_head"]),
        ("fp8", "ignored_layers", ["in_proj_a", "mtp", "lm_head"]),
        ("modelopt", "exclude_modules", ["*in_proj_a", "mtp*", "lm_head"]),
    ],
)
def test_other_methods_name_their_lists_otherwise(tmp_path: Path, method: str, key: str, ignore: list[str]) -> None:
    (result,) = check(tmp_path, declared(ignore, method, key), int4_tensors())
    assert result.status == "ok"


def test_8_bit_weights_are_quantized_without_packing(tmp_path: Path) -> None:
    tensors = {name: ("F8_E4M3", info[1]) if ".down_proj." in name else info for name, info in int4_tensors().items()}
    (result,) = check(tmp_path, declared([*IGNORED, "re:.*down_proj$"], "fp8", "ignored_layers"), dict(tensors))
    assert result.status == "fail"
    assert "down_proj" in result.detail


def test_a_broken_pattern_fails(tmp_path: Path) -> None:
    found = check(tmp_path, declared([*IGNORED, "re:("]), int4_tensors())
    assert found[0].status == "fail"
    assert "not a regular expression" in found[0].detail


def test_declared_but_not_done_and_done_but_not_declared(tmp_path: Path) -> None:
    (dense,) = check(tmp_path, declared(IGNORED), TARGET_TENSORS)
    assert dense.status == "warn"
    assert "no tensor is quantized" in dense.detail
    (tmp_path / "other").mkdir()
    (silent,) = check(tmp_path / "other", None, int4_tensors())
    assert silent.status == "fail"
    assert "declares no quantization" in silent.detail


def test_the_declaration_may_stand_in_the_text_part(tmp_path: Path) -> None:
    config = changed(TARGET_CONFIG)
    config["text_config"]["quantization_config"] = declared(IGNORED)
    target = target_folder(tmp_path / "target", config=config, tensors=int4_tensors())
    (result,) = results(profile(target), "target", "quantization")
    assert result.status == "ok"


def test_a_dense_model_is_in_order(tmp_path: Path) -> None:
    (result,) = check(tmp_path, None, TARGET_TENSORS, {"mtp.fc.weight": ("BF16", (WIDTH, 2 * WIDTH))})
    assert (result.status, result.detail) == ("ok", "none: dense weights")
