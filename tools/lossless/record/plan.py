"""What has to be asked of each server, as plain values: no I/O here.

Variants come first and the baseline last, because the baseline re-scores what the variants said. Stages of one server
run one after another; inside a stage the requests run alone or at once, after a flush each, a flush once, or none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from lossless.protocol import Sampling

Flush = Literal["each", "once"]

PLAIN = "plain"  # every prompt alone, no logprobs, flushed: what verdicts come from
AGAIN = "again"  # the same once more, baseline only, where LOGPROBS has not said the same already: is it repeatable?
LOGPROBS = "logprobs"  # alone with logprobs: noise floor on the baseline, an alignment check on a variant
TOGETHER = "together"  # several at once
HIT = "hit"  # each prompt twice in a row: the second answer starts from the prefix cache
ORDER = "order"  # one after another without a flush, the first again at the end
SCORE = "score"  # re-scoring, baseline only
STRESS = "stress"  # long ones at once, a burst, beside requests that are cut off (``record.stress``)
AFTER = "after"  # alone again, after the stress

TOGETHER_GROUPS = frozenset({"concurrent", "parity"})
LOGPROB_GROUPS = frozenset({"parity", "unicode", "concurrent"})


def adjusted(sampling: Sampling) -> bool:
    """Whether the server changes the logits before it chooses (penalties, a grammar, a minimum length)."""
    return not_scorable(sampling) or bool(
        sampling.frequency_penalty or sampling.presence_penalty or sampling.min_new_tokens
    )


def not_scorable(sampling: Sampling) -> bool:
    """Whether re-scoring, which sees raw logits, cannot tell what the server chose from (``verdict.adjust``). A
    negative penalty raises tokens, also such as are on no list."""
    lowest = min(sampling.frequency_penalty, sampling.presence_penalty)
    return sampling.repetition_penalty != 1.0 or sampling.json_schema is not None or lowest < 0


class PlannedPrompt(Protocol):
    """What the plan needs to know of a prompt."""

    @property
    def id(self) -> str: ...

    @property
    def group(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Item:
    """One request: which prompt, in which stage, and which of the stage's turns for that prompt (0, 1, ...)."""

    stage: str
    prompt: str
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """Requests that belong together. ``concurrency`` 1 means one at a time, in order.

    ``stateful`` stages mean something only as a whole, so a half-finished one is run again from its start.
    """

    name: str
    items: tuple[Item, ...]
    concurrency: int
    flush: Flush
    logprobs: bool = False

    @property
    def stateful(self) -> bool:
        return self.flush == "once"


def stages(prompts: Sequence[PlannedPrompt], *, baseline: bool, concurrency: int) -> tuple[Stage, ...]:
    """The generating stages of one server, in the order they run; empty stages are left out."""

    def alone(name: str, chosen: Sequence[PlannedPrompt], logprobs: bool = False) -> Stage:
        return Stage(name, tuple(Item(name, p.id) for p in chosen), 1, "each", logprobs)

    def of(groups: frozenset[str]) -> list[PlannedPrompt]:
        return [p for p in prompts if p.group in groups]

    order = of(frozenset({"order"}))
    plan = [
        alone(PLAIN, prompts),
        Stage(TOGETHER, tuple(Item(TOGETHER, p.id) for p in of(TOGETHER_GROUPS)), concurrency, "once"),
        Stage(HIT, tuple(Item(HIT, p.id, turn) for p in of(frozenset({"cache"})) for turn in (0, 1)), 1, "once"),
        Stage(ORDER, tuple([Item(ORDER, p.id) for p in order] + [Item(ORDER, p.id, 1) for p in order[:1]]), 1, "once"),
        alone(LOGPROBS, of(LOGPROB_GROUPS), logprobs=True),
        *([alone(AGAIN, prompts)] if baseline else []),
    ]
    return tuple(stage for stage in plan if stage.items)
