"""The words a verdict is made of. They are part of the evidence format: people script them."""

from enum import StrEnum


class Kind(StrEnum):
    """The four verdicts."""

    IDENTICAL = "identical"
    NEAR_TIE = "near-tie"
    DIVERGENT = "divergent"
    INCONCLUSIVE = "inconclusive"


class Reason(StrEnum):
    """Why a verdict is ``divergent`` (first block) or ``inconclusive`` (second block)."""

    GAP = "gap"  # a difference starts at a token further than epsilon from the argmax
    REGRET = "regret"  # a later token of the output is further than epsilon from the argmax
    BUDGET = "budget"  # each token is within epsilon, but together they are too many or too much
    STOP = "stop"  # stop rules, finish reason or max_new_tokens broken
    LENGTH = "length"  # tokens missing or miscounted
    TEXT = "text"  # the text is not the detokenized ids
    LOGPROBS = "logprobs"  # logprobs misaligned with the tokens
    UNPROVEN_FORK = "unproven-fork"  # a flip that does not reconverge, and no re-scoring

    MISSING = "missing"  # no answer from a server
    NOT_REPEATABLE = "not-repeatable"  # the baseline disagrees with itself
    NOT_A_PAIR = "not-a-pair"  # the servers differ in more than speculation
    NO_SPECULATION = "no-speculation"  # nothing was speculated, so nothing is proven
    NO_EPSILON = "no-epsilon"  # the noise floor could not be had
    UNSCORED = "unscored"  # re-scoring is incomplete
    CONTRADICTION = "contradiction"  # the baseline's re-scoring contradicts the baseline's own decode
