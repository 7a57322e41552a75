"""Writes small model folders: configurations, safetensors files with headers made by hand, tokenizers."""

import json
import struct
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from lossless.profiles.check import check_profile
from lossless.profiles.checks.result import CheckResult
from lossless.profiles.profile import FlagValue, Profile, Variant

BITS = {"BF16": 16, "F16": 16, "F32": 32, "I32": 32, "F8_E4M3": 8, "U8": 8}
VOCABULARY, WIDTH, LAYERS = 32, 8, 6
Tensors = Mapping[str, tuple[str, tuple[int, ...]]]

LAYER_TENSORS: Tensors = {
    "linear_attn.in_proj_a.weight": ("BF16", (4, WIDTH)),
    "linear_attn.in_proj_qkv.weight": ("BF16", (16, WIDTH)),
    "mlp.down_proj.weight": ("BF16", (WIDTH, 16)),
}
TARGET_TENSORS: Tensors = {
    "model.language_model.embed_tokens.weight": ("BF16", (VOCABULARY, WIDTH)),
    "lm_head.weight": ("BF16", (VOCABULARY, WIDTH)),
    **{
        f"model.language_model.layers.{layer}.{name}": info
        for layer in range(LAYERS)
        for name, info in LAYER_TENSORS.items()
    },
}
MTP_TENSORS: Tensors = {
    "mtp.fc.weight": ("BF16", (WIDTH, 2 * WIDTH)),
    "mtp.layers.0.mlp.down_proj.weight": ("BF16", (WIDTH, 16)),
}
TARGET_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "eos_token_id": 1,
    "text_config": {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "layer_types": ["linear_attention"] * 5 + ["full_attention"],
        "max_position_embeddings": 4096,
        "dtype": "bfloat16",
    },
}
DRAFT_CONFIG: dict[str, Any] = {
    "architectures": ["DFlash2DraftModel"],
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "block_size": 8,
    "num_target_layers": LAYERS,
    "dflash_config": {"mask_token_id": 5, "target_layer_ids": [1, 4], "selector_rank": 4, "selector_top_k": 2},
}
DRAFT_TENSORS: Tensors = {"fc.weight": ("BF16", (WIDTH, 2 * WIDTH)), "norm.weight": ("BF16", (WIDTH,))}


def write_safetensors(path: Path, tensors: Tensors) -> None:
    """The eight bytes of length, the header, and zeros."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = BITS[dtype] // 8
        for side in shape:
            size *= side
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    encoded = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + bytes(at))


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def write_tokenizer(folder: Path, vocabulary: Mapping[str, int]) -> None:
    write_json(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": dict(vocabulary), "unk_token": "t0"},
        },
    )


def words(count: int = VOCABULARY) -> dict[str, int]:
    return {f"t{id_}": id_ for id_ in range(count)}


def changed(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy with some entries of ``text_config``, ``dflash_config`` or the top level changed; None removes."""
    copy = deepcopy(config)
    for key, value in changes.items():
        inner = next((copy[part] for part in ("text_config", "dflash_config") if key in copy.get(part, {})), copy)
        if value is None:
            inner.pop(key, None)
        else:
            inner[key] = value
    return copy


def target_folder(
    folder: Path,
    *,
    config: dict[str, Any] = TARGET_CONFIG,
    tensors: Tensors = TARGET_TENSORS,
    mtp: Tensors = MTP_TENSORS,
    vocabulary: Mapping[str, int] | None = None,
) -> Path:
    """A whole target of two weight files with an index that names both."""
    folder.mkdir()
    write_json(folder / "config.json", config)
    write_safetensors(folder / "model.safetensors", tensors)
    files = dict.fromkeys(tensors, "model.safetensors")
    if mtp:
        write_safetensors(folder / "model_mtp.safetensors", mtp)
        files |= dict.fromkeys(mtp, "model_mtp.safetensors")
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": files})
    write_tokenizer(folder, words() if vocabulary is None else vocabulary)
    return folder


def draft_folder(
    folder: Path,
    *,
    config: dict[str, Any] = DRAFT_CONFIG,
    tensors: Tensors = DRAFT_TENSORS,
    vocabulary: Mapping[str, int] | None = None,
) -> Path:
    """A whole DFlash2 draft without an index; with a tokenizer where a vocabulary is given."""
    folder.mkdir()
    write_json(folder / "config.json", config)
    write_safetensors(folder / "model.safetensors", tensors)
    if vocabulary is not None:
        write_tokenizer(folder, vocabulary)
    return folder


def profile(target: str | Path, *variants: Variant, **entries: Any) -> Profile:
    """A profile that launches SGLang."""
    return Profile(
        **{
            "name": "made-up",
            "description": "",
            "kind": "sglang",
            "target": str(target),
            "command": ("python",),
            "variants": {variant.name: variant for variant in variants},
            **entries,
        }
    )


def nextn(**args: FlagValue) -> Variant:
    return Variant("nextn", "NEXTN", args={name.replace("_", "-"): value for name, value in args.items()})


def dflash(draft: str | Path | None, **args: FlagValue) -> Variant:
    flags = {name.replace("_", "-"): value for name, value in args.items()}
    return Variant("dflash", "DFLASH", None if draft is None else str(draft), args=flags)


def results(profile: Profile, subject: str, name: str) -> list[CheckResult]:
    """What one check of one subject found."""
    return [r for r in check_profile(profile) if (r.subject, r.name) == (subject, name)]


def only(profile: Profile, subject: str, name: str) -> CheckResult:
    """The single result of one check."""
    found = results(profile, subject, name)
    assert len(found) == 1, found
    return found[0]
