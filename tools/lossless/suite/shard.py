"""Shards of a prompt set: which prompts one of several machines takes, by a stable hash.

Prompts that mean something only together are one family and stay in one shard: the groups whose stages keep state or
run at once, and a prompt with those that repeat its input. A family's shard depends on its name and the number of
shards alone, so every machine finds the same division.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from lossless.errors import UsageError

TOGETHER = frozenset({"cache", "order", "concurrent", "stress"})
"""Groups that stay whole: their stages share a prefix cache, an order, a batch or a burst."""

_SYNTAX = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")


class ShardedPrompt(Protocol):
    """What the division needs to know of a prompt."""

    @property
    def id(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def same_as(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class ShardChoice:
    """Shard ``index`` of ``total``, counted from 1."""

    index: int
    total: int

    def __str__(self) -> str:
        return f"{self.index}/{self.total}"


def parse_shard(text: str) -> ShardChoice:
    """``I/N`` of --lossless-shard, counted from 1.

    Raises:
        UsageError: not of that form, or I is not among 1 to N.
    """
    found = _SYNTAX.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--lossless-shard {text!r}: expected I/N, such as 1/3 for the first of three shards")
    index, total = int(found[1]), int(found[2])
    if not 1 <= index <= total:
        raise UsageError(f"--lossless-shard {text!r}: the shard must be from 1 to {total}")
    return ShardChoice(index, total)


def families(prompts: Sequence[ShardedPrompt]) -> dict[str, str]:
    """The family of each prompt id, in the set's order. A family is named after its group if that stays whole, or
    after its first prompt. ``same_as`` names an earlier prompt, as prompt sets guarantee."""
    names: dict[str, str] = {}
    for prompt in prompts:
        group = f"group:{prompt.group}" if prompt.group in TOGETHER else None
        repeats = names[prompt.same_as] if prompt.same_as is not None else None
        names[prompt.id] = group or repeats or prompt.id
        if group and repeats and group != repeats:  # the prompt belongs to two families, so they are one
            names = {id_: group if name == repeats else name for id_, name in names.items()}
    return names


def shard_of(family: str, total: int) -> int:
    """The shard (1 to ``total``) of a family: its SHA-256 modulo ``total``."""
    return int.from_bytes(hashlib.sha256(family.encode()).digest()[:8], "big") % total + 1


def chosen(prompts: Sequence[ShardedPrompt], shard: ShardChoice, *, name: str) -> tuple[str, ...]:
    """The ids that belong to a shard, in the set's order.

    Raises:
        UsageError: none does; the message says how many prompts each shard has.
    """
    homes = {id_: shard_of(family, shard.total) for id_, family in families(prompts).items()}
    found = tuple(id_ for id_, home in homes.items() if home == shard.index)
    if not found:
        sizes = {home: len(list(ids)) for home, ids in groupby(sorted(homes.values()))}
        count = len(set(families(prompts).values()))
        raise UsageError(
            f"--lossless-shard {shard}: no prompt of {name!r} belongs to it: its {len(homes)} prompts form {count} "
            "families that stay together; by shard: "
            + ", ".join(f"{k}/{shard.total}: {sizes.get(k, 0)}" for k in range(1, shard.total + 1)),
            hint="use fewer shards, or a larger prompt set",
        )
    return found
