"""What is sent to ``POST /generate`` of SGLang's native API."""

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters; greedy unless said otherwise. Only what differs from SGLang's default is sent.

    ``max_new_tokens`` is in tokens and always sent, since SGLang's default (128) is easy to forget.
    """

    max_new_tokens: int
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_new_tokens: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    json_schema: str | None = None
    skip_special_tokens: bool = True
    no_stop_trim: bool = False

    def payload(self) -> dict[str, Any]:
        """The JSON object for ``sampling_params``."""
        out: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "temperature": self.temperature}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in out and value != field.default:
                out[field.name] = list(value) if isinstance(value, tuple) else value
        return out


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One ``/generate`` request by token ids: both servers of a pair must read the very same prompt.

    ``logprob_start_len`` S: entry k of the input logprobs belongs to token S+k; entry 0 is null.
    -1 is the server's default (no input logprobs).
    """

    input_ids: tuple[int, ...]
    sampling: Sampling
    return_logprob: bool = False
    logprob_start_len: int = -1
    top_logprobs_num: int = 0
    token_ids_logprob: tuple[int, ...] = ()
    rid: str | None = None

    def payload(self) -> dict[str, Any]:
        """The JSON body."""
        out: dict[str, Any] = {"input_ids": list(self.input_ids), "sampling_params": self.sampling.payload()}
        if self.return_logprob:
            out["return_logprob"] = True
            out["logprob_start_len"] = self.logprob_start_len
            out["top_logprobs_num"] = self.top_logprobs_num
            if self.token_ids_logprob:
                out["token_ids_logprob"] = list(self.token_ids_logprob)
        if self.rid is not None:
            out["rid"] = self.rid
        return out
