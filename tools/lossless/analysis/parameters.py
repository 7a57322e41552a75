"""Whether a sampling parameter shows in the baseline's answers at all."""

from dataclasses import fields

from lossless.analysis.analysis import Analysis
from lossless.protocol import Sampling
from lossless.record.plan import PLAIN
from lossless.record.store import RecordedPrompt


def changed_parameters(analysis: Analysis, prompt: RecordedPrompt) -> frozenset[str]:
    """Names of the parameters in which a prompt differs from the one it is the ``same_as``; empty without one."""
    if prompt.same_as is None:
        return frozenset()
    other = analysis.prompts[prompt.same_as].sampling
    return frozenset(f.name for f in fields(Sampling) if getattr(prompt.sampling, f.name) != getattr(other, f.name))


def shows(analysis: Analysis, prompt: RecordedPrompt) -> bool:
    """Whether the baseline says something else with the parameter than without it. A missing answer shows nothing."""
    if prompt.same_as is None:
        return False
    without, with_it = (analysis.baseline.transcript(PLAIN, p) for p in (prompt.same_as, prompt.id))
    return without is not None and with_it is not None and without.ids != with_it.ids


def shown_by(analysis: Analysis, prompt: RecordedPrompt) -> str | None:
    """A prompt of the run on which the same parameters show; None where the baseline never heeds them."""
    names = changed_parameters(analysis, prompt)
    return next(
        (p.id for p in analysis.prompts.values() if changed_parameters(analysis, p) == names and shows(analysis, p)),
        None,
    )
