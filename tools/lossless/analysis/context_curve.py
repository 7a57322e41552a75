"""Accept length and speed against context length, from the prompts that were built to a length.

Output stays right at long context, but the gain may not (one field report: 3.76 tokens a step short, 2.13 at 128K).
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from lossless.analysis.acceptance import acceptance
from lossless.analysis.load import Recorded
from lossless.record.plan import PLAIN
from lossless.record.store import RecordedPrompt


@dataclass(frozen=True, slots=True)
class ContextPoint:
    """One server at one context length. ``accept_length`` in tokens a verify step, None without a verify step.

    ``tokens_per_s`` is output tokens by client wall seconds, so the prefill, which grows with the context, is part of
    it; ``seconds`` is the mean wall time of one prompt. Both are None where no answer was timed.
    """

    prompt_tokens: int
    accept_length: float | None
    verify_steps: int
    prompts: int
    tokens_per_s: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Needles:
    """Prompts whose right answer is known: how many a server answered, and which of them rightly."""

    asked: int
    found: tuple[str, ...]


def built(prompts: Iterable[RecordedPrompt]) -> dict[int, list[RecordedPrompt]]:
    """The prompts that were built to a length, by their tokens, shortest first."""
    found: dict[int, list[RecordedPrompt]] = defaultdict(list)
    for prompt in prompts:
        if prompt.depth is not None:
            found[len(prompt.ids)].append(prompt)
    return dict(sorted(found.items()))


def context_curve(server: Recorded, prompts: Iterable[RecordedPrompt]) -> tuple[ContextPoint, ...]:
    """One point a built length that the server answered at all, from the plain answers (one request at a time)."""
    points = []
    for tokens, same in built(prompts).items():
        answered = [p for p in same if (PLAIN, p.id, 0) in server.answers]
        if not answered:
            continue
        seen = acceptance(server, answered)
        seconds = sum(server.wall_s.get((PLAIN, p.id, 0), 0.0) for p in answered)
        new = sum(server.answers[(PLAIN, p.id, 0)].completion_tokens for p in answered)
        points.append(
            ContextPoint(
                prompt_tokens=tokens,
                accept_length=seen.accept_length,
                verify_steps=seen.verify_steps,
                prompts=len(answered),
                tokens_per_s=new / seconds if seconds else None,
                seconds=seconds / len(answered) if seconds else None,
            )
        )
    return tuple(points)


def needles(server: Recorded, prompts: Iterable[RecordedPrompt]) -> Needles:
    """Which prompts with a known answer a server answered rightly."""
    said = {p.id: found for p in prompts if (found := needle_found(server, p)) is not None}
    return Needles(len(said), tuple(name for name, found in said.items() if found))


def needle_found(server: Recorded, prompt: RecordedPrompt) -> bool | None:
    """Whether a server's plain answer contains the prompt's expected text, upper and lower case alike; None where
    nothing is expected or nothing was answered."""
    answer = server.answers.get((PLAIN, prompt.id, 0))
    if prompt.expect is None or answer is None:
        return None
    return prompt.expect.casefold() in answer.text.casefold()
