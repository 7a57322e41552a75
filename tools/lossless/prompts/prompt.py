"""One prompt and the fixed set of them: plain values, nothing is encoded here."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from lossless.errors import UsageError
from lossless.prompts.haystack import Haystack
from lossless.protocol.requests import Sampling

Group = Literal[
    "parity", "short", "stop", "json", "cache", "concurrent", "unicode", "long", "cap", "params", "stress", "order"
]  # fmt: skip
Subset = Literal["quick", "standard", "full"]

GROUPS: tuple[Group, ...] = get_args(Group)
SUBSETS: tuple[Subset, ...] = get_args(Subset)

_SLUG = re.compile(r"[a-z0-9_-]+")
_MAX_ID = 80  # ids become file names, with a suffix; file systems stop at 255 bytes


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message, as the model's chat template reads it."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request of the set. Exactly one of ``text``, ``messages``, ``ids`` and ``haystack`` is given.

    id               ``[a-z0-9_-]+``, at most 80 characters; it becomes a file name
    category         the kind of task, a slug like an id; accept length is reported by it
    group            how the recorder runs it (alone, several at once, repeated, ...)
    text             raw text, encoded without chat template and without special tokens
    messages         rendered with the model's chat template
    ids              explicit token ids
    haystack         a long prompt that is built to a number of the target's tokens
    sampling         what is sent, but for ``stop_token_texts``
    subsets          which named sets hold it
    exact_tokens     cut the encoded prompt to this many tokens, after repeating it as often as needed
    thinking         the chat template's ``enable_thinking``; None leaves it to the template
    stop_token_texts texts that must each be one token; `Tokenizer.sampling` turns them into stop token ids
    same_as          id of the prompt whose input this one repeats
    expect           text that a right answer contains; reported, and no part of any verdict

    Raises UsageError for an id or a category of another form and unless exactly one input is given.
    """

    id: str
    category: str
    group: Group
    sampling: Sampling
    subsets: tuple[Subset, ...]
    text: str | None = None
    messages: tuple[Message, ...] | None = None
    ids: tuple[int, ...] | None = None
    exact_tokens: int | None = None
    thinking: bool | None = None
    stop_token_texts: tuple[str, ...] = ()
    same_as: str | None = None
    haystack: Haystack | None = None
    expect: str | None = None

    def __post_init__(self) -> None:
        for name, value in (("id", self.id), ("category", self.category)):
            if not _SLUG.fullmatch(value) or len(value) > _MAX_ID:
                raise UsageError(
                    f"prompt {name} {value!r} is not allowed: "
                    f"use 1 to {_MAX_ID} of the characters a-z, 0-9, '_' and '-'"
                )
        given = [name for name in ("text", "messages", "ids", "haystack") if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none of them"
            raise UsageError(f"prompt {self.id!r} has {got}: give exactly one of text, messages (or user) and ids")

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of all that decides the request; ``subsets`` and ``expect`` do not."""
        content = asdict(self)
        del content["subsets"], content["expect"]
        if self.haystack is None:
            del content["haystack"]
        return _sha256(content)


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts in the order in which they are run; ids are unique, ``same_as`` names an earlier prompt.

    ``name`` is the shipped set's name or the user's file name. Raises UsageError otherwise.
    """

    name: str
    prompts: tuple[Prompt, ...]

    def __post_init__(self) -> None:
        if not self.prompts:
            raise UsageError(f"prompt set {self.name!r} is empty: give at least one prompt")
        seen: set[str] = set()
        for prompt in self.prompts:
            if prompt.id in seen:
                raise UsageError(f"prompt id {prompt.id!r} occurs twice in {self.name!r}: ids must be unique")
            if prompt.same_as is not None and prompt.same_as not in seen:
                raise UsageError(
                    f"prompt {prompt.id!r} in {self.name!r}: same_as = {prompt.same_as!r} is not an earlier prompt"
                )
            seen.add(prompt.id)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the prompts' digests, in order; stable over runs and machines."""
        return _sha256([prompt.digest for prompt in self.prompts])

    def in_group(self, *groups: Group) -> tuple[Prompt, ...]:
        """The prompts of these groups, in the set's order."""
        return tuple(prompt for prompt in self.prompts if prompt.group in groups)

    def select(self, ids: Iterable[str]) -> "PromptSet":
        """The same set with only these prompts (and those they repeat). Raises UsageError for an unknown id."""
        by_id = {prompt.id: prompt for prompt in self.prompts}
        wanted: set[str] = set()
        for id_ in ids:
            if id_ not in by_id:
                raise UsageError(
                    f"no prompt {id_!r} in {self.name!r}; it has: {', '.join(by_id)}",
                )
            wanted.add(id_)
            wanted.update(filter(None, [by_id[id_].same_as]))
        return PromptSet(self.name, tuple(prompt for prompt in self.prompts if prompt.id in wanted))


def _sha256(content: object) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
