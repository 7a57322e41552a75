"""When a request ends, by SGLang 0.5.19's rules (``schedule_batch.py:update_finish_state``).

Stop string before stop token before length, and whatever lies beyond max_new_tokens is cut off again.
"""

from dataclasses import dataclass
from typing import Any

from lossless.reference.sampling import SamplingParams
from lossless.reference.text import Tokenizer


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a request ended and how many of its output tokens count (the stop token included)."""

    type: str
    kept: int
    matched: int | str | None = None
    message: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The ``finish_reason`` object."""
        if self.type == "stop":
            return {"type": "stop", "matched": self.matched}
        if self.type == "length":
            return {"type": "length", "length": self.kept}
        return {"type": "abort", "message": self.message, "status_code": None, "err_type": None}


class StopRules:
    """The stop conditions of one request."""

    def __init__(self, params: SamplingParams, eos: frozenset[int], max_new_tokens: int, tokenizer: Tokenizer) -> None:
        self.params, self.max_new_tokens, self.tokenizer = params, max_new_tokens, tokenizer
        self.stop_ids = eos | params.stop_token_ids
        self._longest = max((len(tokenizer.encode(stop)) for stop in params.stop), default=0)

    def check(
        self, output: list[int], new: int, *, token_window: int | None = None, text_window: int | None = None
    ) -> Finish | None:
        """Look at ``output``, whose last ``new`` tokens are fresh.

        ``token_window`` and ``text_window`` say how many of the fresh tokens the token and the string check look at;
        all of them unless a planted fault says otherwise.
        """
        found = self._by_text(output, new if text_window is None else text_window)
        found = found or self._by_token(output, new if token_window is None else token_window)
        if found:
            return self._cap(found)
        if len(output) >= self.max_new_tokens:
            return Finish("length", self.max_new_tokens)
        return None

    def _cap(self, found: Finish) -> Finish:
        return found if found.kept <= self.max_new_tokens else Finish("length", self.max_new_tokens)

    def _by_token(self, output: list[int], new: int) -> Finish | None:
        if self.params.ignore_eos:
            return None
        for at in range(len(output) - new, len(output)):
            if output[at] in self.stop_ids:
                return Finish("stop", at + 1, output[at])
        return None

    def _by_text(self, output: list[int], new: int) -> Finish | None:
        if not self.params.stop:
            return None
        tail = min(self._longest + 1 + max(new - 1, 0), len(output))
        start = len(output) - tail
        window = output[start:]
        text = self.tokenizer.decode(window)
        for stop in self.params.stop:
            if stop not in text:
                continue
            for count in range(max(1, tail - new + 1), tail):
                if stop in self.tokenizer.decode(window[:count]):
                    return Finish("stop", start + count, stop)
            return Finish("stop", len(output), stop)
        return None
