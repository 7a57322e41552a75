"""Pairs of small runs, before and after an upgrade, for the tests of the upgrade report."""

from dataclasses import dataclass
from typing import Any

from lossless.analysis.upgrade import Upgrade, upgrade
from lossless.protocol import Sampling

TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."
STORY = "There was once a quiet teacher called Amir, who lived in a small house near the library."
FLIPPED = TEXT.replace("three", "seven", 1)
FORKED = TEXT[:40] + "an ending of its own"
PROMPTS = {"list-0": Sampling(96), "story-0": Sampling(96)}
OLD, NEW = "0.5.19", "0.5.20"


@dataclass
class RunPair:
    """Two runs under construction."""

    old: Any
    new: Any

    def upgrade(self, **options: Any) -> Upgrade:
        return upgrade(self.old.analysis(), self.new.analysis(), **options)


def first_difference(run: Any, a: str, b: str) -> int:
    return next(t for t, (x, y) in enumerate(zip(run.ids(a), run.ids(b), strict=False)) if x != y)


def run_pair(make_run: Any, *, new_list: str = TEXT, variant: str | None = None, **more: Any) -> RunPair:
    """Both runs say TEXT and STORY on every server, but for what the new servers say to ``list-0``: the baseline
    ``new_list``, the variant ``variant`` (default: the same)."""
    made = {}
    for name, version in (("old", OLD), ("new", NEW)):
        run = make_run(PROMPTS, folder=name, **more)
        for server in ("baseline", "nextn"):
            run.server(server, version=version)
        said = new_list if name == "new" else TEXT
        by_variant = said if variant is None or name == "old" else variant
        run.scored("list-0", run.says("baseline", "list-0", said))
        run.says("nextn", "list-0", by_variant)
        for server in ("baseline", "nextn"):
            run.says(server, "story-0", STORY)
        made[name] = run
    return RunPair(made["old"], made["new"])


def rescore_old(pair: RunPair, old: str, new: str, regret: float) -> None:
    """The new baseline re-scores the old output: the old token at the first difference has that regret in nats."""
    run, at = pair.new, first_difference(pair.new, new, old)
    run.scored("list-0", run.ids(old), {at: regret}, {at: run.ids(new)[at]})
