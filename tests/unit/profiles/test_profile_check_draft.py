"""Whether a DFlash2 draft belongs to its target."""

from pathlib import Path
from typing import Any

import pytest
from model_folders import (
    DRAFT_CONFIG,
    DRAFT_TENSORS,
    LAYERS,
    TARGET_CONFIG,
    TARGET_TENSORS,
    VOCABULARY,
    WIDTH,
    Tensors,
    changed,
    dflash,
    draft_folder,
    only,
    profile,
    results,
    target_folder,
    words,
)

from lossless.profiles.checks.result import CheckResult


def check(
    folder: Path,
    name: str,
    *,
    target: dict[str, Any] | None = None,
    tensors: Tensors = TARGET_TENSORS,
    draft: dict[str, Any] | None = None,
    draft_tensors: Tensors = DRAFT_TENSORS,
    tp_size: int = 1,
    **flags: int,
) -> CheckResult:
    """One check of a made-up pair, with parts of it changed."""
    ours = target_folder(folder / "target", config=changed(TARGET_CONFIG, **(target or {})), tensors=tensors)
    theirs = draft_folder(folder / "draft", config=changed(DRAFT_CONFIG, **(draft or {})), tensors=draft_tensors)
    return only(profile(ours, dflash(theirs, **flags), tp_size=tp_size), "dflash", name)


def test_a_draft_that_is_none(tmp_path: Path) -> None:
    result = check(tmp_path, "draft-kind", draft={"architectures": ["Qwen3ForCausalLM"], "dflash_config": None})
    assert result.status == "fail"
    assert "Qwen3ForCausalLM" in result.detail


def test_dflash2_names_the_version_it_needs(tmp_path: Path) -> None:
    assert "0.5.19" in check(tmp_path, "draft-kind").detail
    first = {"architectures": ["DFlashDraftModel"], "selector_rank": None}
    (tmp_path / "v1").mkdir()
    assert "0.5.19" not in check(tmp_path / "v1", "draft-kind", draft=first).detail


@pytest.mark.parametrize(
    ("key", "value", "words_"),
    [
        ("vocab_size", VOCABULARY + 1, f"vocab_size {VOCABULARY + 1} (target: {VOCABULARY})"),
        ("hidden_size", 2 * WIDTH, f"hidden_size {2 * WIDTH} (target: {WIDTH})"),
    ],
)
def test_sizes_must_agree(tmp_path: Path, key: str, value: int, words_: str) -> None:
    result = check(tmp_path, "draft-sizes", draft={key: value})
    assert result.status == "fail"
    assert words_ in result.detail


def test_the_size_of_the_draft_is_told(tmp_path: Path) -> None:
    assert "0.0 MB of weights (" in check(tmp_path, "draft-sizes").detail


@pytest.mark.parametrize(
    ("vocabulary", "status"),
    [
        (words(), "ok"),
        (words(VOCABULARY - 1), "ok"),  # another file, the same ids
        ({**words(), "t1": 2, "t2": 1}, "fail"),
        (None, "skipped"),
    ],
)
def test_tokenizers(tmp_path: Path, vocabulary: dict[str, int] | None, status: str) -> None:
    target = target_folder(tmp_path / "target")
    draft = draft_folder(tmp_path / "draft", vocabulary=vocabulary)
    assert only(profile(target, dflash(draft)), "dflash", "draft-tokenizer").status == status


def test_a_few_other_tokens_are_a_warning(tmp_path: Path) -> None:
    many = words(1000)
    target = target_folder(tmp_path / "target", vocabulary=many)
    draft = draft_folder(tmp_path / "draft", vocabulary={**many, "extra": 1000})
    result = only(profile(target, dflash(draft)), "dflash", "draft-tokenizer")
    assert result.status == "warn"
    assert "extra" in result.detail


@pytest.mark.parametrize(
    ("draft", "words_"),
    [
        ({"target_layer_ids": [1, LAYERS]}, "not all from 0 to 4"),
        ({"target_layer_ids": [1, LAYERS - 1]}, "not all from 0 to 4"),  # after the last layer nothing is captured
        ({"target_layer_ids": [-1, 4]}, "(-1 is not)"),
        ({"target_layer_ids": [4, 1]}, "do not rise"),
        ({"target_layer_ids": []}, "must be a list of layers"),
        ({"target_layer_ids": "all"}, "must be a list of layers"),
        ({"target_layer_ids": [1, 2, 4]}, "fc.weight takes 16 features, 3 layers of width 8 give 24"),
        ({"num_target_layers": 8}, "trained on a target of 8 layers, this one has 6"),
    ],
)
def test_captured_layers(tmp_path: Path, draft: dict[str, Any], words_: str) -> None:
    result = check(tmp_path, "target-layers", draft=draft)
    assert result.status == "fail"
    assert words_ in result.detail


def test_captured_layers_may_be_left_to_the_server(tmp_path: Path) -> None:
    result = check(tmp_path, "target-layers", draft={"target_layer_ids": None})
    assert result.status == "ok"
    assert "not named" in result.detail


def head(**parts: tuple[str, tuple[int, ...]]) -> Tensors:
    """The target's tensors with another output head."""
    kept = {name: info for name, info in TARGET_TENSORS.items() if not name.startswith("lm_head")}
    return kept | {f"lm_head.{part}": info for part, info in parts.items()}


PACKED_HEAD = {"weight_packed": ("I32", (VOCABULARY, 1)), "weight_scale": ("BF16", (VOCABULARY, 1))}


def test_a_dense_head_is_in_order(tmp_path: Path) -> None:
    assert check(tmp_path, "dense-lm-head").detail == "lm_head.weight is BF16"


@pytest.mark.parametrize(
    ("tensors", "tp_size", "status"),
    [
        (head(**PACKED_HEAD), 1, "warn"),
        (head(**PACKED_HEAD), 2, "fail"),
        (head(weight=("F8_E4M3", (VOCABULARY, WIDTH))), 1, "warn"),
        (head(weight=("F32", (VOCABULARY, WIDTH))), 2, "ok"),
        (head(), 1, "skipped"),
    ],
)
def test_a_quantized_head(tmp_path: Path, tensors: Tensors, tp_size: int, status: str) -> None:
    result = check(tmp_path, "dense-lm-head", tensors=tensors, tp_size=tp_size)
    assert result.status == status
    if status in ("warn", "fail"):
        assert "the target's lm_head is quantized" in result.detail


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    result = check(tmp_path, "dense-lm-head", target={"tie_word_embeddings": True}, tensors=head())
    assert result.detail == "embed_tokens.weight is BF16"


def test_a_draft_without_a_selector_needs_no_dense_head(tmp_path: Path) -> None:
    first = {"architectures": ["DFlashDraftModel"], "selector_rank": None}
    assert check(tmp_path, "dense-lm-head", draft=first, tensors=head(**PACKED_HEAD)).status == "ok"


@pytest.mark.parametrize(
    ("draft", "status", "words_"),
    [
        ({"mask_token_id": 5}, "ok", "id 5"),
        ({"mask_token_id": VOCABULARY}, "fail", "outside the target's vocabulary of 32"),
        ({"mask_token_id": -1}, "fail", "outside"),
        ({"mask_token_id": "5"}, "fail", "outside"),
        ({"mask_token": "t4"}, "fail", "mask_token_id is 5, but the target's tokenizer has 't4' as 4"),
        ({"mask_token": "t5"}, "ok", "id 5"),
        ({"mask_token_id": None}, "fail", "does not know '<|MASK|>'"),
        ({"mask_token_id": None, "mask_token": "t7"}, "ok", "'t7' is id 7"),
    ],
)
def test_mask_tokens(tmp_path: Path, draft: dict[str, Any], status: str, words_: str) -> None:
    result = check(tmp_path, "mask-token", draft=draft)
    assert result.status == status
    assert words_ in result.detail


@pytest.mark.parametrize(
    ("block", "flags", "status", "words_"),
    [
        (8, {"speculative_num_draft_tokens": 8}, "ok", "8 tokens"),
        (8, {}, "ok", "8 tokens"),
        (8, {"speculative_num_draft_tokens": 4}, "warn", "is 4, the draft was trained for blocks of 8"),
        (8, {"speculative_dflash_block_size": 4}, "warn", "trained for blocks of 8"),
        (8, {"speculative_num_draft_tokens": 8, "speculative_dflash_block_size": 4}, "fail", "differ"),
        (None, {}, "warn", "SGLang takes 16"),
        (None, {"speculative_num_draft_tokens": 8}, "ok", "8 tokens"),
    ],
)
def test_block_sizes(tmp_path: Path, block: int | None, flags: dict[str, int], status: str, words_: str) -> None:
    result = check(tmp_path, "block-size", draft={"block_size": block}, **flags)
    assert result.status == status
    assert words_ in result.detail


@pytest.mark.parametrize(
    ("architecture", "status"),
    [
        ("Qwen3_5ForCausalLM", "warn"),
        ("Qwen3_5MoeForCausalLM", "warn"),
        ("Qwen3_5ForConditionalGeneration", "ok"),
        ("Qwen3ForCausalLM", "ok"),
    ],
)
def test_the_class_that_captures_one_layer_early(tmp_path: Path, architecture: str, status: str) -> None:
    result = check(tmp_path, "feature-layers", target={"architectures": [architecture]})
    assert result.status == status


def test_a_draft_of_another_kind_is_not_looked_at_further(tmp_path: Path) -> None:
    target = target_folder(tmp_path / "target")
    draft = draft_folder(tmp_path / "draft", config={"architectures": ["X"]})
    made = profile(target, dflash(draft))
    assert only(made, "dflash", "draft-kind").status == "fail"
    assert not results(made, "dflash", "mask-token")
