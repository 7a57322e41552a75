"""One entry of a prompt file: validated, then expanded into one or more prompts."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Annotated, Any

import msgspec

from lossless.errors import UsageError
from lossless.prompts.prompt import GROUPS, SUBSETS, Group, Message, Prompt, Subset
from lossless.protocol.requests import Sampling

DEFAULT_MAX_NEW_TOKENS = 128  # SGLang's own default

_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Natural = Annotated[int, msgspec.Meta(ge=0)]
_SAMPLING_KEYS = tuple(field.name for field in fields(Sampling) if field.name != "stop_token_ids")
_ALLOWED: dict[str, tuple[str, ...]] = {"group": GROUPS, "subsets": SUBSETS}


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of one entry. How they become prompts is told in ``data/README.md``."""

    id: str
    user: str | None = None
    messages: tuple[Message, ...] | None = None
    text: str | None = None
    ids: Annotated[tuple[_Natural, ...], msgspec.Meta(min_length=1)] | None = None
    passage: str | None = None
    repeat: _Positive = 1
    same_as: str | None = None
    category: str | None = None
    group: Group = "parity"
    subsets: tuple[Subset, ...] = SUBSETS
    thinking: bool | None = None
    sampling: dict[str, Any] = {}
    stop_token_text: tuple[str, ...] = ()
    caps: Annotated[tuple[_Natural, ...], msgspec.Meta(min_length=1)] | None = None
    expect: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    exact_tokens: _Positive | Annotated[tuple[_Positive, ...], msgspec.Meta(min_length=1)] | None = None


def read_entry(
    raw: object, *, where: str, defaults: Mapping[str, Any], passages: Mapping[str, str], earlier: Mapping[str, Prompt]
) -> tuple[Prompt, ...]:
    """The prompts of one entry: one, or one for each value of ``caps`` or of a list in ``exact_tokens``.

    ``where`` names the file and the entry in errors; ``earlier`` holds the prompts that ``same_as`` may name.
    Raises UsageError with the key, the value and what is allowed.
    """
    if not isinstance(raw, dict):
        raise UsageError(f"{where}: an entry must be a table of keys, got {raw!r}")
    merged = {**defaults, **raw}
    merged["sampling"] = _merge_sampling(where, defaults.get("sampling", {}), raw.get("sampling", {}))
    try:
        entry = msgspec.convert(merged, Entry)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {_explain(error)}") from None
    try:
        prompt = _build(entry, own_sampling=raw.get("sampling", {}), passages=passages, earlier=earlier)
        return tuple(_expand(prompt, entry))
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from None


def _merge_sampling(where: str, *layers: object) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in layers:
        if not isinstance(layer, dict):
            raise UsageError(f"{where}: sampling must be a table of keys, got {layer!r}")
        for key in layer:
            if key == "stop_token_ids":
                raise UsageError(f"{where}: sampling.stop_token_ids fits one tokenizer only: use stop_token_text")
            if key not in _SAMPLING_KEYS:
                raise UsageError(f"{where}: sampling.{key} is unknown; allowed: {', '.join(_SAMPLING_KEYS)}")
        merged |= layer
    return merged


def _build(
    entry: Entry, *, own_sampling: dict[str, Any], passages: Mapping[str, str], earlier: Mapping[str, Prompt]
) -> Prompt:
    base = None
    if entry.same_as is not None:
        if entry.same_as not in earlier:
            raise UsageError(f"same_as = {entry.same_as!r} is not the id of an earlier prompt")
        base = earlier[entry.same_as]
    text, messages, ids = _input(entry, passages, base)
    # with same_as, what is repeated comes before the file's defaults
    sampling = entry.sampling if base is None else {**asdict(base.sampling), **own_sampling}
    exact = entry.exact_tokens if isinstance(entry.exact_tokens, int) else None
    return Prompt(
        id=entry.id,
        category=entry.category or (base.category if base else "other"),
        group=entry.group,
        sampling=_sampling(sampling),
        subsets=tuple(subset for subset in SUBSETS if subset in entry.subsets),
        text=text,
        messages=messages,
        ids=ids,
        exact_tokens=exact if base is None or entry.exact_tokens is not None else base.exact_tokens,
        thinking=base.thinking if base and entry.thinking is None else entry.thinking,
        stop_token_texts=entry.stop_token_text or (base.stop_token_texts if base else ()),
        same_as=entry.same_as,
        expect=entry.expect if base is None or entry.expect is not None else base.expect,
    )


def _input(
    entry: Entry, passages: Mapping[str, str], base: Prompt | None
) -> tuple[str | None, tuple[Message, ...] | None, tuple[int, ...] | None]:
    """(text, messages, ids), of which Prompt demands exactly one."""
    given = [k for k in ("user", "messages", "text", "ids", "passage", "same_as") if getattr(entry, k) is not None]
    inputs = [key for key in given if key != "passage"]
    if len(inputs) > 1 or not given:
        raise UsageError(
            f"has {' and '.join(inputs) or 'no input'}: give exactly one of user, messages, text, ids, same_as, passage"
        )
    if entry.passage is None:
        if entry.repeat != 1:
            raise UsageError("repeat needs passage: it says how often the passage is written")
        if base is not None:
            return base.text, base.messages, base.ids
        if entry.user is not None:
            return None, (Message("user", entry.user),), None
        return entry.text, entry.messages, entry.ids
    if not {"user", "text"}.issuperset(inputs):
        raise UsageError(f"passage goes with user, with text or alone, not with {inputs[0]}")
    if entry.passage not in passages:
        names = ", ".join(sorted(passages)) or "none"
        raise UsageError(f"passage = {entry.passage!r} is not in the file's [passages], which has: {names}")
    parts = [passages[entry.passage].strip("\n")] * entry.repeat
    if entry.user is not None:
        return None, (Message("user", "\n\n".join([*parts, entry.user])),), None
    return "\n\n".join(parts if entry.text is None else [*parts, entry.text]), None, None


def _sampling(raw: dict[str, Any]) -> Sampling:
    try:
        sampling = msgspec.convert({"max_new_tokens": DEFAULT_MAX_NEW_TOKENS, **raw}, Sampling)
    except msgspec.ValidationError as error:
        raise UsageError(_explain(error, prefix="sampling")) from None
    _check_ranges(sampling)
    return sampling


def _check_ranges(sampling: Sampling) -> None:
    """SGLang's own limits (``SamplingParams.verify``), and greedy: sampled outputs cannot be compared."""
    bounds: tuple[tuple[str, float, float, str], ...] = (
        ("temperature", 0, 0, "0: only greedy answers can be compared token by token"),
        ("max_new_tokens", 0, float("inf"), "0 or more"),
        ("min_new_tokens", 0, sampling.max_new_tokens, f"0 to max_new_tokens ({sampling.max_new_tokens})"),
        ("frequency_penalty", -2, 2, "-2 to 2"),
        ("presence_penalty", -2, 2, "-2 to 2"),
        ("repetition_penalty", 0, 2, "0 to 2"),
    )
    for key, low, high, allowed in bounds:
        value = getattr(sampling, key)
        if not low <= value <= high:
            raise UsageError(f"sampling.{key} = {value} is not allowed; allowed: {allowed}")
    if "" in sampling.stop:
        raise UsageError("sampling.stop holds an empty string, which would stop at once")
    if sampling.json_schema is not None:
        try:
            json.loads(sampling.json_schema)
        except ValueError as error:
            raise UsageError(f"sampling.json_schema is not JSON: {error}") from None


def _expand(prompt: Prompt, entry: Entry) -> list[Prompt]:
    lengths = entry.exact_tokens if isinstance(entry.exact_tokens, tuple) else None
    if entry.caps is not None and lengths is not None:
        raise UsageError("caps and a list in exact_tokens cannot be combined: write two entries")
    values = entry.caps if entry.caps is not None else lengths
    if values is None:
        return [prompt]
    if len(set(values)) != len(values):
        raise UsageError(f"{'caps' if lengths is None else 'exact_tokens'} has a value twice: {list(values)}")
    width = max(2, len(str(max(values))))
    out = []
    for value in values:
        changes: dict[str, Any] = {"id": f"{prompt.id}-{value:0{width}d}"}
        if lengths is None:
            changes["sampling"] = replace(prompt.sampling, max_new_tokens=value)
        else:
            changes["exact_tokens"] = value
        out.append(replace(prompt, **changes))
    return out


def _explain(error: msgspec.ValidationError, *, prefix: str = "") -> str:
    """msgspec's message with the key in front and the allowed values behind."""
    message, _, path = str(error).partition(" - at `$")
    key = ".".join(filter(None, [prefix, path.rstrip("`").lstrip(".")]))
    if unknown := re.search(r"unknown field `(.*)`", message):
        where = f" in {key}" if key else ""
        return f"unknown key {unknown[1]!r}{where}; allowed: {', '.join(Entry.__struct_fields__)}"
    if missing := re.search(r"missing required field `(.*)`", message):
        return f"key {missing[1]!r} is missing{f' in {key}' if key else ''}"
    allowed = _ALLOWED.get(key.partition("[")[0])
    return f"{key}: {message}" + (f"; allowed: {', '.join(allowed)}" if allowed else "")
