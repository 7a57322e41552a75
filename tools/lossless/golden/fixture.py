"""What the golden tests use: compare or write, and say which it was."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lossless.analysis import Acceptance
from lossless.errors import UsageError
from lossless.golden.acceptance import dumps, golden_lengths, loads, outside
from lossless.golden.check import GoldenCheck
from lossless.golden.extension import GoldenExtension
from lossless.golden.files import USUAL_SET, acceptance_stem, parse_golden
from lossless.report.failure import failure_text

UPDATE = "pytest -m lossless --snapshot-update"


@dataclass(frozen=True, slots=True)
class GoldenFixture:
    """Goldens of one profile. ``note`` keeps an outcome (``written:ID`` …) for the summary."""

    check: GoldenCheck
    snapshot: Any
    folder: Path
    updating: bool
    note: Callable[[str], None]

    def compare(self, prompt_id: str) -> None:
        """Fail unless the golden holds. With --snapshot-update write it instead, if the prompt's pairs passed."""
        blocked = self.check.blocked(prompt_id)
        candidate = self.check.candidate(prompt_id)
        path = self.folder / f"{prompt_id}.json"
        known = self.check.known(prompt_id)
        if known and not blocked and (self.updating or not path.is_file()):
            if self.updating:
                self.note(f"refused:{prompt_id}")
            pytest.xfail(f"golden {prompt_id} is not written: {'; '.join(known)}")
        if self.updating and (blocked or candidate is None):
            self.note(f"refused:{prompt_id}")
            why = "\n  ".join(blocked or ("the baseline gave no answer",))
            pytest.fail(f"golden {prompt_id} was not written, because nothing is proven:\n  {why}", pytrace=False)
        if candidate is None:
            pytest.fail(
                f"golden {prompt_id}: inconclusive, the baseline gave no answer:\n  " + "\n  ".join(blocked),
                pytrace=False,
            )
        if not self.updating:
            self._require(path)
        before = path.read_bytes() if path.is_file() else None
        if candidate.dumps() == self.snapshot(name=prompt_id):
            if self.updating:
                after = path.read_bytes() if path.is_file() else None
                self.note(f"{'kept' if after == before else 'written'}:{prompt_id}")
            return
        pytest.fail(self._explain(path), pytrace=False)

    def compare_acceptance(self, variant: str, measured: Mapping[str, Acceptance]) -> None:
        """Fail when a category's accept length left its golden band. Written only if every prompt's pair passed; left
        out in a shard, which has only part of each category."""
        shard = self.check.analysis.manifest.shard
        if shard is not None:
            pytest.skip(f"this is shard {shard}; accept lengths are compared over the whole set (lossless merge)")
        now = golden_lengths(measured)
        prompt_set = self.check.analysis.manifest.prompt_set
        name = acceptance_stem(variant, prompt_set)
        path = self.folder / f"{name}.json"
        if self.updating:
            bad = self.check.unproven()
            if bad:
                self.note(f"refused:{name}")
                pytest.fail(
                    f"accept lengths of {variant} were not written: {len(bad)} prompts are not proven ({bad[0]} …)",
                    pytrace=False,
                )
        elif prompt_set != USUAL_SET and self._recorded() and not path.is_file():
            pytest.skip(f"no accept lengths of the prompt set {prompt_set} recorded yet; record them: {UPDATE}")
        else:
            self._require(path)
        before = path.read_bytes() if path.is_file() else None
        GoldenExtension.compare, previous = staticmethod(self._same_acceptance), GoldenExtension.compare
        try:
            same = dumps(now) == self.snapshot(name=name)
        finally:
            GoldenExtension.compare = previous
        if same:
            if self.updating:
                after = path.read_bytes() if path.is_file() else None
                self.note(f"{'kept' if after == before else 'written'}:{name}")
            return
        try:
            golden = loads(path.read_bytes(), where=str(path))
        except UsageError as problem:
            pytest.fail(str(problem), pytrace=False)
        lines = "\n  ".join(outside(now, golden))
        pytest.fail(
            f"accept length of {variant} left its golden band ({path}):\n  {lines}\n"
            "the output is lossless all the same: this is about the gain. Look at the draft model, the SGLang version "
            f"and the categories.\n→ if the change is wanted: {UPDATE}",
            pytrace=False,
        )

    @staticmethod
    def _same_acceptance(candidate: str, on_disk: str) -> bool:
        try:
            return not outside(loads(candidate, where="candidate"), loads(on_disk, where="golden"))
        except UsageError:
            return False

    def _recorded(self) -> bool:
        return self.folder.is_dir() and any(self.folder.glob("*.json"))

    def _require(self, path: Path) -> None:
        if not self._recorded():
            pytest.skip(f"no goldens recorded yet in {self.folder}; record them: {UPDATE}")
        if not path.is_file():
            pytest.fail(f"there is no golden {path}\n→ record it: {UPDATE}", pytrace=False)
        if not path.stem.startswith("_"):
            try:
                parse_golden(path.read_bytes(), where=str(path))
            except UsageError as problem:
                pytest.fail(str(problem), pytrace=False)

    def _explain(self, path: Path) -> str:
        golden = parse_golden(path.read_bytes(), where=str(path))
        judged = self.check.judge(golden)
        if judged is None:
            return (
                f"the golden {path} was recorded for another request (the prompt's tokens or sampling changed)\n"
                f"→ record it anew: {UPDATE}"
            )
        p = golden.provenance
        return failure_text(
            self.check.analysis,
            judged,
            extra=(
                f"golden: {path}, written by {p.engine} {p.version} ({p.dtype})",
                f"→ if the new output is wanted: {UPDATE}",
            ),
        )
