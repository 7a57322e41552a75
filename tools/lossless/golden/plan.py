"""What ``--snapshot-update`` would do with the goldens of a recorded run, without writing anything."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lossless.analysis import Analysis
from lossless.errors import UsageError
from lossless.golden.acceptance import golden_lengths, loads, outside
from lossless.golden.check import GoldenCheck
from lossless.golden.files import acceptance_stem, parse_golden
from lossless.record.store import RecordedPrompt

WITHOUT_ACCEPTANCE = ("long", "stress")
"""Prompt sets that no golden accept length is measured on."""

Action = Literal["write", "rewrite", "keep", "refuse"]


@dataclass(frozen=True, slots=True)
class Planned:
    """One golden file, by its stem: ``write`` (there is none yet), ``rewrite``, ``keep`` (it still holds, so not a byte
    changes), or ``refuse`` (nothing is proven). ``why`` is in words."""

    name: str
    action: Action
    why: str


def planned(check: GoldenCheck, folder: Path) -> tuple[Planned, ...]:
    """Every golden of the run's prompts, then the accept lengths of each variant, as ``GoldenFixture`` would treat them
    with ``--snapshot-update``. ``folder`` is the profile's golden folder; it need not exist."""
    a = check.analysis
    prompts = [id_ for id_, p in a.prompts.items() if has_golden(p) and a.inapplicable(id_) is None]
    unproven = check.unproven()
    whole = a.manifest.shard is None and a.manifest.prompt_set not in WITHOUT_ACCEPTANCE
    return (
        *(_prompt(check, folder, prompt) for prompt in prompts),
        *(_acceptance(a, folder, variant, unproven) for variant in a.manifest.variants if whole),
    )


def has_golden(prompt: RecordedPrompt) -> bool:
    """Prompts of the stress test, and those built to a length, have none."""
    return prompt.group != "stress" and prompt.depth is None


def _prompt(check: GoldenCheck, folder: Path, prompt: str) -> Planned:
    blocked, known = check.blocked(prompt), check.known(prompt)
    candidate = check.candidate(prompt)
    if blocked or known or candidate is None:
        return Planned(prompt, "refuse", "; ".join((*blocked, *known)) or "the baseline gave no answer")
    path = folder / f"{prompt}.json"
    if not path.is_file():
        return Planned(prompt, "write", "there is no golden yet")
    try:
        on_disk = parse_golden(path.read_bytes(), where=str(path))
    except UsageError as problem:
        return Planned(prompt, "rewrite", problem.message)
    judged = check.judge(on_disk) if on_disk.prompt == prompt else None
    if judged is None:
        return Planned(prompt, "rewrite", "it was recorded for another request")
    if judged.verdict.passed(strict=check.strict):
        return Planned(prompt, "keep", judged.verdict.label)
    return Planned(prompt, "rewrite", f"{judged.verdict.label}: {judged.verdict.detail}")


def _acceptance(analysis: Analysis, folder: Path, variant: str, unproven: list[str]) -> Planned:
    name = acceptance_stem(variant, analysis.manifest.prompt_set)
    if unproven:
        return Planned(name, "refuse", f"{len(unproven)} prompts are not proven ({unproven[0]} …)")
    path = folder / f"{name}.json"
    if not path.is_file():
        return Planned(name, "write", "there is no golden yet")
    now = golden_lengths(analysis.acceptance(variant))
    try:
        left = outside(now, loads(path.read_bytes(), where=str(path)))
    except UsageError as problem:
        return Planned(name, "rewrite", problem.message)
    return Planned(name, "rewrite", "; ".join(left)) if left else Planned(name, "keep", "every category is in its band")
