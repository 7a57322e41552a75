"""Prompts of several exact lengths that ask the same thing, so that only the length differs between them."""

from collections.abc import Sequence

from lossless.bench.plan import CONTEXT_TOKENS, Task
from lossless.prompts import Tokenizer
from lossless.prompts.haystack import Haystack
from lossless.protocol import Sampling

CATEGORY = "needle"
DEPTH = 0.5


def context_tasks(tokenizer: Tokenizer, lengths: Sequence[int], new_tokens: int | None = None) -> tuple[Task, ...]:
    """One task a length, shortest first: a fact in the middle of a text, and a question about it at the end.

    ``new_tokens`` caps the answers.

    Raises:
        UsageError: a length is too short for the question.
    """
    cap = CONTEXT_TOKENS if new_tokens is None else min(new_tokens, CONTEXT_TOKENS)
    return tuple(
        Task(f"needle-{n}", CATEGORY, tokenizer.build(Haystack(n, DEPTH), False).ids, Sampling(cap), n)
        for n in sorted(lengths)
    )
