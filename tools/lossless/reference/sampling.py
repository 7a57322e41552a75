"""Sampling parameters of SGLang's native API, greedy only, and the logit penalties among them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from lossless.reference.ops import F32

GREEDY_TEMPERATURE = 1e-6
"""Below this temperature SGLang samples greedily (``_SAMPLING_EPS`` in its sampling_params.py)."""
MAX_STOP_STRINGS = 32
_GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")
NO_GRAMMAR = (
    "Grammar-based generation (json_schema, regex, ebnf, structural_tag) is not supported when the server is launched "
    "with --grammar-backend none"
)


@dataclass(frozen=True)
class SamplingParams:
    """``sampling_params`` with SGLang 0.5.19's names and defaults, as far as the reference engine has them."""

    max_new_tokens: int = 128
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    min_new_tokens: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    no_stop_trim: bool = False
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def penalized(self) -> bool:
        """Does anything change the raw logits?"""
        return bool(
            self.min_new_tokens
            or self.frequency_penalty
            or self.presence_penalty
            or self.repetition_penalty != 1.0
            or self.logit_bias
        )


# Accepted without effect on greedy output, or only with the value that means "off".
_IGNORED = {"top_p", "min_p", "spaces_between_special_tokens", "stream_interval", "sampling_seed", "custom_params"}
_OFF: dict[str, tuple[Any, ...]] = {"n": (None, 1), "beam_width": (None, 1), "stop_regex": (None, "", [])}
_HANDLED = {"temperature", "top_k", *_GRAMMARS}


def parse_sampling(raw: Mapping[str, Any] | None, vocab_size: int) -> SamplingParams:
    """Check ``sampling_params`` the way SGLang's ``SamplingParams.verify`` does.

    Raises:
        ValueError: a value out of range, an unknown name, a grammar (there is no grammar backend here), or sampling
            that is not greedy.
    """
    given = {key: value for key, value in (raw or {}).items() if value is not None}
    known = {field.name for field in fields(SamplingParams)} | _IGNORED | set(_OFF) | _HANDLED
    for key in given:
        if key not in known:
            raise ValueError(f"Unexpected sampling parameter {key!r}. Known parameters: {', '.join(sorted(known))}.")
    for key, allowed in _OFF.items():
        if given.get(key) not in allowed:
            raise ValueError(f"{key}={given[key]!r} is not supported by the reference engine.")
    grammars = [key for key in _GRAMMARS if given.get(key)]
    if len(grammars) > 1:
        raise ValueError("Only one of json_schema, regex, ebnf, or structural_tag can be set.")
    _check_greedy(_number(given, "temperature", 1.0), given.get("top_k", -1))
    params = SamplingParams(
        max_new_tokens=_count(given, "max_new_tokens", 128),
        stop=_strings(given.get("stop", ())),
        stop_token_ids=frozenset(int(token) for token in given.get("stop_token_ids", ()) if token is not None),
        min_new_tokens=_count(given, "min_new_tokens", 0),
        frequency_penalty=_number(given, "frequency_penalty", 0.0),
        presence_penalty=_number(given, "presence_penalty", 0.0),
        repetition_penalty=_number(given, "repetition_penalty", 1.0),
        ignore_eos=bool(given.get("ignore_eos", False)),
        skip_special_tokens=bool(given.get("skip_special_tokens", True)),
        no_stop_trim=bool(given.get("no_stop_trim", False)),
        logit_bias=tuple((int(key), float(value)) for key, value in dict(given.get("logit_bias", {})).items()),
    )
    _check_ranges(params, vocab_size)
    if grammars:
        raise ValueError(NO_GRAMMAR)
    return params


def _check_greedy(temperature: float, top_k: Any) -> None:
    if not math.isfinite(temperature) or temperature < 0.0:
        raise ValueError(f"temperature must be a non-negative finite number, got {temperature}.")
    if temperature >= GREEDY_TEMPERATURE and top_k != 1:
        raise ValueError(
            f"The reference engine decodes greedily: temperature must be 0 (or top_k 1), "
            f"got temperature={temperature}, top_k={top_k}."
        )


def _check_ranges(p: SamplingParams, vocab_size: int) -> None:
    for name, value in (("frequency_penalty", p.frequency_penalty), ("presence_penalty", p.presence_penalty)):
        if not -2.0 <= value <= 2.0:
            raise ValueError(f"{name} must be in [-2, 2], got {value}.")
    if not 0.0 < p.repetition_penalty <= 2.0:
        raise ValueError(f"repetition_penalty must be in (0, 2] (1.0 = no penalty), got {p.repetition_penalty}.")
    if p.min_new_tokens < 0:
        raise ValueError(f"min_new_tokens must be in [0, max_new_tokens], got {p.min_new_tokens}.")
    if p.max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must be at least 0, got {p.max_new_tokens}.")
    if p.min_new_tokens > p.max_new_tokens:
        raise ValueError(f"min_new_tokens must be in [0, max_new_tokens({p.max_new_tokens})], got {p.min_new_tokens}.")
    if len(p.stop) > MAX_STOP_STRINGS:
        raise ValueError(f"at most {MAX_STOP_STRINGS} stop strings are allowed, got {len(p.stop)}")
    for token, _ in p.logit_bias:
        if not 0 <= token < vocab_size:
            raise ValueError(f"logit_bias must has keys in [0, {vocab_size - 1}], got {token}.")


def _number(given: Mapping[str, Any], name: str, default: float) -> float:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, got {value!r}.")
    return float(value)


def _count(given: Mapping[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be an integer, got {value!r}.")
    return value


def _strings(value: Any) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else list(value)
    if not all(isinstance(item, str) for item in listed):
        raise ValueError(f"stop must be a string or a list of strings, got {value!r}.")
    return tuple(listed)


class Penalties:
    """Logit penalties of one request.

    SGLang's order and sources (``sampling_batch_info.py:apply_logits_bias``, ``penaltylib/``): frequency and presence
    are subtracted, then stop tokens are masked while fewer than min_new_tokens are out, then the repetition penalty
    divides positive and multiplies negative logits. All three look at **output** tokens only, also the repetition
    penalty, unlike Hugging Face's, which counts the prompt too. Counts are exact, as SGLang's are with
    ``--disable-overlap-schedule``; with overlapped scheduling its baseline counts one token late.
    """

    def __init__(self, params: SamplingParams, stop_ids: frozenset[int], vocab_size: int) -> None:
        self.params = params
        self.active = params.penalized
        self.counts = np.zeros(vocab_size if self.active else 0, dtype=np.float32)
        self.produced = 0
        self.row_by_row = True
        """Judge each row of a block by the drafts before it. Only a planted fault turns this off."""
        self._stops = sorted(stop_ids | params.stop_token_ids)
        self._bias = np.zeros(vocab_size if params.logit_bias else 0, dtype=np.float32)
        for token, value in params.logit_bias:
            self._bias[token] = value

    def record(self, tokens: list[int], produced: int) -> None:
        """Count ``tokens``, and ``produced`` of them towards min_new_tokens."""
        if self.active:
            np.add.at(self.counts, tokens, 1.0)
        self.produced += produced

    def adjust(self, logits: F32, drafts: list[int]) -> F32:
        """Penalized logits [T, vocabulary]; row j is judged as if ``drafts[:j]`` were out already, which they are if
        row j is used at all."""
        if not self.active:
            return logits
        p, counts, out = self.params, self.counts.copy(), logits.copy()
        for j, row in enumerate(out):
            if j and self.row_by_row:
                counts[drafts[j - 1]] += 1.0
            row -= p.frequency_penalty * counts
            row -= p.presence_penalty * (counts > 0)
            if self.produced + (j if self.row_by_row else 0) < p.min_new_tokens:
                row[self._stops] = -np.inf
            if p.repetition_penalty != 1.0:
                scaled = np.where(row < 0, row * p.repetition_penalty, row / p.repetition_penalty)
                np.copyto(row, scaled, where=counts > 0)
            if self._bias.size:
                row += self._bias
        return out
