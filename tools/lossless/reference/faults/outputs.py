# ruff: noqa: ARG002  (a hook's arguments are there for the faults that need them)
"""Faults in reporting: the computation is right, the answer is not."""

from typing import TYPE_CHECKING, Any

from lossless.reference.faults.base import Fault, FaultSpec, register

if TYPE_CHECKING:
    from lossless.reference.generation import Generation

LOGPROBS = "logprobs misaligned"
_LISTS = ("output_token_logprobs", "output_top_logprobs", "output_token_ids_logprobs")


class LogprobsShifted(Fault):
    """Each position carries the log-probabilities of the position before it."""

    def answer(self, g: "Generation", body: dict[str, Any]) -> dict[str, Any]:
        for name in _LISTS:
            rows = body["meta_info"].get(name)
            if rows:
                body["meta_info"][name] = [rows[0], *rows[:-1]]
        return body


class LogprobsZero(Fault):
    """All output log-probabilities are 0."""

    def answer(self, g: "Generation", body: dict[str, Any]) -> dict[str, Any]:
        rows = body["meta_info"].get("output_token_logprobs")
        if rows:
            body["meta_info"]["output_token_logprobs"] = [[0.0, token, text] for _, token, text in rows]
        return body


class LogprobsMissLast(Fault):
    """The last position has no log-probabilities."""

    def answer(self, g: "Generation", body: dict[str, Any]) -> dict[str, Any]:
        meta = body["meta_info"]
        for name in _LISTS:
            if meta.get(name):
                meta[name] = meta[name][:-1]
        if "output_token_logprobs" in meta:
            meta["output_token_logprobs_length"] = len(meta["output_token_logprobs"])
        return body


class TextNotTheIds(Fault):
    """The detokenizer misses the last accepted token that has a text."""

    def answer(self, g: "Generation", body: dict[str, Any]) -> dict[str, Any]:
        ids = body["output_ids"]
        if g.finish is not None and g.finish.type == "stop":
            ids = ids[:-1]
        body["text"] = g.models.tokenizer.decode(ids[:-1], skip_special_tokens=True)
        return body


class UsagePastEnd(Fault):
    """completion_tokens counts what the last block computed beyond the end."""

    def answer(self, g: "Generation", body: dict[str, Any]) -> dict[str, Any]:
        body["meta_info"]["completion_tokens"] += g.overrun
        return body


for spec in (
    FaultSpec(
        "logprobs-shifted",
        LOGPROBS,
        "Output log-probabilities are one position off.",
        LogprobsShifted,
        needs="logprobs",
    ),
    FaultSpec(
        "logprobs-zero",
        LOGPROBS,
        "Output log-probabilities are all 0.",
        LogprobsZero,
        needs="logprobs",
    ),
    FaultSpec(
        "logprobs-miss-last",
        LOGPROBS,
        "The last output token has no log-probability.",
        LogprobsMissLast,
        needs="logprobs",
    ),
    FaultSpec(
        "text-not-the-ids",
        "stop inside an accepted run",
        "The text lacks the last token of the output ids.",
        TextNotTheIds,
        needs="any",
    ),
    FaultSpec(
        "usage-past-end",
        "counting",
        "completion_tokens counts tokens past the stop.",
        UsagePastEnd,
    ),
):
    register(spec)
