"""Small transcripts and scores for the tests of the verdict core.

Token ids are bytes and decode as UTF-8, so that multi-byte characters fall apart between tokens; id 0 is the end of
sequence, a special token without text.
"""

from collections.abc import Mapping, Sequence

from lossless.verdict import Candidate, Evidence, Finish, OutputScores, StopRules, Transcript, given

EOS = 0
BEST = -1.0  # logprob of the argmax; two such tokens together are below a probability of 1
RULES = StopRules(max_new_tokens=64, eos_ids=(EOS,))


def spell(ids: tuple[int, ...], skip_special_tokens: bool) -> str:
    """The detokenizer of these tests."""
    return bytes(i for i in ids if not (skip_special_tokens and i == EOS)).decode("utf-8", "replace")


def said(
    ids: Sequence[int], finish: Finish | None = None, *, text: str | None = None, completion_tokens: int | None = None
) -> Transcript:
    """What an honest server says with these ids: it stops at EOS, else at 64 tokens."""
    ids = tuple(ids)
    if finish is None:
        finish = Finish("stop", EOS) if ids and ids[-1] == EOS else Finish("length")
    return Transcript(
        ids=ids,
        text=spell(ids, True) if text is None else text,
        finish=finish,
        completion_tokens=len(ids) if completion_tokens is None else completion_tokens,
    )


def ended(letters: str) -> tuple[int, ...]:
    """Token ids of a text, with EOS."""
    return (*letters.encode(), EOS)


def scores(
    ids: Sequence[int], regrets: Mapping[int, float] | None = None, others: Mapping[int, int] | None = None
) -> OutputScores:
    """Scores in which each token is the argmax but for the given regrets (nats, by position).

    ``others`` names the runner-up (or, where there is regret, the argmax) at a position; elsewhere it is id 255.
    """
    logprobs, top = [], []
    for t, token in enumerate(ids):
        regret = (regrets or {}).get(t, 0.0)
        other = (others or {}).get(t, 255)
        own = BEST - regret
        rival = BEST if regret > 0 or t in (others or {}) else BEST - 1.0
        logprobs.append(own)
        top.append(tuple(sorted((Candidate(token, own), Candidate(other, rival)), key=lambda c: -c.logprob)))
    return OutputScores(tuple(ids), tuple(logprobs), tuple(top))


def evidence(baseline: Transcript, variant: Transcript, **more: object) -> Evidence:
    """Evidence with an epsilon of 1/8 nat."""
    fields: dict[str, object] = {"rules": RULES, "epsilon": given(0.125), "detokenize": spell, **more}
    return Evidence(baseline, variant, **fields)  # type: ignore[arg-type]
