"""The files of a model folder, read once: configuration, index, headers, tokenizer. No weights."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from lossless.errors import UsageError
from lossless.profiles.safetensors_header import TensorInfo, read_header

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class ModelFolder:
    """A folder in Hugging Face layout.

    ``weight_map`` is the index (tensor name to file name), None without one. ``headers`` holds the tensors of every
    readable file that the index names (without an index: of every ``*.safetensors`` file), ``broken`` why a file is
    not among them.
    """

    path: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    weight_map: Mapping[str, str] | None
    headers: Mapping[str, Mapping[str, TensorInfo]]
    broken: Mapping[str, UsageError]
    unlisted: tuple[str, ...] = field(default=())

    @classmethod
    def read(cls, path: Path) -> "ModelFolder":
        """Read it.

        Raises:
            UsageError: no such folder, no ``config.json``, or JSON files that are not valid.
        """
        if not path.is_dir():
            raise UsageError(f"there is no folder {path}")
        config = _json(path / "config.json")
        index = _json(path / INDEX, required=False)
        found = sorted(file.name for file in path.glob("*.safetensors"))
        weight_map = None
        if index is not None:
            raw = index.get("weight_map")
            if not isinstance(raw, dict) or not all(isinstance(v, str) for v in raw.values()):
                raise UsageError(f"{INDEX} has no weight_map of names to files", hint="download it again")
            weight_map = raw
        names = found if weight_map is None else sorted(set(weight_map.values()))
        headers: dict[str, Mapping[str, TensorInfo]] = {}
        broken: dict[str, UsageError] = {}
        for name in names:
            try:
                if Path(name).name != name:
                    raise UsageError(f"{INDEX} names a file outside the folder: {name!r}")
                headers[name] = read_header(path / name)
            except UsageError as problem:
                broken[name] = problem
        generation = _json(path / "generation_config.json", required=False) or {}
        unlisted = tuple(name for name in found if name not in names)
        return cls(path, config or {}, generation, weight_map, headers, broken, unlisted)

    @cached_property
    def tensors(self) -> dict[str, TensorInfo]:
        """All tensors of the readable files, by name."""
        return {name: info for header in self.headers.values() for name, info in header.items()}

    @cached_property
    def text(self) -> Mapping[str, Any]:
        """The configuration of the language model: ``text_config``, or the whole one."""
        inner = self.config.get("text_config")
        return inner if isinstance(inner, dict) else self.config

    @property
    def architecture(self) -> str:
        """The first of ``architectures``; empty without one."""
        names = self.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else ""

    def number(self, key: str) -> int | None:
        """A whole number of the configuration (the language model's part first), or None."""
        for part in (self.text, self.config):
            value = part.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None

    @property
    def quantization(self) -> Mapping[str, Any] | None:
        """``quantization_config`` (older name: ``compression_config``), or None for dense weights."""
        for key in ("quantization_config", "compression_config"):
            for part in (self.config, self.text):
                value = part.get(key)
                if isinstance(value, dict):
                    return value
        return None

    @property
    def hybrid(self) -> bool:
        """Whether some layers keep a recurrent state instead of keys and values."""
        types = self.text.get("layer_types")
        listed = isinstance(types, list) and any("linear" in str(t) or "mamba" in str(t) for t in types)
        return listed or bool(self.text.get("linear_num_value_heads")) or "mamba_d_state" in self.text

    @property
    def eos_ids(self) -> frozenset[int]:
        """The ids that end an answer: the union over the three places, as SGLang takes it (``hf_eos_token_id``)."""
        found: set[int] = set()
        for part in (self.config, self.text, self.generation):
            value = part.get("eos_token_id")
            found.update(v for v in (value if isinstance(value, list) else [value]) if isinstance(v, int))
        return frozenset(found)

    @cached_property
    def tokenizer_digest(self) -> str | None:
        """SHA-256 (hex) of ``tokenizer.json``; None without that file."""
        path = self.path / "tokenizer.json"
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Token to id, added tokens included.

        Raises:
            UsageError: ``tokenizer.json`` is missing or cannot be read.
        """
        path = self.path / "tokenizer.json"
        if not path.is_file():
            raise UsageError(f"{self.path.name} has no tokenizer.json")
        try:
            return tokenizers.Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
        except Exception as problem:  # the Rust binding raises plain Exception
            raise UsageError(f"tokenizer.json cannot be read: {problem}") from None

    @property
    def size_bytes(self) -> int:
        """Of all tensors in the readable files."""
        return sum(info.size_bytes for info in self.tensors.values())


def _json(path: Path, *, required: bool = True) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise UsageError(f"{path.parent} has no {path.name}, so it is not a model folder") from None
        return None
    except (OSError, ValueError) as problem:
        raise UsageError(f"{path.name} cannot be read: {problem}", hint="download it again") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path.name} must hold an object")
    return content
