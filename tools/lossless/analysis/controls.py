"""What must hold before any verdict counts: the design's controls (a) to (d), as values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lossless.analysis.acceptance import acceptance
from lossless.analysis.load import Recorded, score_of
from lossless.protocol import Answer
from lossless.record.plan import LOGPROBS, PLAIN, adjusted
from lossless.record.store import RecordedPrompt
from lossless.servers.pair import ServerFacts, compare_pair, config_problems
from lossless.verdict import Failure, NoiseSample, OutputScores, Reason

SPECULATES_ABOVE = 1.05  # tokens a verify step without the prefill's token: below, no draft is ever accepted


@dataclass(frozen=True, slots=True)
class Control:
    """One control's outcome. ``scope`` is ``baseline`` or a variant's name; ``reason`` what it makes inconclusive."""

    name: str
    scope: str
    ok: bool
    detail: str
    reason: Reason | None = None
    notes: tuple[str, ...] = ()

    @property
    def failure(self) -> Failure | None:
        return None if self.ok or self.reason is None else Failure(self.reason, self.detail)


def repeatable(baseline: Recorded, prompts: Iterable[RecordedPrompt]) -> Control:
    """(a) The baseline's two runs of the set. What they disagree on is inconclusive prompt by prompt."""
    compared, differ = 0, []
    for prompt in prompts:
        first, second = baseline.transcript(PLAIN, prompt.id), baseline.repeat(prompt.id)
        if first is None or second is None:
            continue
        compared += 1
        if (first.ids, first.finish) != (second.ids, second.finish):
            differ.append(prompt.id)
    if not compared:
        return Control("repeatable", "baseline", False, "the baseline was not run twice", Reason.NOT_REPEATABLE)
    detail = f"the baseline's two runs agree on {compared - len(differ)} of {compared} prompts"
    if differ:
        detail += f"; not on {', '.join(differ[:5])}{' …' if len(differ) > 5 else ''}"
    return Control("repeatable", "baseline", not differ, detail)


def noise_samples(
    baseline: Recorded, prompts: Iterable[RecordedPrompt], scores: Mapping[str, Answer]
) -> list[NoiseSample]:
    """(b) Every position of the baseline's own output: its decode logprob, its re-scored one, and its own regret."""
    samples: list[NoiseSample] = []
    for prompt in prompts:
        answer = baseline.answers.get((LOGPROBS, prompt.id, 0))
        if answer is None or adjusted(prompt.sampling) or answer.output_logprobs is None:
            continue
        scored = score_of(scores, prompt, answer.output_ids)
        if scored is None or len(answer.output_logprobs) != len(answer.output_ids):
            samples += [NoiseSample(None, None, None)] * len(answer.output_ids)
            continue
        for t, entry in enumerate(answer.output_logprobs):
            gap, rescored_gap = _gaps(answer, scored, t)
            samples.append(NoiseSample(entry.logprob, scored.logprobs[t], scored.regret(t), gap, rescored_gap))
    return samples


def _gaps(answer: Answer, scored: OutputScores, t: int) -> tuple[float | None, float | None]:
    """The gap between decode's two best tokens at t, as decode and as re-scoring see it (nats)."""
    best = answer.output_top[t][:2] if answer.output_top is not None and t < len(answer.output_top) else ()
    if len(best) < 2 or best[0].logprob is None or best[1].logprob is None:
        return None, None
    first, second = (scored.logprob_of(t, entry.token_id) for entry in best)
    if first is None or second is None:
        return None, None
    return best[0].logprob - best[1].logprob, first - second


def speculation(server: Recorded, prompts: Iterable[RecordedPrompt]) -> Control:
    """(c) Speculation ran on a variant, and its drafts were accepted."""
    seen = acceptance(server, prompts)
    if not seen.verify_steps:
        detail = server.problem or "no answer reports a verify step (spec_verify_ct): speculation never ran"
        return Control("speculation", server.name, False, detail, Reason.NO_SPECULATION)
    drafted = seen.drafted_length or 0.0
    detail = f"accept length {seen.accept_length:.2f} over {seen.verify_steps} verify steps"
    if drafted <= SPECULATES_ABOVE:
        return Control(
            "speculation",
            server.name,
            False,
            f"{drafted:.3f} tokens a verify step: no draft token is accepted, so speculation is off in effect "
            "(wrong draft model, or a draft head that was never loaded)",
            Reason.NO_SPECULATION,
        )
    if seen.silent:
        detail += f"; {seen.silent} answers report none, so they are not proven"
        return Control("speculation", server.name, False, detail, Reason.NO_SPECULATION)
    return Control("speculation", server.name, True, detail)


def no_speculation(baseline: Recorded) -> Control:
    """(c) The baseline must not speculate, or it is no baseline."""
    found = [key[1] for key, answer in baseline.answers.items() if answer.spec_verify_ct]
    if not baseline.answers:
        detail = baseline.problem or "the baseline was not recorded"
        return Control("no speculation", "baseline", False, detail, Reason.MISSING)
    if found:
        return Control(
            "no speculation",
            "baseline",
            False,
            f"the baseline itself speculates (spec_verify_ct in the answer for {found[0]})",
            Reason.NOT_A_PAIR,
        )
    return Control("no speculation", "baseline", True, "the baseline reports no verify step")


def pair(baseline: Recorded, variant: Recorded, allow: tuple[str, ...], algorithm: str | None) -> Control:
    """(d) The resolved arguments make the two servers a pair, and both are meant to be lossless."""
    if not baseline.info or not variant.info:
        name = baseline.name if not baseline.info else variant.name
        why = (baseline if not baseline.info else variant).problem
        return Control("pair", variant.name, False, f"{name}: {why or 'no /server_info'}", Reason.MISSING)
    facts, other = _facts(baseline), _facts(variant)
    compared = compare_pair(facts, other, allow_differences=allow)
    problems = [str(p).replace("variant", variant.name, 1) for p in compared.problems]
    problems += [f"baseline: {p}" for p in config_problems(facts, speculative=False)]
    problems += [f"{variant.name}: {p}" for p in config_problems(other, speculative=True, algorithm=algorithm)]
    notes = tuple(str(n) for n in compared.notes)
    if problems:
        return Control("pair", variant.name, False, "; ".join(problems), Reason.NOT_A_PAIR, notes)
    return Control("pair", variant.name, True, "same target and arguments but for speculation", notes=notes)


def _facts(server: Recorded) -> ServerFacts:
    return ServerFacts(server_info=server.info, model_info=server.model, settings=server.settings)
