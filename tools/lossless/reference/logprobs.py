"""Log-probabilities as SGLang reports them: ``[logprob, token id, text or null]``, in nats."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lossless.reference.ops import F32, log_softmax

Entry = list[Any]
Row = list[Entry] | None


def _entry(logprobs: F32, token: int) -> Entry:
    """JSON has no infinity: the log-probability of a masked token is null, as orjson writes it for SGLang."""
    value = float(logprobs[token])
    return [value if math.isfinite(value) else None, token, None]


@dataclass(frozen=True, slots=True)
class LogprobRequest:
    """What a request asked for. ``start`` S: entry k of the input lists belongs to prompt token S + k."""

    start: int
    top: int = 0
    token_ids: tuple[int, ...] | None = None


@dataclass(slots=True)
class LogprobLists:
    """What has been collected for one request; positions in order."""

    ask: LogprobRequest
    input_token: list[Entry] = field(default_factory=list)
    input_top: list[Row] = field(default_factory=list)
    input_ids: list[Row] = field(default_factory=list)
    output_token: list[Entry] = field(default_factory=list)
    output_top: list[Row] = field(default_factory=list)
    output_ids: list[Row] = field(default_factory=list)
    following: Entry | None = None

    def add_input(self, token: int, row: F32 | None) -> None:
        """One prompt token; ``row`` [vocabulary] holds the logits that predict it, None for the first one asked for."""
        if row is None:
            self.input_token.append([None, token, None])
            self.input_top.append(None)
            self.input_ids.append(None)
            return
        logprobs = log_softmax(row)
        self.input_token.append(_entry(logprobs, token))
        self.input_top.append(self._top(logprobs))
        self.input_ids.append(self._chosen(logprobs))

    def add_output(self, token: int, row: F32) -> None:
        """One output token, predicted by the logits ``row`` [vocabulary] (after penalties, as SGLang's are)."""
        logprobs = log_softmax(row)
        self.output_token.append(_entry(logprobs, token))
        self.output_top.append(self._top(logprobs))
        self.output_ids.append(self._chosen(logprobs))

    def add_next(self, row: F32) -> None:
        """The candidates after a prefill-only request: SGLang lists them without any output token. ``following`` is the
        best of them."""
        logprobs = log_softmax(row)
        self.following = _entry(logprobs, int(row.argmax()))
        self.output_top.append(self._top(logprobs))
        self.output_ids.append(self._chosen(logprobs))

    def cut(self, kept: int) -> None:
        """Drop what lies beyond the first ``kept`` output tokens."""
        del self.output_token[kept:], self.output_top[kept:], self.output_ids[kept:]

    def _top(self, logprobs: F32) -> Row:
        count = min(self.ask.top, logprobs.size)
        if not count:
            return None
        # The cut takes whole groups of equal values, so that ties are listed lowest id first.
        edge = np.partition(logprobs, -count)[-count]
        near = np.flatnonzero(logprobs >= edge)
        order = near[np.lexsort((near, -logprobs[near]))][:count]
        return [_entry(logprobs, int(i)) for i in order]

    def _chosen(self, logprobs: F32) -> Row:
        return [_entry(logprobs, i) for i in self.ask.token_ids or ()]
