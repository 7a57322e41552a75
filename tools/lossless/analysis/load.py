"""Recorded answers as the verdict core's values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from lossless.protocol import Answer
from lossless.record.plan import AGAIN, LOGPROBS, PLAIN, SCORE, adjusted, not_scorable
from lossless.record.store import Golden, RecordedPrompt, RunStore, output_digest
from lossless.verdict import Adjustment, Candidate, Finish, OutputScores, StopRules, Transcript, adjust

Key = tuple[str, str, int]
"""(stage, prompt id, turn)"""


def transcript(answer: Answer) -> Transcript:
    return Transcript(
        ids=answer.output_ids,
        text=answer.text,
        finish=Finish(answer.finish.type, answer.finish.matched),
        completion_tokens=answer.completion_tokens,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.cached_tokens,
        retractions=answer.num_retractions,
        verify_steps=answer.spec_verify_ct,
    )


def golden_transcript(golden: Golden) -> Transcript:
    finish = Finish(golden.finish_type, golden.finish_matched)
    return Transcript(golden.ids, golden.text, finish, completion_tokens=len(golden.ids))


def scores(answer: Answer, output_ids: tuple[int, ...]) -> OutputScores | None:
    """Scores of an output from a re-scoring answer, or None unless they belong to exactly these tokens.

    Entry 0 belongs to the last prompt token and is skipped.
    """
    entries, top = answer.input_logprobs, answer.input_top
    if entries is None or top is None or len(entries) != len(output_ids) + 1 or len(top) != len(entries):
        return None
    if tuple(e.token_id for e in entries[1:]) != output_ids:
        return None
    return OutputScores(
        ids=output_ids,
        logprobs=tuple(e.logprob for e in entries[1:]),
        top=tuple(
            tuple(Candidate(c.token_id, math.nan if c.logprob is None else c.logprob) for c in row) for row in top[1:]
        ),
    )


def stop_rules(prompt: RecordedPrompt, eos_ids: tuple[int, ...]) -> StopRules:
    s = prompt.sampling
    return StopRules(
        max_new_tokens=s.max_new_tokens,
        stop=s.stop,
        stop_token_ids=s.stop_token_ids,
        eos_ids=eos_ids,
        ignore_eos=s.ignore_eos,
        min_new_tokens=s.min_new_tokens,
        no_stop_trim=s.no_stop_trim,
        skip_special_tokens=s.skip_special_tokens,
    )


@dataclass(frozen=True, slots=True)
class Recorded:
    """Everything one server said. ``errors`` holds why an answer is missing, in words."""

    name: str
    answers: Mapping[Key, Answer]
    errors: Mapping[Key, str]
    wall_s: Mapping[Key, float]
    problem: str | None
    info: Mapping[str, object] = field(default_factory=dict)
    model: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, str] | None = None

    def transcript(self, stage: str, prompt: str, turn: int = 0) -> Transcript | None:
        answer = self.answers.get((stage, prompt, turn))
        return None if answer is None else transcript(answer)

    def repeat(self, prompt: str) -> Transcript | None:
        """The second run of a prompt alone: a plain one, or the pass with logprobs if that said the same (where it did
        not, logprobs may be the cause, and it proves nothing)."""
        again = self.transcript(AGAIN, prompt)
        if again is not None:
            return again
        first, other = self.transcript(PLAIN, prompt), self.transcript(LOGPROBS, prompt)
        same = first is not None and other is not None and (first.ids, first.finish) == (other.ids, other.finish)
        return other if same else None

    def missing(self, stage: str, prompt: str, turn: int = 0) -> str:
        """Why there is no answer."""
        error = self.errors.get((stage, prompt, turn))
        if error:
            return f"{self.name}: {error}"
        return f"{self.name}: {self.problem or 'this prompt was not recorded'}"


def load_server(store: RunStore, name: str) -> Recorded:
    state = store.server(name)
    answers: dict[Key, Answer] = {}
    errors: dict[Key, str] = {}
    wall: dict[Key, float] = {}
    for record in store.answers(name).values():
        if record.stage == SCORE:
            continue
        key = (record.stage, record.prompt, record.turn)
        parsed = record.parsed()
        if parsed is None:
            errors[key] = record.error or "the answer is not of the expected shape"
        else:
            answers[key] = parsed
            wall[key] = record.wall_s
    return Recorded(
        name=name,
        answers=answers,
        errors=errors,
        wall_s=wall,
        problem="it was never started" if state is None else state.problem,
        info=state.server_info if state else {},
        model=state.model_info if state else {},
        settings=state.settings if state else None,
    )


def load_scores(store: RunStore) -> dict[str, Answer]:
    """Re-scoring answers by output digest."""
    found: dict[str, Answer] = {}
    for record in store.answers("baseline").values():
        if record.stage == SCORE and record.output is not None and (parsed := record.parsed()) is not None:
            found[record.output] = parsed
    return found


def score_of(answers: Mapping[str, Answer], prompt: RecordedPrompt, output_ids: tuple[int, ...]) -> OutputScores | None:
    answer = answers.get(output_digest(prompt.ids, output_ids))
    return None if answer is None else scores(answer, output_ids)


def prompt_scores(
    answers: Mapping[str, Answer],
    prompt: RecordedPrompt,
    output_ids: tuple[int, ...],
    rules: StopRules,
    *,
    overlapped: bool,
) -> OutputScores | None:
    """Scores as the server's choice saw them: with the request's penalties; None where that cannot be known.

    ``overlapped``: the server schedules with overlap, and so counts penalties one token late.
    """
    if not_scorable(prompt.sampling):
        return None
    found, s = score_of(answers, prompt, output_ids), prompt.sampling
    if found is None or not adjusted(s):
        return found
    late = prompt.ids[-1] if overlapped else None
    penalties = Adjustment(s.frequency_penalty, s.presence_penalty, s.min_new_tokens, rules.stopping_ids, late)
    return adjust(found, penalties)
