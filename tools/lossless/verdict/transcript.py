"""What one server answered for one prompt, as the verdict core sees it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finish:
    """Why generation ended: ``type`` is ``stop`` or ``length``; ``matched`` the stop token id or the stop string."""

    type: str
    matched: int | str | None = None

    def __str__(self) -> str:
        return self.type if self.matched is None else f"{self.type} ({self.matched!r})"


@dataclass(frozen=True, slots=True)
class StopRules:
    """When a request had to stop. ``eos_ids`` are the model's; all counts in tokens."""

    max_new_tokens: int
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    eos_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_new_tokens: int = 0
    no_stop_trim: bool = False
    skip_special_tokens: bool = True

    @property
    def stopping_ids(self) -> frozenset[int]:
        """Token ids that end the output where they appear. ``ignore_eos`` switches off all of them, as SGLang does
        (``Req.check_finished``)."""
        return frozenset() if self.ignore_eos else frozenset(self.eos_ids) | frozenset(self.stop_token_ids)


@dataclass(frozen=True, slots=True)
class Transcript:
    """One answered prompt. ``completion_tokens`` is the server's own count, kept to be checked against ``ids``."""

    ids: tuple[int, ...]
    text: str
    finish: Finish
    completion_tokens: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    retractions: int = 0
    verify_steps: int | None = None
