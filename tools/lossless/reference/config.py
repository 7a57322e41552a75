"""Sizes of the target and draft models, read from their ``config.json``."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from lossless.errors import UsageError

T = TypeVar("T")


@dataclass(frozen=True)
class RopeParameters:
    """Rotary embedding: base, and the share of each head that is rotated."""

    rope_theta: float
    rope_type: str = "default"
    partial_rotary_factor: float = 1.0


@dataclass(frozen=True)
class TargetConfig:
    """The ``text_config`` of a Qwen3.5-style hybrid model: Gated DeltaNet layers and gated attention layers."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    layer_types: tuple[str, ...]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_parameters: RopeParameters
    rms_norm_eps: float
    linear_conv_kernel_dim: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    max_position_embeddings: int
    mtp_num_hidden_layers: int = 0
    tie_word_embeddings: bool = False

    @property
    def rotary_dim(self) -> int:
        """How many leading dimensions of a head are rotated."""
        return int(self.head_dim * self.rope_parameters.partial_rotary_factor)


@dataclass(frozen=True)
class _Wrapper:
    """The outer ``config.json`` of a Qwen3.5 checkpoint."""

    model_type: str
    text_config: TargetConfig
    eos_token_id: int | list[int] | None = None
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selector:
    """The ``dflash_config`` block of a DFlash2 draft."""

    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    conv_kernel_size: int
    conv_group_size: int
    selector_rank: int
    selector_top_k: int


@dataclass(frozen=True)
class DraftConfig:
    """``config.json`` of a DFlash2 draft model."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_parameters: RopeParameters
    max_position_embeddings: int
    dflash_config: Selector
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Generation:
    eos_token_id: int | list[int] | None = None


@dataclass(frozen=True)
class ModelFiles:
    """What a target folder says beside its weights."""

    config: TargetConfig
    eos_token_ids: frozenset[int]
    model_type: str
    architectures: tuple[str, ...] = field(default=())


def _decode(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as problem:
        raise UsageError(f"{path} does not exist") from problem
    except msgspec.DecodeError as problem:
        raise UsageError(f"{path} is not the configuration of a supported model: {problem}") from problem


def _ids(value: int | list[int] | None) -> set[int]:
    if value is None:
        return set()
    return {value} if isinstance(value, int) else set(value)


def read_target(folder: Path) -> ModelFiles:
    """Read ``config.json`` and ``generation_config.json``.

    The end-of-sequence set is the union of both files, as SGLang's ``hf_eos_token_id`` is.

    Raises:
        UsageError: a file is missing, malformed or of another architecture.
    """
    path = folder / "config.json"
    outer = _decode(path, _Wrapper)
    config = outer.text_config
    unknown = set(config.layer_types) - {"linear_attention", "full_attention"}
    if unknown or len(config.layer_types) != config.num_hidden_layers:
        raise UsageError(
            f"{path}: layer_types must name {config.num_hidden_layers} layers, each 'linear_attention' or "
            f"'full_attention'; got {list(config.layer_types)}"
        )
    generation = folder / "generation_config.json"
    extra = _decode(generation, _Generation).eos_token_id if generation.is_file() else None
    return ModelFiles(
        config, frozenset(_ids(outer.eos_token_id) | _ids(extra)), outer.model_type, tuple(outer.architectures)
    )


def read_draft(folder: Path, target: TargetConfig) -> DraftConfig:
    """Read a DFlash2 draft's ``config.json`` and check that it belongs to ``target``.

    Raises:
        UsageError: missing or malformed, or vocabulary, width or feature layers that do not fit the target.
    """
    path = folder / "config.json"
    draft = _decode(path, DraftConfig)
    if (draft.vocab_size, draft.hidden_size) != (target.vocab_size, target.hidden_size):
        raise UsageError(
            f"{path}: this draft has vocabulary {draft.vocab_size} and width {draft.hidden_size}, "
            f"the target has {target.vocab_size} and {target.hidden_size}"
        )
    if max(draft.dflash_config.target_layer_ids) >= target.num_hidden_layers:
        raise UsageError(
            f"{path}: target_layer_ids {list(draft.dflash_config.target_layer_ids)} go beyond the target's "
            f"{target.num_hidden_layers} layers"
        )
    return draft
