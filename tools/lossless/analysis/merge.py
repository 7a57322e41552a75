"""Verdicts of a merged run: each prompt is judged inside the shard that recorded it.

So an answer meets the noise floor, the controls and the second baseline run of its own machine, and joining shards can
make no verdict milder. Accept lengths, speed and the list of passes are those of the whole set.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from lossless.analysis.analysis import Analysis
from lossless.analysis.controls import Control
from lossless.analysis.facts import ServerFigures
from lossless.analysis.judged import Judged
from lossless.analysis.survival import Survived
from lossless.record.plan import PLAIN
from lossless.record.store import Golden, RecordedPrompt, RunStore
from lossless.verdict import Epsilon, OutputScores, StopRules, Transcript, Violation


class MergedAnalysis(Analysis):
    """The analysis of a run that holds several shards."""

    def __init__(self, store: RunStore, *, epsilon: float | None = None) -> None:
        super().__init__(store, epsilon=epsilon)
        self.shards = tuple(Analysis(shard, epsilon=epsilon) for shard in store.shards)
        self._homes = {id_: shard for shard in self.shards for id_ in shard.prompts}

    # ----------------------------------------------------------------- controls
    @cached_property
    def epsilon(self) -> Epsilon:
        """The bound of the shard that knows least: one that could not be measured, or else the widest. For display:
        every verdict uses its own shard's."""
        return max((s.epsilon for s in self.shards), key=lambda e: (e.problem is not None, e.value))

    @cached_property
    def controls(self) -> tuple[Control, ...]:
        """One a name and server: it holds only if it holds in every shard."""
        found: dict[tuple[str, str], list[tuple[Analysis, Control]]] = {}
        for shard in self.shards:
            for control in shard.controls:
                found.setdefault((control.name, control.scope), []).append((shard, control))
        return tuple(_joint(parts) for parts in found.values())

    # ----------------------------------------------------------------- verdicts
    def home(self, prompt_id: str) -> Analysis:
        """The shard that recorded a prompt; this analysis for a prompt that none has."""
        return self._homes.get(prompt_id, self)

    def verdict(self, variant: str, prompt_id: str, stage: str = PLAIN, turn: int = 0) -> Judged:
        """See :meth:`Analysis.verdict`."""
        return self._homes[prompt_id].verdict(variant, prompt_id, stage, turn)

    def within(self, server: str, prompt_id: str, stage: str, turn: int = 0) -> Judged:
        """See :meth:`Analysis.within`."""
        return self._homes[prompt_id].within(server, prompt_id, stage, turn)

    def golden_verdict(self, prompt_id: str, golden: Golden | None = None) -> Judged | None:
        """See :meth:`Analysis.golden_verdict`."""
        return self._homes[prompt_id].golden_verdict(prompt_id, golden)

    def scores(self, prompt: RecordedPrompt, output: Transcript) -> OutputScores | None:
        """See :meth:`Analysis.scores`."""
        home = self._homes.get(prompt.id)
        return super().scores(prompt, output) if home is None else home.scores(prompt, output)

    def rules(self, prompt: RecordedPrompt) -> StopRules:
        """See :meth:`Analysis.rules`."""
        return self._homes[prompt.id].rules(prompt)

    def broken_rules(self, server: str, prompt_id: str) -> tuple[Violation, ...]:
        """See :meth:`Analysis.broken_rules`."""
        return self._homes[prompt_id].broken_rules(server, prompt_id)

    def inapplicable(self, prompt_id: str) -> str | None:
        """See :meth:`Analysis.inapplicable`."""
        return self._homes[prompt_id].inapplicable(prompt_id)

    @cached_property
    def survival(self) -> tuple[Survived, ...]:
        """That of the shard which ran the stress test."""
        return tuple(result for shard in self.shards for result in shard.survival)

    # ------------------------------------------------------------------ figures
    def server_figures(self) -> tuple[ServerFigures, ...]:
        """Those of every shard's servers, named with their shard."""
        return tuple(
            replace(figures, name=f"{figures.name} {shard.manifest.shard}")
            for shard in self.shards
            for figures in shard.server_figures()
        )


def _joint(parts: Sequence[tuple[Analysis, Control]]) -> Control:
    """One control from the same control of every shard. Where it fails, only the shards in which it does are told."""
    bad = [(shard, control) for shard, control in parts if not control.ok]
    first = parts[0][1]
    details = {control.detail for _, control in bad or parts}
    if not bad and first.name == "noise floor":
        said = "; ".join(f"shard {s.manifest.shard}: epsilon {s.epsilon.value:.4g} nats" for s, _ in parts)
    elif len(details) == 1 and not bad:
        said = f"{first.detail}, in every shard"
    else:
        said = "; ".join(f"shard {shard.manifest.shard}: {control.detail}" for shard, control in bad or parts)
    return Control(
        first.name,
        first.scope,
        not bad,
        said,
        next((control.reason for _, control in bad if control.reason is not None), None),
        tuple(dict.fromkeys(note for _, control in parts for note in control.notes)),
    )
