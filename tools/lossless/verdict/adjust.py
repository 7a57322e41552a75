"""Re-scored logprobs under the request's own penalties.

Re-scoring sees raw logits, but the server chose after it had subtracted penalties and hidden the stop tokens. Additive
penalties and a minimum length are known functions of the output so far (SGLang,
``srt/sampling/penaltylib``: frequency and presence count output tokens only), and a difference of logprobs is a
difference of logits, so they can be applied here. A multiplicative repetition penalty needs the logits themselves and
a grammar its automaton; with those there is nothing to be said.
"""

import math
from collections import Counter
from dataclasses import dataclass

from lossless.verdict.scores import Candidate, OutputScores


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What the server did to the logits before it chose. Penalties are in nats, ``min_new_tokens`` in tokens;
    ``hidden_ids`` are the stop tokens that may not come before that.

    ``counted_late`` is the last prompt token, where the server counts one token late: SGLang's overlapped scheduling
    feeds the penalties the newest output it knows when it prepares a step, which is the one before the newest, and at
    the first step the last prompt token (``ScheduleBatch.prepare_for_decode``)."""

    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    min_new_tokens: int = 0
    hidden_ids: frozenset[int] = frozenset()
    counted_late: int | None = None


def adjust(scores: OutputScores, adjustment: Adjustment) -> OutputScores:
    """The scores as the server's choice saw them: shifted logits, no longer normalized, so only differences count.

    Penalties only lower a token, so an unlisted one is at most where the listed ones end. Where no listed candidate
    reaches that line after the penalties, the argmax is unknown and the position loses its candidates: evidence is
    missing, which is no pass.
    """
    seen: Counter[int] = Counter()
    logprobs: list[float | None] = []
    tops: list[tuple[Candidate, ...]] = []
    for t, token in enumerate(scores.ids):

        def shifted(token_id: int, logprob: float, t: int = t) -> float:
            if t < adjustment.min_new_tokens and token_id in adjustment.hidden_ids:
                return -math.inf
            count = seen[token_id]
            return logprob - adjustment.frequency_penalty * count - adjustment.presence_penalty * (count > 0)

        own = scores.logprobs[t]
        logprobs.append(None if own is None else shifted(token, own))
        listed = scores.top[t]
        row = sorted((Candidate(c.token_id, shifted(c.token_id, c.logprob)) for c in listed), key=lambda c: -c.logprob)
        line = min((c.logprob for c in listed), default=math.inf)
        tops.append(tuple(row) if row and row[0].logprob >= line else ())
        late = adjustment.counted_late
        seen[token if late is None else late if t == 0 else scores.ids[t - 1]] += 1
    return OutputScores(scores.ids, tuple(logprobs), tuple(tops))
