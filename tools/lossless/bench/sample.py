"""One request's measurement, as it is kept."""

from dataclasses import dataclass
from typing import Literal

Stage = Literal["speed", "context", "temperature"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. Times are seconds on the clock of its round (0 when the round began); counts are tokens.

    stage         ``speed``: one category, ``streams`` requests at once; ``context``: one prompt length;
                  ``temperature``: sampled, for its accept length only
    length        the prompt length aimed at, in stage ``context``
    slot          which of its round's requests it is
    first_tokens  output tokens in the first piece of the stream, which arrived at ``first_s``
    verify_steps  None where the answer reports none
    problem       why there is no measurement; then the counts and times mean nothing
    unfit         the server has no room for the request, which was not sent
    """

    stage: Stage
    category: str
    task: str
    streams: int
    repeat: int
    slot: int = 0
    length: int | None = None
    temperature: float = 0.0
    prompt_tokens: int = 0
    tokens: int = 0
    first_tokens: int = 0
    sent_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    verify_steps: int | None = None
    problem: str | None = None
    unfit: bool = False

    @property
    def ok(self) -> bool:
        """Whether it was measured."""
        return self.problem is None

    @property
    def failed(self) -> bool:
        """Whether it was sent, and failed."""
        return self.problem is not None and not self.unfit
