"""Accept length and speed by category. One mixed figure over categories would mostly show the mix of tasks."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from lossless.analysis.load import Recorded
from lossless.record.plan import PLAIN
from lossless.record.store import RecordedPrompt


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Speculation over some prompts. ``accept_length`` = completion tokens / verify steps, SGLang's own definition
    (bonus token and the prefill's token included); ``drafted_length`` leaves the prefill's token out, so that it is
    exactly 1 when no draft token is ever accepted. Lengths in tokens a step, None without a verify step.
    """

    prompts: int
    tokens: int
    verify_steps: int
    silent: int

    @property
    def accept_length(self) -> float | None:
        return self.tokens / self.verify_steps if self.verify_steps else None

    @property
    def drafted_length(self) -> float | None:
        return (self.tokens - self.prompts) / self.verify_steps if self.verify_steps else None


@dataclass(frozen=True, slots=True)
class Speed:
    """End-to-end decode speed over some prompts sent one at a time: completion tokens and client wall seconds."""

    tokens: int
    seconds: float

    @property
    def tokens_per_s(self) -> float | None:
        return self.tokens / self.seconds if self.seconds else None


def acceptance(server: Recorded, prompts: Iterable[RecordedPrompt]) -> Acceptance:
    """Pooled over the plain answers of these prompts. ``silent`` counts answers of 2 tokens or more without a verify
    step (a single token comes from the prefill and needs none)."""
    n = tokens = steps = silent = 0
    for prompt in prompts:
        answer = server.answers.get((PLAIN, prompt.id, 0))
        if answer is None or len(answer.output_ids) < 2:
            continue
        n += 1
        if answer.spec_verify_ct:
            tokens += answer.completion_tokens
            steps += answer.spec_verify_ct
        else:
            silent += 1
    return Acceptance(n - silent, tokens, steps, silent)


def speed(server: Recorded, prompts: Iterable[RecordedPrompt]) -> Speed:
    tokens, seconds = 0, 0.0
    for prompt in prompts:
        answer = server.answers.get((PLAIN, prompt.id, 0))
        if answer is not None:
            tokens += answer.completion_tokens
            seconds += server.wall_s[(PLAIN, prompt.id, 0)]
    return Speed(tokens, seconds)


def by_category(prompts: Iterable[RecordedPrompt]) -> dict[str, list[RecordedPrompt]]:
    """Prompts whose speculation is worth reporting, by category: greedy and unadjusted ones. Those that were built to a
    length have a curve of their own (``context_curve``)."""
    found: dict[str, list[RecordedPrompt]] = defaultdict(list)
    for prompt in prompts:
        if prompt.group not in ("params", "cap", "short", "stress") and prompt.depth is None:
            found[prompt.category].append(prompt)
    return dict(sorted(found.items()))
