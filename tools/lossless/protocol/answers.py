"""What comes back from ``POST /generate``: raw JSON turned into frozen, checked values."""

from dataclasses import dataclass, field
from typing import Any

from lossless.errors import ProtocolError


@dataclass(frozen=True, slots=True)
class FinishReason:
    """Why generation ended. ``matched`` is the stop token id or the stop string, for type ``stop``."""

    type: str
    matched: int | str | None = None
    length: int | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One ``[logprob, id, text]`` entry. ``logprob`` (nats) is None where the server sent null."""

    logprob: float | None
    token_id: int


@dataclass(frozen=True, slots=True)
class Answer:
    """One answered prompt.

    ``output_logprobs`` and ``input_logprobs`` are None when none were asked for. Top lists have one tuple a
    position, best first; a position without a list (the null first input entry) is an empty tuple.
    ``spec_*`` are None when the server reported no speculation for this request. ``latency_s`` is the server's
    own end-to-end figure. ``accept_histogram[i]`` counts verify steps that accepted i draft tokens.
    """

    output_ids: tuple[int, ...]
    text: str
    finish: FinishReason
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    num_retractions: int = 0
    latency_s: float | None = None
    spec_verify_ct: int | None = None
    spec_accept_length: float | None = None
    accept_histogram: tuple[int, ...] = ()
    output_logprobs: tuple[TokenLogprob, ...] | None = None
    output_top: tuple[tuple[TokenLogprob, ...], ...] | None = None
    input_logprobs: tuple[TokenLogprob, ...] | None = None
    input_top: tuple[tuple[TokenLogprob, ...], ...] | None = None
    input_ids_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, body: Any) -> "Answer":
        """Read one ``/generate`` answer.

        Raises:
            ProtocolError: a promised field is missing or of another shape, or the request was aborted
                (``finish_reason.type == "abort"`` arrives with HTTP 200).
        """
        try:
            return cls._read(body)
        except ProtocolError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as problem:
            shown = repr(body)
            raise ProtocolError(
                f"the server's /generate answer is not of the expected shape ({type(problem).__name__}: {problem}): "
                f"{shown[:300]}{'…' if len(shown) > 300 else ''}"
            ) from problem

    @classmethod
    def _read(cls, body: Any) -> "Answer":
        meta = body["meta_info"]
        reason = meta["finish_reason"]
        finish = FinishReason(reason["type"], reason.get("matched"), reason.get("length"), reason.get("message"))
        if finish.type == "abort":
            raise ProtocolError(f"the server aborted the request: {finish.message or 'no message'}")
        histogram = meta.get("spec_correct_drafts_histogram", meta.get("spec_accept_histogram")) or ()
        return cls(
            output_ids=tuple(int(i) for i in body["output_ids"]),
            text=_text(body["text"]),
            finish=finish,
            prompt_tokens=int(meta["prompt_tokens"]),
            # A scoring request (max_new_tokens 0) may leave the count out; with tokens it must be there.
            completion_tokens=int(
                meta["completion_tokens"] if body["output_ids"] else meta.get("completion_tokens", 0)
            ),
            cached_tokens=int(meta.get("cached_tokens") or 0),
            num_retractions=int(meta.get("num_retractions") or 0),
            latency_s=meta.get("e2e_latency"),
            spec_verify_ct=meta.get("spec_verify_ct"),
            spec_accept_length=meta.get("spec_accept_length"),
            accept_histogram=tuple(int(n) for n in histogram),
            output_logprobs=_entries(meta.get("output_token_logprobs")),
            output_top=_lists(meta.get("output_top_logprobs")),
            input_logprobs=_entries(meta.get("input_token_logprobs")),
            input_top=_lists(meta.get("input_top_logprobs")),
            input_ids_logprobs=_lists(meta.get("input_token_ids_logprobs")),
            raw=body,
        )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text is {value!r}")
    return value


def _entries(rows: Any) -> tuple[TokenLogprob, ...] | None:
    if rows is None:
        return None
    return tuple(TokenLogprob(None if row[0] is None else float(row[0]), int(row[1])) for row in rows)


def _lists(rows: Any) -> tuple[tuple[TokenLogprob, ...], ...] | None:
    if rows is None:
        return None
    return tuple(_entries(row) or () for row in rows)
