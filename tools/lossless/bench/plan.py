"""What is asked of each server: pure, and the same for all of them.

Categories are never mixed in one figure: accept length depends on the kind of task more than on anything else.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from lossless.bench.sample import Stage
from lossless.errors import UsageError
from lossless.protocol import Sampling
from lossless.record.plan import adjusted
from lossless.record.store import RecordedPrompt

LENGTHS = (256, 1024, 4096, 16384, 32768, 65536, 131072)
"""Prompt tokens of the context stage; what does not fit into a server is left out there."""
TEMPERATURES = (0.0, 0.3, 0.6, 1.0)
TASKS = 2
"""Prompts a category, at most."""
ANSWER_TOKENS = 256
CONTEXT_TOKENS = 128
SHORTEST_ANSWER = 32
"""Tokens a prompt must allow: a rate over fewer says little."""
AT_ONCE = 8
"""Sampled requests sent at once; only their acceptance is looked at."""
MOST_STREAMS = 64

_GROUPS = frozenset({"parity", "concurrent"})


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure. Empty ``categories`` means all; ``temperatures`` above 0 are sampled, 0 comes from the speed
    stage. Raises UsageError for values that mean nothing."""

    repeats: int = 3
    streams: tuple[int, ...] = (1, 2, 8)
    categories: tuple[str, ...] = ()
    prefill: bool = True
    lengths: tuple[int, ...] = LENGTHS
    temperatures: tuple[float, ...] = TEMPERATURES

    def __post_init__(self) -> None:
        if not 1 <= self.repeats <= 100:
            raise UsageError(f"repeats is {self.repeats}; allowed: 1 to 100")
        if not self.streams or any(not 1 <= n <= MOST_STREAMS for n in self.streams):
            raise UsageError(f"streams are {list(self.streams)}; allowed: one or more of 1 to {MOST_STREAMS}")
        if any(not 0 <= t <= 2 for t in self.temperatures):
            raise UsageError(f"temperatures are {list(self.temperatures)}; allowed: 0 to 2")
        if any(length < 1 for length in self.lengths):
            raise UsageError(f"lengths are {list(self.lengths)}; allowed: 1 token or more")
        for name in ("streams", "lengths", "temperatures", "categories"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise UsageError(f"{name} has a value twice: {list(values)}")


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt to measure with; ``length`` is set for a task of the context stage."""

    id: str
    category: str
    ids: tuple[int, ...]
    sampling: Sampling
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a round: a task, and the seed it is sampled with (None: greedy)."""

    task: Task
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """Requests that are sent at once, on an empty prefix cache. ``label`` names its part of the plan for people."""

    stage: Stage
    label: str
    repeat: int
    asks: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Rounds in the order in which they run, and the shorter ones sent before, whose figures nobody keeps."""

    settings: Settings
    categories: tuple[str, ...]
    warm_up: tuple[Round, ...]
    rounds: tuple[Round, ...]

    @property
    def key(self) -> str:
        """SHA-256 (hex) over all requests: figures of equal keys may stand side by side."""
        content = [[r.stage, r.repeat, [asdict(ask) for ask in r.asks]] for r in self.rounds]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def requests(self) -> int:
        """How many requests are measured on one server."""
        return sum(len(r.asks) for r in self.rounds)


def make_plan(prompts: Sequence[RecordedPrompt], context: Sequence[Task], settings: Settings) -> Plan:
    """The plan over these prompts and the tasks of the context stage.

    Repeats go round and round over the categories, so that a machine that slows down slows all of them.

    Raises:
        UsageError: no prompt can be measured with, or a category does not exist.
    """
    tasks = choose(prompts, settings.categories)
    rounds = [*_speed(tasks, settings), *_context(context, settings), *_sampled(tasks, settings)]
    return Plan(settings, tuple(tasks), tuple(_warm_up(tasks, context, settings)), tuple(rounds))


def choose(prompts: Sequence[RecordedPrompt], categories: Sequence[str] = ()) -> dict[str, tuple[Task, ...]]:
    """By category the first prompts that are plain greedy questions: no stops, penalties or grammar, no forced length
    (an answer forced to run on is another kind of task).

    Raises:
        UsageError: as `make_plan`.
    """
    found: dict[str, list[Task]] = {}
    for group in ("parity", "concurrent"):
        for prompt in prompts:
            if prompt.group == group and _plain(prompt.sampling):
                found.setdefault(prompt.category, []).append(_task(prompt))
    if group_missing := [name for name in categories if name not in found]:
        raise UsageError(
            f"no category {group_missing[0]!r} among the prompts; there are: {', '.join(sorted(found)) or 'none'}"
        )
    if not found:
        raise UsageError(
            f"no prompt to measure with: needed is one of group {' or '.join(sorted(_GROUPS))} that is greedy, without "
            f"stops, penalties, grammar or ignore_eos, with {SHORTEST_ANSWER} new tokens or more",
            hint="--prompts standard",
        )
    chosen = categories or _usual(prompts, found)
    return {name: tuple(found[name][:TASKS]) for name in chosen}


def _usual(prompts: Sequence[RecordedPrompt], found: dict[str, list[Task]]) -> list[str]:
    """The categories of the group ``parity``, which has one for each kind of task; all where it is not there."""
    parity = {p.category for p in prompts if p.group == "parity"}
    return [name for name in found if name in parity] or list(found)


def _plain(sampling: Sampling) -> bool:
    special = adjusted(sampling) or sampling.stop or sampling.stop_token_ids or sampling.ignore_eos
    return not special and sampling.max_new_tokens >= SHORTEST_ANSWER


def _task(prompt: RecordedPrompt) -> Task:
    sampling = replace(prompt.sampling, max_new_tokens=min(prompt.sampling.max_new_tokens, ANSWER_TOKENS))
    return Task(prompt.id, prompt.category, prompt.ids, sampling)


def _label(streams: int) -> str:
    return "bench, alone" if streams == 1 else f"bench, {streams} at once"


def _speed(tasks: dict[str, tuple[Task, ...]], settings: Settings) -> list[Round]:
    rounds = []
    for streams in settings.streams:
        for repeat in range(settings.repeats):
            for own in tasks.values():
                if streams == 1:
                    rounds += [Round("speed", _label(1), repeat, (Ask(task),)) for task in own]
                else:
                    asks = tuple(Ask(own[k % len(own)]) for k in range(streams))
                    rounds.append(Round("speed", _label(streams), repeat, asks))
    return rounds


def _context(context: Sequence[Task], settings: Settings) -> list[Round]:
    if not settings.prefill:
        return []
    return [
        Round("context", "bench, prompt lengths", repeat, (Ask(task),))
        for repeat in range(settings.repeats)
        for task in context
    ]


def _sampled(tasks: dict[str, tuple[Task, ...]], settings: Settings) -> list[Round]:
    rounds = []
    for temperature in (t for t in settings.temperatures if t > 0):
        for repeat in range(settings.repeats):
            asks = [
                Ask(replace(task, sampling=replace(task.sampling, temperature=temperature)), 1 + repeat)
                for own in tasks.values()
                for task in own
            ]
            label = f"bench, temperature {temperature:g}"
            parts = (tuple(asks[at : at + AT_ONCE]) for at in range(0, len(asks), AT_ONCE))
            rounds += [Round("temperature", label, repeat, part) for part in parts]
    return rounds


def _warm_up(tasks: dict[str, tuple[Task, ...]], context: Sequence[Task], settings: Settings) -> list[Round]:
    """Every batch size and the shorter prompt lengths once: kernels are compiled and graphs captured at their first
    use. Long prompts run in the same chunks as these."""
    first = next(iter(tasks.values()))[0]
    short = replace(first, sampling=replace(first.sampling, max_new_tokens=SHORTEST_ANSWER))
    rounds = [Round("speed", "bench, warming up", 0, (Ask(short),) * streams) for streams in settings.streams]
    if settings.prefill:
        for task in context:
            if task.length is not None and task.length <= 4096:
                brief = replace(task, sampling=replace(task.sampling, max_new_tokens=8))
                rounds.append(Round("context", "bench, warming up", 0, (Ask(brief),)))
    return rounds
