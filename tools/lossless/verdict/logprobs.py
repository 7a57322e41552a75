"""Whether the logprobs a server returned belong to the tokens it returned (sglang #17349, #10660 and others)."""

import math

Entry = tuple[float | None, int]
"""(logprob in nats or None, token id)"""


def misaligned(output_ids: tuple[int, ...], completion_tokens: int, entries: tuple[Entry, ...] | None) -> str | None:
    """What is wrong with ``output_token_logprobs``, in words, or None.

    One entry a token, for the very tokens emitted, each a finite number not above 0, and not all zero.
    """
    if entries is None:
        return "logprobs were asked for and none came"
    if len(entries) != completion_tokens:
        return f"{len(entries)} logprobs for {completion_tokens} completion tokens"
    if len(entries) != len(output_ids):
        return f"{len(entries)} logprobs for {len(output_ids)} output ids"
    for t, ((logprob, token_id), emitted) in enumerate(zip(entries, output_ids, strict=True)):
        if token_id != emitted:
            return f"the logprob at position {t} is of token {token_id}, but token {emitted} was emitted"
        if logprob is None or not math.isfinite(logprob):
            return f"the logprob at position {t} is {logprob}"
        if logprob > 1e-6:
            return f"the logprob at position {t} is {logprob:.3g}, above 0"
    if len(entries) >= 8 and all(logprob == 0 for logprob, _ in entries):
        return f"all {len(entries)} logprobs are exactly 0"
    return None


def shifted(entries: tuple[Entry, ...], rescored: tuple[float | None, ...], *, epsilon: float) -> str | None:
    """Whether logprobs of the variant disagree with the baseline's re-scoring of the same tokens, or None.

    Two roundings of one value differ by at most epsilon; the position and both values are named. A token that both
    sides call very improbable is not compared: its logprob rounds coarsely, and greedy decoding never emits one.
    """
    for t, ((logprob, token_id), other) in enumerate(zip(entries, rescored, strict=False)):
        if logprob is None or other is None or max(logprob, other) < -5:
            continue
        if abs(logprob - other) > epsilon:
            return (
                f"the logprob of token {token_id} at position {t} is {logprob:.4g}, "
                f"the baseline's re-scoring says {other:.4g} (epsilon {epsilon:.4g})"
            )
    return None
