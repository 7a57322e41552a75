"""What identifies a model folder: a digest and the end-of-sequence ids. No weights are read in full."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossless.errors import UsageError

SAMPLE = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """``digest``: sha256 over config, file sizes, safetensors headers and three 1 MiB samples of each file (a changed
    weight file almost never keeps all of these; hashing 20 GB would cost minutes). ``eos_ids`` as SGLang collects
    them, from config.json (text_config included) and generation_config.json."""

    digest: str | None
    eos_ids: tuple[int, ...]


def model_facts(folder: Path | None) -> ModelFacts:
    """Facts of a model folder; None for a model that is not a local folder.

    Raises:
        UsageError: config.json is missing or damaged.
    """
    if folder is None or not folder.is_dir():
        return ModelFacts(None, ())
    digest = hashlib.sha256()
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        digest.update(name.encode())
        if path.is_file():
            digest.update(path.read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(path.name.encode())
        digest.update(str(path.stat().st_size).encode())
        for chunk in _samples(path):
            digest.update(chunk)
    return ModelFacts(digest.hexdigest(), _eos_ids(folder))


def _samples(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        for start in (0, size // 2, max(0, size - SAMPLE)):
            file.seek(start)
            yield file.read(SAMPLE)


def _eos_ids(folder: Path) -> tuple[int, ...]:
    config = _json(folder / "config.json", required=True)
    found: set[int] = set()
    for source in (config, config.get("text_config") or {}, _json(folder / "generation_config.json")):
        value = source.get("eos_token_id")
        found |= {value} if isinstance(value, int) else set(value or ())
    return tuple(sorted(found))


def _json(path: Path, *, required: bool = False) -> dict[str, Any]:
    if not path.is_file():
        if required:
            raise UsageError(f"{path} is missing: {str(path.parent)!r} is not a model folder")
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise UsageError(f"{path} is not valid JSON: {problem}") from None
    return data if isinstance(data, dict) else {}
