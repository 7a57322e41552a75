"""Two recorded runs (or two servers of one run) compared offline: what did A say, what does B say."""

from dataclasses import dataclass

from lossless.analysis.analysis import Analysis
from lossless.analysis.judged import Judged
from lossless.analysis.load import stop_rules
from lossless.errors import UsageError
from lossless.record.plan import PLAIN
from lossless.verdict import Evidence, Failure, OutputScores, Reason, Transcript, judge


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: a run and one of its servers."""

    analysis: Analysis
    server: str

    def __str__(self) -> str:
        return f"{self.analysis.store.path.name}:{self.server}"


def pairs(a: Analysis, b: Analysis, server_a: str | None, server_b: str | None) -> tuple[tuple[Side, Side], ...]:
    """Which servers of the two runs to compare: the named ones (one name serves both), else every server both have.

    Raises:
        UsageError: a run lacks the named server.
    """
    if server_a is None and server_b is None:
        return tuple((Side(a, name), Side(b, name)) for name in a.servers if name in b.servers)
    sides = Side(a, server_a or server_b or ""), Side(b, server_b or server_a or "")
    for side in sides:
        if side.server not in side.analysis.servers:
            raise UsageError(
                f"run {side.analysis.store.path.name} has no server {side.server!r}; "
                f"it has: {', '.join(side.analysis.servers)}"
            )
    return (sides,)


def compare(left: Side, right: Side) -> tuple[Judged, ...]:
    """Every prompt of A's run, as B answered it when it ran alone.

    B's output is judged by A's baseline where A's run re-scored that very output, else by B's own baseline. Prompts
    that only one run has, or that were sent differently, are inconclusive.
    """
    a, b = left.analysis, right.analysis
    found = []
    for prompt in a.prompts.values():
        ours = a.servers[left.server].transcript(PLAIN, prompt.id)
        theirs = b.servers[right.server].transcript(PLAIN, prompt.id)
        failures = []
        other = b.prompts.get(prompt.id)
        if other is None:
            failures.append(Failure(Reason.MISSING, f"{right} has no prompt {prompt.id}"))
        elif (other.ids, other.sampling) != (prompt.ids, prompt.sampling):
            failures.append(Failure(Reason.NOT_A_PAIR, "the two runs sent different tokens or sampling parameters"))
        for side, said in ((left, ours), (right, theirs)):
            if said is None:
                failures.append(Failure(Reason.MISSING, side.analysis.servers[side.server].missing(PLAIN, prompt.id)))
        judge_, scores = _scores(a, b, prompt.id, theirs)
        verdict = judge(
            Evidence(
                baseline=ours,
                variant=theirs,
                rules=stop_rules(prompt, a.eos_ids),
                epsilon=judge_.epsilon,
                scores=scores,
                own_rate=judge_.noise.regret_rate,
                failures=tuple(failures),
                detokenize=a.detokenize if a.tokenizer else None,
                names=("A", "B"),
            )
        )
        found.append(Judged(str(right), prompt, PLAIN, 0, verdict, ours, theirs, ("A", "B")))
    return tuple(found)


def _scores(
    a: Analysis, b: Analysis, prompt_id: str, output: Transcript | None
) -> tuple[Analysis, OutputScores | None]:
    prompt = a.prompts[prompt_id]
    if output is None:
        return a.home(prompt_id), None
    scores = a.scores(prompt, output)
    if scores is not None:
        return a.home(prompt_id), scores
    return b.home(prompt_id), b.scores(prompt, output)
