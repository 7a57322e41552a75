"""The rules of localization: from circumstances and numbers of one answer to kinds of fault that would explain them.

Each rule looks at one answer that did not pass, beside all answers of the same variant, and yields what it suspects.
Weights only order the suspicions; they are no probabilities and are never shown. All of them were set against the
planted faults of the embedded engine.
"""

from collections.abc import Iterator
from dataclasses import fields

from lossless.analysis import fault_kinds as kinds
from lossless.analysis import hint_decoding as decoding
from lossless.analysis.hint_cases import FEW, Case, Rule, Seen, Suspicion
from lossless.protocol import Sampling
from lossless.record.plan import HIT, LOGPROBS, ORDER, PLAIN, TOGETHER
from lossless.verdict import Kind, Reason

BOUNDARY = 256  # tokens; page sizes and state checkpoints of the linear-attention backends divide it
NEAR_BOUNDARY = 16  # tokens behind a boundary in which a lost state shows
WORTH = 0.7  # of the best suspicion's weight: what is far behind it is not worth reading

PENALTY_PARAMETERS = frozenset({"frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens"})
_PARAMETERS = tuple(f.name for f in fields(Sampling) if f.name not in ("max_new_tokens", "temperature"))
_DEFAULT = Sampling(max_new_tokens=1)


def suspicions(case: Case, seen: Seen) -> tuple[Suspicion, ...]:
    """What the rules make of one answer, the likeliest first, each kind once. Nothing for an answer that passed."""
    if case.passed:
        return ()
    rules = DIVERGENT if case.divergent else (_inconclusive,)
    found = sorted((s for rule in rules for s in rule(case, seen)), key=lambda s: -s.weight)
    best: dict[str, Suspicion] = {}
    for suspicion in found:
        if suspicion.weight >= WORTH * found[0].weight:
            best.setdefault(suspicion.kind, suspicion)
    return tuple(best.values())


# ------------------------------------------------------------------------------------- what the verdict says by itself
def _inconclusive(case: Case, seen: Seen) -> Iterator[Suspicion]:  # noqa: ARG001
    verdict = case.judged.verdict
    known = {
        Reason.NO_SPECULATION: (
            kinds.OFF,
            "speculation is off in effect",
            "come from a server that does not speculate",
        ),
        Reason.NOT_REPEATABLE: (kinds.NOT_REPEATABLE, "the baseline is not repeatable", "have no repeatable baseline"),
        Reason.MISSING: (kinds.DIES, "a server did not answer", "are missing"),
    }
    if verdict.kind is Kind.INCONCLUSIVE and verdict.reason in known:
        kind, sentence, feature = known[verdict.reason]
        yield Suspicion(99, kind, sentence, verdict.detail, feature)


def _broken_rule(case: Case, seen: Seen) -> Iterator[Suspicion]:  # noqa: ARG001
    verdict, sampling = case.judged.verdict, case.judged.prompt.sampling
    same = case.judged.left is not None and case.judged.right is not None
    same = same and case.judged.left.ids == case.judged.right.ids  # type: ignore[union-attr]
    if verdict.reason is Reason.STOP and sampling.min_new_tokens and "min_new_tokens" in verdict.detail:
        yield Suspicion(97, kinds.PENALTIES, "min_new_tokens is not kept", verdict.detail, "end before min_new_tokens")
    elif verdict.reason is Reason.STOP:
        yield Suspicion(
            96,
            kinds.STOP,
            "a stop inside a run of accepted tokens is handled wrongly",
            verdict.detail,
            "break a stop rule",
        )
    elif verdict.reason is Reason.LENGTH and "completion_tokens says" in verdict.detail:
        yield Suspicion(96, kinds.COUNTING, "tokens are miscounted", verdict.detail, "are miscounted")
    elif verdict.reason is Reason.LENGTH:
        yield Suspicion(
            88, kinds.STOP, "the tokens agree, but the output ends elsewhere", verdict.detail, "end at another length"
        )
    elif verdict.reason is Reason.TEXT:
        only = "the tokens are right, only the text is not theirs" if same else "the text is not that of the tokens"
        yield Suspicion(
            90,
            kinds.STOP,
            f"{only}: detokenizing goes wrong inside an accepted run",
            verdict.detail,
            "have another text",
        )
    elif verdict.reason is Reason.LOGPROBS:
        yield Suspicion(96, kinds.LOGPROBS, "the logprobs are of other tokens", verdict.detail, "have wrong logprobs")


# --------------------------------------------------------------------------------------- the circumstances of a request
def _circumstances(case: Case, seen: Seen) -> Iterator[Suspicion]:
    if not seen.right_alone(case):
        return
    alone = "the same prompt is answered well alone on an empty cache"
    if case.cached:
        contrast = seen.contrast(lambda c: c.cached > 0, [c for c in seen.cases if c.stage in (PLAIN, case.stage)])
        yield Suspicion(
            (90 if case.stage == HIT else 82) + 8 * contrast,
            kinds.CACHE,
            "goes wrong only when the prompt's start comes from the prefix cache",
            f"{case.cached} of {case.prompt_length} prompt tokens were cached here; {alone}",
            "are prefix-cache hits",
        )
    if case.stage == TOGETHER:
        uncached = any(c.stage == TOGETHER and not c.cached for c in seen.divergent)
        yield Suspicion(
            92 if uncached else 80,
            kinds.BATCH,
            "goes wrong only when several requests are in flight",
            f"{alone}, but not beside others",
            "ran beside others",
        )
    if case.stage == ORDER:
        yield Suspicion(
            78 if case.cached else 90,
            kinds.ORDER,
            "goes wrong only after other requests",
            f"{alone}, but not after others without a flush",
            "came after other requests",
        )
    if case.stage == HIT and not case.cached:
        yield Suspicion(
            75,
            kinds.ORDER,
            "goes wrong only after other requests",
            f"{alone}; nothing was cached here",
            "came after others",
        )
    if case.stage == LOGPROBS:
        yield Suspicion(
            70,
            kinds.LOGPROBS,
            "goes wrong only when logprobs are asked for",
            f"{alone} without logprobs",
            "asked for logprobs",
        )


def _differs_from_itself(case: Case, seen: Seen) -> Iterator[Suspicion]:
    """The variant's own answers to one prompt, alone and with nothing cached, must be the same whatever ran before."""
    if not seen.unsteady or case.cached or case.stage == TOGETHER or seen.right_alone(case):
        return
    stage = seen.unsteady.get(case.prompt_id)
    evidence = f"alone and with nothing cached, {len(seen.unsteady)} prompts got two answers from the variant"
    if stage is not None:
        evidence = f"alone and with nothing cached, the variant gave this prompt another answer in stage {stage}"
    yield Suspicion(
        86 if stage is not None else 76,
        kinds.ORDER,
        "answers depend on what ran before",
        evidence,
        "come from a server that answers a prompt now so, now otherwise",
    )


def _parameter(case: Case, seen: Seen) -> Iterator[Suspicion]:
    sampling = case.judged.prompt.sampling
    changed = {name for name in _PARAMETERS if getattr(sampling, name) != getattr(_DEFAULT, name)}
    twins = [
        c
        for c in seen.plain.values()
        if c.judged.prompt.ids == case.judged.prompt.ids
        and c.passed
        and (only := {n for n in changed if getattr(c.judged.prompt.sampling, n) != getattr(sampling, n)})
        and only & (PENALTY_PARAMETERS | {"json_schema"})
    ]
    names = sorted(changed & (PENALTY_PARAMETERS | {"json_schema"}))
    if not names:
        return
    kind = kinds.GRAMMAR if "json_schema" in names else kinds.PENALTIES

    def asks(other: Case) -> bool:
        return any(getattr(other.judged.prompt.sampling, n) != getattr(_DEFAULT, n) for n in names)

    word = ", ".join(names)
    if twins:
        weight, evidence = 92.0, f"prompt {twins[0].prompt_id}, the same input without {word}, passes"
    else:
        contrast = seen.contrast(asks)
        weight, evidence = 40 + 45 * max(contrast, 0.0), f"the request sets {word}"
    if any(not asks(c) for c in seen.divergent):
        weight -= 25  # what goes wrong without the parameter too is not the parameter's doing
    yield Suspicion(weight, kind, f"goes wrong only under {word}", evidence, f"set {word}")


# ----------------------------------------------------------------------------------------------------- prompt and place
def _prompt_length(case: Case, seen: Seen) -> Iterator[Suspicion]:
    plain = tuple(seen.plain.values())
    short = 2 * (seen.width or 8) + 1
    if case.prompt_length <= short:
        contrast = seen.contrast(lambda c: c.prompt_length <= short, plain)
        longest = max((c.prompt_length for c in plain if c.divergent), default=case.prompt_length)
        none_longer = bool(plain) and longest <= short
        good = sum(c.passed and c.prompt_length > longest for c in plain)
        yield Suspicion(
            91 if none_longer and good >= FEW else 30 + 40 * max(contrast, 0.0),
            kinds.SHORT,
            "goes wrong for prompts about as short as a draft",
            f"the prompt has {case.prompt_length} tokens, the longest divergent one {longest}; {good} longer ones pass",
            f"have prompts of at most {short} tokens",
        )
    if seen.chunk and case.prompt_length > seen.chunk:
        chunk = seen.chunk
        contrast = seen.contrast(lambda c: c.prompt_length > chunk, plain)
        yield Suspicion(
            91 if contrast > 0.8 else 40 + 50 * max(contrast, 0.0),
            kinds.CHUNK,
            "goes wrong for prompts longer than the prefill chunk",
            f"the prompt has {case.prompt_length} tokens, the prefill chunk {chunk}",
            f"have prompts longer than the prefill chunk ({chunk} tokens)",
        )


def _first_token(case: Case, seen: Seen) -> Iterator[Suspicion]:
    if case.position != 0 or case.judged.verdict.reason not in (Reason.GAP, Reason.UNPROVEN_FORK):
        return
    yield Suspicion(
        60 if case.stage == PLAIN and not seen.right_alone(case) else 40,
        kinds.ORDER,
        "wrong from the first token: the state was wrong before anything was drafted, as after another request",
        "the first token comes from the prefill, before any draft",
        "are wrong from the first token",
    )


def _boundary(case: Case, seen: Seen) -> Iterator[Suspicion]:
    def behind(c: Case) -> int | None:
        """Tokens between the last boundary that decoding crossed and the first difference."""
        if c.position is None:
            return None
        at = c.prompt_length + c.position
        return at % BOUNDARY if at - at % BOUNDARY >= c.prompt_length else None

    def crosses(c: Case) -> bool:
        return (c.prompt_length + c.length) // BOUNDARY > (c.prompt_length - 1) // BOUNDARY

    distance = behind(case)
    if distance is None:
        return
    all_behind = all(behind(c) is not None for c in seen.divergent)
    contrast = seen.contrast(crosses) if all_behind else 0.0
    near = distance <= NEAR_BOUNDARY
    if not near and contrast < 0.5:
        return
    weight = (72 if near else 55) + 20 * max(contrast, 0.0)
    at = case.prompt_length + (case.position or 0)
    evidence = f"the first difference is at token {at} of prompt and output, {distance} behind {at - distance}"
    if contrast >= 0.5:
        evidence += "; no answer differs before such a boundary"
    feature = f"start behind a multiple of {BOUNDARY} tokens"
    yield Suspicion(
        weight, kinds.RECURRENT, f"goes wrong where decoding crosses a multiple of {BOUNDARY} tokens", evidence, feature
    )
    yield Suspicion(
        weight - 3, kinds.PAGE, f"goes wrong where decoding crosses a multiple of {BOUNDARY} tokens", evidence, feature
    )


DIVERGENT: tuple[Rule, ...] = (
    _broken_rule,
    _circumstances,
    _differs_from_itself,
    _parameter,
    _prompt_length,
    _first_token,
    _boundary,
    *decoding.RULES,
)
