"""Long prompts with one fact hidden in them, built to an exact number of the target's own tokens.

The text is a harbor register: numbered entries made from templates by a fixed linear congruential generator, so that
the same tokenizer and length always give the same ids, and no two entries or prompts begin alike. One more entry, at
the wanted depth, holds a password; the question at the end asks for it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from lossless.errors import UsageError

T = TypeVar("T")

MINIMUM_TOKENS = 256
"""Below this many tokens an ordinary tokenizer has no room for the question, the fact and some text around it."""

MARK = "@@@register@@@"
"""Stands for the register while the chat template is rendered; it is never sent."""

QUESTION = (
    "Which password does the register give for the north gate? Begin your answer with the password, then copy the "
    "first three entries of the register word for word."
)

# Knuth's MMIX generator (The Art of Computer Programming, vol. 2, 3.3.4): the same on every machine.
_MULTIPLIER, _INCREMENT, _MASK = 6364136223846793005, 1442695040888963407, (1 << 64) - 1

_PEOPLE = ("Irene", "Tomas", "Wei", "Amara", "Felix", "Nadia", "Jonas", "Priya", "Oskar", "Lucia", "Zoe", "Amir")
_TRADES = ("carpenter", "pilot", "baker", "painter", "rope maker", "clerk", "farmer", "doctor", "keeper", "teacher")
_GOODS = ("salt", "peaches", "rope", "lamp oil", "copper", "timber", "wool", "paper", "barley", "glass", "tea", "tar")
_SHIPS = ("Heron", "Blue Door", "Marigold", "Old Anchor", "Swift", "Lantern", "Juniper", "Seven Arches", "Plover")
_WEATHER = ("calm", "foggy", "windy from the west", "stormy until noon", "clear and cold", "warm", "grey with rain")
_PLACES = ("bakery", "workshop", "east pier", "clock tower", "customs house", "bridge", "library", "boat shed")
_BIRDS = ("heron", "plover", "curlew", "osprey", "petrel", "egret", "avocet", "gannet")


@dataclass(frozen=True, slots=True)
class Haystack:
    """One prompt to build: ``tokens`` in all (template and question included), the fact at ``depth`` (0 to 1) of the
    text between."""

    tokens: int
    depth: float

    @property
    def password(self) -> str:
        """The hidden fact; it stands nowhere else in the prompt."""
        draw = _Draw(self.seed)
        return f"{draw.one_of(_BIRDS)}-{draw.below(9000) + 1000}"

    @property
    def seed(self) -> int:
        """Decides the text: another one for each length and depth, so that no prompt is a prefix of another."""
        return self.tokens * 1009 + round(self.depth * 1000)


@dataclass(frozen=True, slots=True)
class LongContext:
    """Which long prompts a profile wants: every length at every depth.

    ``lengths`` in tokens of the target, ``depths`` from 0 (first entry) to 1 (last), ``max_new_tokens`` tokens. A
    length that a server has no room for is left out of the run, with the reason.
    """

    lengths: tuple[int, ...] = (8192, 32768, 131072)
    depths: tuple[float, ...] = (0.1, 0.5, 0.9)
    max_new_tokens: int = 128

    @property
    def haystacks(self) -> tuple[Haystack, ...]:
        """Shortest first."""
        return tuple(Haystack(tokens, depth) for tokens in sorted(self.lengths) for depth in self.depths)


@dataclass(frozen=True, slots=True)
class Built:
    """A built prompt. ``fact`` is where the hidden entry begins and ends in ``ids`` (positions in tokens)."""

    ids: tuple[int, ...]
    fact: tuple[int, int]


def build(haystack: Haystack, encode: Callable[[str], tuple[int, ...]], frame: str) -> Built:
    """The ids of one prompt, exactly ``haystack.tokens`` of them.

    The parts are encoded on their own and joined as ids. The fact stands between two entries, the boundary nearest to
    the wanted depth; only the last entry before the question is cut, to make the length exact.

    Args:
        haystack: what to build.
        encode: text to ids of the target's tokenizer, without special tokens.
        frame: the whole prompt's text with ``MARK`` where the register belongs.

    Raises:
        UsageError: the tokens do not suffice for frame and fact, or the frame lost the mark.
    """
    before, mark, after = frame.partition(MARK)
    if not mark:
        raise UsageError("the chat template does not show the user's text as it is: long prompts cannot be built")
    volume = f"The harbor register, volume {haystack.seed}.\n\n"
    head, tail = encode(before + volume), encode("\n\n" + after)
    fact = encode(f"[note] The password of the north gate is {haystack.password}.\n\n")
    room = haystack.tokens - len(head) - len(fact) - len(tail)
    if room <= 0:
        raise UsageError(
            f"a long prompt of {haystack.tokens} tokens is too short: question and hidden fact alone take "
            f"{haystack.tokens - room} tokens of this tokenizer",
            hint=f"use lengths of {MINIMUM_TOKENS} tokens or more",
        )
    text: list[int] = []
    boundaries = [0]
    for entry in entries(haystack.seed):
        ids = encode(entry)
        if len(text) + len(ids) > room:
            text.extend(ids[: room - len(text)])
            break
        text.extend(ids)
        boundaries.append(len(text))
    at = min(boundaries, key=lambda boundary: abs(boundary - haystack.depth * room))
    start = len(head) + at
    return Built((*head, *text[:at], *fact, *text[at:], *tail), (start, start + len(fact)))


def entries(seed: int) -> Iterator[str]:
    """The register's entries without end: numbered, each followed by an empty line."""
    draw = _Draw(seed)
    number = 0
    while True:
        number += 1
        yield f"[{number}] {draw.one_of(_TEMPLATES)(draw)} {draw.one_of(_TEMPLATES)(draw)}\n\n"


class _Draw:
    """The generator's numbers, as choices."""

    def __init__(self, seed: int) -> None:
        self._state = (seed * _MULTIPLIER + _INCREMENT) & _MASK

    def below(self, bound: int) -> int:
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        return (self._state >> 33) % bound  # the low bits of such a generator repeat soon

    def one_of(self, options: tuple[T, ...]) -> T:
        return options[self.below(len(options))]


def _arrival(d: _Draw) -> str:
    ship, goods = d.one_of(_SHIPS), d.one_of(_GOODS)
    return f"The {ship} came in at {d.below(24)} o'clock with {d.below(90) + 2} crates of {goods}."


def _weather(d: _Draw) -> str:
    return f"The day was {d.one_of(_WEATHER)}, and {d.below(40) + 1} boats stayed in the harbor."


def _repair(d: _Draw) -> str:
    return f"{d.one_of(_PEOPLE)} the {d.one_of(_TRADES)} mended the roof of the {d.one_of(_PLACES)}."


def _trade(d: _Draw) -> str:
    goods = d.one_of(_GOODS)
    return (
        f"{d.one_of(_PEOPLE)} sold {d.below(60) + 3} pounds of {goods} to {d.one_of(_PEOPLE)} for {d.below(300)} coins."
    )


def _letter(d: _Draw) -> str:
    return f"A letter from {d.one_of(_PEOPLE)} arrived at the {d.one_of(_PLACES)}; it was {d.below(9) + 2} pages long."


def _visit(d: _Draw) -> str:
    trade, place = d.one_of(_TRADES), d.one_of(_PLACES)
    return f"The {trade} waited at the {place} for {d.one_of(_PEOPLE)}, who was {d.below(50) + 5} minutes late."


def _birds(d: _Draw) -> str:
    count, place = d.below(200) + 9, d.one_of(_PLACES)
    return f"{count} birds were counted near the {place}, more than the {d.one_of(_TRADES)} expected."


def _loan(d: _Draw) -> str:
    return (
        f"{d.one_of(_PEOPLE)} lent the key of the {d.one_of(_PLACES)} to the {d.one_of(_TRADES)} until the next entry."
    )


_TEMPLATES: tuple[Callable[[_Draw], str], ...] = (
    _arrival,
    _weather,
    _repair,
    _trade,
    _letter,
    _visit,
    _birds,
    _loan,
)
