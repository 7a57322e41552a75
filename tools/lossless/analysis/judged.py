"""One verdict with what it is about."""

from dataclasses import dataclass

from lossless.record.store import RecordedPrompt
from lossless.verdict import Transcript, Verdict


@dataclass(frozen=True, slots=True)
class Judged:
    """One verdict with where it belongs, the two transcripts it compares, and what they are called."""

    variant: str
    prompt: RecordedPrompt
    stage: str
    turn: int
    verdict: Verdict
    left: Transcript | None
    right: Transcript | None
    names: tuple[str, str] = ("baseline", "variant")
