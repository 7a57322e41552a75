"""Reads prompt files: the shipped ones, or a user's own."""

import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from lossless.errors import UsageError
from lossless.prompts.entry import read_entry
from lossless.prompts.haystack import Haystack, LongContext
from lossless.prompts.prompt import GROUPS, SUBSETS, Prompt, PromptSet
from lossless.protocol.requests import Sampling

NAMES = (*SUBSETS, "long", "stress")
"""The shipped sets. ``long`` and ``stress`` are ``quick``, which the controls need, and the prompts of that group
(``long``: those of ``standard``)."""

NEEDLE = "needle"
"""Category, and start of the ids, of the long prompts that are built to a length."""

_TABLES = ("defaults", "passages", "prompt")
_SHIPPED = ("parity", "heldout", *(group for group in GROUPS if group != "parity"))  # the order of running


def load_prompts(name_or_path: str, long: LongContext | None = None) -> PromptSet:
    """A shipped set (``NAMES``), or all prompts of a user's ``.toml`` or ``.jsonl`` file.

    ``long`` adds the prompts that are built to a length to the sets ``full`` and ``long``, and to ``stress`` one of
    each length. Raises UsageError naming the file, the entry, the key and the allowed values.
    """
    if name_or_path in SUBSETS:
        chosen = [prompt for prompt in _shipped() if name_or_path in prompt.subsets]
        return PromptSet(name_or_path, _with_built(chosen, long if name_or_path == "full" else None))
    if name_or_path in NAMES:
        own = [p for p in _shipped() if p.group == name_or_path and (p.group == "stress" or "standard" in p.subsets)]
        chosen = [p for p in _shipped() if "quick" in p.subsets or p in own]
        if long is not None and name_or_path == "stress":
            long = replace(long, depths=long.depths[:1])
        return PromptSet(name_or_path, _with_built(chosen, long))
    path = Path(name_or_path)
    if path.suffix not in (".toml", ".jsonl"):
        raise UsageError(
            f"prompt set {name_or_path!r} is unknown; allowed: {', '.join(NAMES)}, or a .toml or .jsonl file",
        )
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the prompt file {name_or_path}: {error}") from None
    earlier: dict[str, Prompt] = {}
    _read(content, name=path.name, earlier=earlier)
    return PromptSet(path.name, tuple(earlier.values()))


def _shipped() -> Iterator[Prompt]:
    earlier: dict[str, Prompt] = {}
    folder = resources.files("lossless.prompts") / "data"
    for stem in _SHIPPED:
        file = folder / f"{stem}.toml"
        _read(file.read_text(encoding="utf-8"), name=file.name, earlier=earlier)
    return iter(earlier.values())


def _with_built(prompts: Sequence[Prompt], long: LongContext | None) -> tuple[Prompt, ...]:
    """The built prompts stand before the group ``order``, which ends every set."""
    built = [] if long is None else [_built(h, long.max_new_tokens) for h in long.haystacks]
    last = [prompt for prompt in prompts if prompt.group == "order"]
    return (*(prompt for prompt in prompts if prompt.group != "order"), *built, *last)


def _built(haystack: Haystack, max_new_tokens: int) -> Prompt:
    return Prompt(
        id=f"{NEEDLE}-{haystack.tokens:06d}-{round(haystack.depth * 100):02d}",
        category=NEEDLE,
        group="long",
        sampling=Sampling(max_new_tokens),
        subsets=("full",),
        haystack=haystack,
        thinking=False,
        expect=haystack.password,
    )


def _read(content: str, *, name: str, earlier: dict[str, Prompt]) -> None:
    """Adds the file's prompts to ``earlier``."""
    document = _parse(content, name)
    defaults, passages, entries = document["defaults"], document["passages"], document["prompt"]
    for key in ("id", "same_as", "user", "text", "messages", "ids", "caps", "exact_tokens"):
        if key in defaults:
            raise UsageError(f"{name}: defaults cannot hold {key!r}: it belongs to one prompt")
    if bad := [key for key, value in passages.items() if not isinstance(value, str)]:
        raise UsageError(f"{name}: passages.{bad[0]} must be a string, got {passages[bad[0]]!r}")
    for number, raw in enumerate(entries, start=1):
        id_ = raw.get("id") if isinstance(raw, dict) else None
        where = f"{name}, prompt {number}" + (f" ({id_!r})" if id_ is not None else "")
        for prompt in read_entry(raw, where=where, defaults=defaults, passages=passages, earlier=earlier):
            if prompt.id in earlier:
                raise UsageError(f"{where}: id {prompt.id!r} is used by an earlier prompt; ids must be unique")
            earlier[prompt.id] = prompt


def _parse(content: str, name: str) -> dict[str, Any]:
    document: dict[str, Any] = {"defaults": {}, "passages": {}, "prompt": []}
    if name.endswith(".jsonl"):
        for number, line in enumerate(content.split("\n"), start=1):
            if line.strip():
                try:
                    raw = json.loads(line)
                    json.dumps(raw, ensure_ascii=False).encode()  # JSON allows half surrogates, no tokenizer does
                    document["prompt"].append(raw)
                except ValueError as error:
                    raise UsageError(f"{name}, line {number}: not JSON: {error}") from None
        return document
    try:
        found = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name}: not TOML: {error}") from None
    for key, value in found.items():
        if key not in document:
            raise UsageError(f"{name}: unknown key {key!r}; allowed: {', '.join(_TABLES)} (each prompt is [[prompt]])")
        if type(value) is not type(document[key]):
            form = "[[prompt]]" if key == "prompt" else f"[{key}]"
            raise UsageError(f"{name}: {key!r} must be written as {form}")
    return document | found
