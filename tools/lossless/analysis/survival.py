"""How each server came through the stress test, as a result of its own."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lossless.record.plan import AFTER, STRESS
from lossless.record.stress import GROUP
from lossless.record.survival import Survival
from lossless.verdict import Kind

if TYPE_CHECKING:
    from lossless.analysis.analysis import Analysis
    from lossless.analysis.judged import Judged


@dataclass(frozen=True, slots=True)
class Survived:
    """One server. ``judged`` compares its answers under and after stress with its own from before."""

    server: str
    ok: bool
    detail: str
    facts: Survival | None
    judged: tuple["Judged", ...]

    @property
    def divergent(self) -> bool:
        """Whether an answer under or after stress differs by more than rounding from the one before."""
        return any(j.verdict.kind is Kind.DIVERGENT for j in self.judged)


def survived(analysis: "Analysis", server: str) -> Survived | None:
    """The result of one server; None where the run's prompts ask for no stress test. What is missing is no pass."""
    if not any(p.group == GROUP for p in analysis.prompts.values()):
        return None
    state = analysis.store.server(server)
    facts = None if state is None else state.survival
    recorded = analysis.servers[server]
    keys = sorted({*recorded.answers, *recorded.errors}, key=lambda key: (key[0] == AFTER, key))
    judged = tuple(
        analysis.within(server, prompt, stage, turn)
        for stage, prompt, turn in keys
        if stage in (STRESS, AFTER) and prompt in analysis.prompts
    )
    if facts is None:
        why = recorded.problem or "it was not recorded"
        return Survived(server, False, f"the stress test was never run: {why}", None, judged)
    problems = [*_problems(facts), *_answers(judged)]
    done = _done(facts)
    if problems:
        return Survived(server, False, f"{'; '.join(problems)}; after {done}", facts, judged)
    return Survived(server, True, f"survived {done}; {_same(judged)}", facts, judged)


def _done(facts: Survival) -> str:
    retractions = f"{facts.retractions} retractions"
    if not facts.retractions and facts.retraction_note:
        retractions += f" ({facts.retraction_note})"
    if facts.ran_on:
        known = f"sgl-project/sglang #36333, idle after {facts.drain_s:.0f} s"
        retractions += f", {facts.ran_on} abandoned requests ran on ({known})"
    return (
        f"{facts.pair} x {facts.longest_tokens:,} tokens at once, {facts.burst} at once, "
        f"{facts.aborts + facts.disconnects} cut off ({facts.aborts} aborts, {facts.disconnects} disconnects), "
        f"{retractions}"
    )


def _problems(facts: Survival) -> list[str]:
    """What the facts alone make a failure."""
    if facts.problem is not None:
        return [f"DIED: {facts.problem.splitlines()[0]}"]
    found = [*facts.failed, *facts.leaks]
    if not facts.healthy:
        found.append("it does not call itself well (/health)")
    if not facts.flushed:
        found.append("its cache could not be flushed: requests are left in it")
    if facts.aborts and not facts.aborted:
        found.append(f"none of {facts.aborts} requests ended when /abort_request asked for it")
    return found


def _answers(judged: tuple["Judged", ...]) -> list[str]:
    bad = [j for j in judged if not j.verdict.passed()]
    after = [j for j in judged if j.stage == AFTER]
    found = [f"{j.prompt.id} {j.names[1]}: {j.verdict.label}, {j.verdict.detail}" for j in bad[:3]]
    if len(bad) > 3:
        found.append(f"and {len(bad) - 3} more answers")
    return found if after or found else ["no answer from after the stress"]


def _same(judged: tuple["Judged", ...]) -> str:
    after = [j for j in judged if j.stage == AFTER]
    labels = Counter(j.verdict.label for j in after)
    if set(labels) == {"identical"}:
        return f"same answers as before ({len(after)} of {len(after)})"
    return "answers as before: " + ", ".join(f"{n} {label}" for label, n in labels.items())
