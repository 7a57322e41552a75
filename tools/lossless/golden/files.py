"""The golden file format: what the baseline said for one prompt, and where that came from.

``golden/<profile>/<prompt>.json``. Only tokens, text and finish reason are compared. The provenance tells who wrote
the file; it changes only when the compared part changes, so recording again without a change changes no byte.
"""

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from lossless.errors import UsageError
from lossless.record.store import Golden

MANIFEST = "_acceptance"
"""How the stem of a file with accept lengths by category begins; prompt files never start with an underscore here."""

USUAL_SET = "standard"
"""The prompt set whose file of accept lengths carries no set in its name."""


def acceptance_stem(variant: str, prompt_set: str) -> str:
    """Stem of the file with a variant's accept lengths. Each prompt set has a file of its own: a category of another
    set holds other prompts, and its accept length says nothing about this one's."""
    stem = f"{MANIFEST}-{variant}"
    if prompt_set == USUAL_SET:
        return stem
    return f"{stem}.{re.sub(r'[^A-Za-z0-9_-]+', '-', Path(prompt_set).stem)}"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Who wrote a golden: enough to tell an upgrade from a regression.

    ``model`` and ``tokenizer`` are sha256 digests, ``prompt`` the digest of the request (ids and sampling),
    ``arguments`` the resolved server arguments that can change the numbers.
    """

    engine: str
    version: str
    dtype: str
    model: str | None
    tokenizer: str
    prompt: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GoldenOutput:
    """The compared part."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    finish_matched: int | str | None = None


@dataclass(frozen=True, slots=True)
class GoldenFile:
    """One golden snapshot."""

    prompt: str
    category: str
    input: str
    output: GoldenOutput
    provenance: Provenance

    @property
    def golden(self) -> Golden:
        o = self.output
        return Golden(o.token_ids, o.text, o.finish_reason, o.finish_matched)

    def dumps(self) -> str:
        """The file's text: readable, stable, token ids on lines of their own 16 at a time."""
        data = asdict(self)
        ids = data["output"]["token_ids"]
        rows = [ids[i : i + 16] for i in range(0, len(ids), 16)]
        data["output"]["token_ids"] = "@ids"  # with its key, since no JSON string can hold the unescaped quotes
        text = json.dumps(data, ensure_ascii=False, indent=2)
        body = ",\n".join("      " + ", ".join(map(str, row)) for row in rows)
        value = f"[\n{body}\n    ]" if rows else "[]"
        return text.replace('"token_ids": "@ids"', f'"token_ids": {value}', 1) + "\n"


def parse_golden(text: str | bytes, *, where: str) -> GoldenFile:
    """Read a golden file's text (bytes of a file, so that damaged encoding is damage like any other).

    Raises:
        UsageError: it is not JSON or not of this format; the message names ``where``.
    """
    try:
        return msgspec.json.decode(text, type=GoldenFile)
    except msgspec.DecodeError as problem:
        raise UsageError(
            f"the golden file {where} is damaged: {problem}",
            hint="restore it from version control, or write it anew: pytest -m lossless --snapshot-update",
        ) from None


def read_golden(folder: Path, prompt_id: str) -> GoldenFile | None:
    """The golden of one prompt, None if there is none.

    Raises:
        UsageError: the file is damaged.
    """
    path = folder / f"{prompt_id}.json"
    if not path.is_file():
        return None
    golden = parse_golden(path.read_bytes(), where=str(path))
    if golden.prompt != prompt_id:
        raise UsageError(f"the golden file {path} says it belongs to prompt {golden.prompt!r}")
    return golden


def read_goldens(folder: Path) -> tuple[dict[str, GoldenFile], dict[str, str]]:
    """All goldens of a profile, and what is wrong with the ones that cannot be read, both by prompt id."""
    found: dict[str, GoldenFile] = {}
    damaged: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        if path.stem.startswith("_"):
            continue
        try:
            golden = read_golden(folder, path.stem)
        except UsageError as problem:
            damaged[path.stem] = str(problem)
        else:
            if golden is not None:
                found[path.stem] = golden
    return found, damaged
