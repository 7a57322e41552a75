"""One ``/generate`` request, checked: the body's many shapes turned into a list of frozen values."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lossless.reference.logprobs import LogprobRequest
from lossless.reference.sampling import SamplingParams, parse_sampling
from lossless.reference.text import Tokenizer


class Malformed(ValueError):
    """A body that is not of the promised types: SGLang refuses it before it looks at any value, in another form."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes a request must respect, in tokens."""

    context: int
    vocabulary: int
    max_input: int


@dataclass(frozen=True)
class Request:
    """One prompt to complete. ``max_new_tokens`` is already clipped to the context."""

    rid: str
    ids: tuple[int, ...]
    params: SamplingParams
    max_new_tokens: int
    logprobs: LogprobRequest | None = None
    stream: bool = False
    namespace: str = ""


@dataclass(frozen=True)
class Batch:
    """What one HTTP body asked for; ``single`` when it was not a list."""

    requests: tuple[Request, ...]
    single: bool
    stream: bool


def parse_body(body: Any, tokenizer: Tokenizer, limits: Limits) -> Batch:
    """Read a ``/generate`` body the way SGLang's ``GenerateReqInput`` does.

    Raises:
        Malformed: values of wrong types.
        ValueError: anything else that SGLang answers with 400, or with 500; also token ids outside the vocabulary and
            other values that take a real 0.5.19 server down.
    """
    if not isinstance(body, dict):
        raise Malformed("the body must be a JSON object")
    text, ids = body.get("text"), body.get("input_ids")
    _check_types(text, ids, body.get("sampling_params"))
    if text is None and ids is None:
        raise ValueError("Either text, input_ids or input_embeds should be provided.")
    source = ids if ids is not None else text
    if not source:
        empty = (
            "texts cannot be empty and tokenizer must be initialized" if ids is None else "input_ids cannot be empty."
        )
        raise ValueError(empty)
    single = isinstance(source, str) or (ids is not None and not isinstance(source[0], list))
    prompts = [source] if single else list(source)
    stream = bool(body.get("stream", False))
    requests = tuple(
        _one(_row(body, index, len(prompts), single), prompt, tokenizer, limits, stream)
        for index, prompt in enumerate(prompts)
    )
    rids = [request.rid for request in requests]
    if len(set(rids)) != len(rids):
        raise ValueError(f"Duplicate request IDs detected within the request: {rids}")
    return Batch(requests, single, stream)


def _check_types(text: Any, ids: Any, params: Any) -> None:
    if not (text is None or isinstance(text, str) or _all(text, str)):
        raise Malformed(f"text must be a string or a list of strings, got {text!r:.80}")
    if not (ids is None or _all(ids, int) or (_all(ids, list) and all(_all(row, int) for row in ids))):
        raise Malformed(f"input_ids must be a list of integers or a list of such lists, got {ids!r:.80}")
    if not (params is None or isinstance(params, dict) or _all(params, dict)):
        raise Malformed(f"sampling_params must be an object or a list of objects, got {params!r:.80}")


def _all(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) and not isinstance(item, bool) for item in value)


_PER_PROMPT = (
    "sampling_params", "rid", "return_logprob", "logprob_start_len", "top_logprobs_num", "token_ids_logprob",
    "extra_key",
)  # fmt: skip


def _row(body: Mapping[str, Any], index: int, count: int, single: bool) -> dict[str, Any]:
    """The options of prompt ``index``: a batch may give one value for all, or a list with one a prompt."""
    row: dict[str, Any] = {}
    for name in _PER_PROMPT:
        value: Any = body.get(name)
        listed = isinstance(value, list)
        if name == "token_ids_logprob":
            listed = listed and any(not isinstance(item, int) for item in value)
        if not single and listed:
            if len(value) != count:
                raise ValueError(f"{name} has {len(value)} entries for a batch of {count} prompts.")
            value = value[index]
        elif not single and name == "rid" and value is not None:
            value = f"{value}_{index}"
        row[name] = value
    return row


def _one(row: Mapping[str, Any], prompt: Any, tokenizer: Tokenizer, limits: Limits, stream: bool) -> Request:
    ids: list[int] = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    if not ids:
        raise ValueError("input_ids cannot be empty.")
    for token in ids:
        if not 0 <= token < limits.vocabulary:
            raise ValueError(f"Token id {token} is out of vocabulary range [0, {limits.vocabulary - 1}].")
    raw = row["sampling_params"]
    if isinstance(raw, list):
        raise ValueError("sampling_params must be an object for a single prompt, got a list.")
    params = parse_sampling(raw, limits.vocabulary)
    _check_lengths(len(ids), (raw or {}).get("max_new_tokens"), limits)
    rid = row["rid"]
    return Request(
        rid=str(rid) if rid else uuid.uuid4().hex,
        ids=tuple(ids),
        params=params,
        max_new_tokens=max(0, min(params.max_new_tokens, limits.context - 2 - len(ids))),
        logprobs=_logprobs(row, len(ids), limits.vocabulary),
        stream=stream,
        namespace=str(row["extra_key"] or ""),
    )


def _check_lengths(tokens: int, asked: int | None, limits: Limits) -> None:
    if tokens >= limits.context:
        raise ValueError(
            f"The input ({tokens} tokens) is longer than the model's context length ({limits.context} tokens)."
        )
    if asked is not None and asked + tokens > limits.context:
        raise ValueError(
            f"Requested token count exceeds the model's maximum context length of {limits.context} tokens. "
            f"You requested a total of {asked + tokens} tokens: {tokens} tokens from the input messages and {asked} "
            f"tokens for the completion. Please reduce the number of tokens in the input messages or the completion "
            f"to fit within the limit."
        )
    if tokens >= limits.max_input:
        raise ValueError(
            f"Input length ({tokens} tokens) exceeds the maximum allowed length ({limits.max_input} tokens). Use a "
            f"shorter input or enable --allow-auto-truncate."
        )


def _logprobs(row: Mapping[str, Any], tokens: int, vocabulary: int) -> LogprobRequest | None:
    if not row["return_logprob"]:
        return None
    start = -1 if row["logprob_start_len"] is None else int(row["logprob_start_len"])
    if start > tokens:
        raise ValueError(
            f"req.logprob_start_len={start} is higher than the number of input tokens "
            f"len(req.origin_input_ids)={tokens}. Please use a smaller logprob_start_len."
        )
    if start < -1:
        raise ValueError(f"logprob_start_len must be -1 or more, got {start}.")
    top, wanted = int(row["top_logprobs_num"] or 0), row["token_ids_logprob"]
    if top > vocabulary:
        raise ValueError(f"top_logprobs_num must be at most {vocabulary}, the size of the vocabulary, got {top}.")
    for token in wanted or ():
        if not 0 <= token < vocabulary:
            raise ValueError(f"token_ids_logprob contains {token}, outside the vocabulary [0, {vocabulary - 1}].")
    return LogprobRequest(start, max(0, top), tuple(wanted) if wanted else None)
