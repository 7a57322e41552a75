"""Token ids to text, the way SGLang's detokenizer does it (``managers/detokenizer_manager.py``)."""

from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from lossless.errors import UsageError

CONTEXT = 5
"""Prompt tokens decoded along with the output, so that a merge across the border comes out right."""
_INCOMPLETE = "\ufffd"


class Tokenizer:
    """The model's byte-level BPE.

    Raises:
        UsageError: from the constructor, when ``tokenizer.json`` is missing or unreadable.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise UsageError(f"{path} does not exist")
        try:
            self._fast = FastTokenizer.from_file(str(path))
        except Exception as problem:  # the library raises bare Exception
            raise UsageError(f"cannot read {path}: {problem}") from problem

    def encode(self, text: str) -> list[int]:
        """Text to token ids; special tokens written out in the text are recognized."""
        ids: list[int] = self._fast.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int], *, skip_special_tokens: bool = False) -> str:
        """Token ids to text."""
        text: str = self._fast.decode(ids, skip_special_tokens=skip_special_tokens)
        return text


class TextStream:
    """Text of one growing output. Cumulative, and never shows half a UTF-8 character before the end."""

    def __init__(
        self, tokenizer: Tokenizer, prompt: list[int], *, skip_special_tokens: bool, no_stop_trim: bool
    ) -> None:
        self._tokenizer, self._skip, self._no_trim = tokenizer, skip_special_tokens, no_stop_trim
        self._context = prompt[-CONTEXT:]
        self._done = ""
        self._ids: list[int] = list(self._context)
        self._shown_from, self._read_from = 0, len(self._context)
        self._seen = 0

    def _fresh(self, ids: list[int]) -> str:
        before = self._tokenizer.decode(self._ids[self._shown_from : self._read_from], skip_special_tokens=self._skip)
        after = self._tokenizer.decode(ids[self._shown_from :], skip_special_tokens=self._skip)
        return after[len(before) :]

    def update(self, output: list[int]) -> str:
        """The printable text so far of an output that is not finished."""
        self._ids.extend(output[self._seen :])
        self._seen = len(output)
        fresh = self._fresh(self._ids)
        if fresh and not fresh.endswith(_INCOMPLETE):
            self._done += fresh
            self._shown_from, self._read_from = self._read_from, len(self._ids)
            return self._done
        return self._done + _printable(fresh)

    def finish(self, output: list[int], matched: int | str | None) -> str:
        """The whole text of a finished output, without the stop string or stop token that ended it."""
        self._ids.extend(output[self._seen :])
        self._seen = len(output)
        ids = trim_tokens(self._ids, matched, no_stop_trim=self._no_trim)
        return trim_text(self._done + self._fresh(ids), matched, no_stop_trim=self._no_trim)


def trim_tokens(ids: list[int], matched: int | str | None, *, no_stop_trim: bool) -> list[int]:
    """Drop the matched stop token, which is the last one. Token 0 stays, as in SGLang (a special token anyway)."""
    if isinstance(matched, int) and matched and not no_stop_trim:
        return ids[:-1]
    return ids


def trim_text(text: str, matched: int | str | None, *, no_stop_trim: bool) -> str:
    """Cut at the first occurrence of the matched stop string, which itself stays only with ``no_stop_trim``."""
    if not isinstance(matched, str) or not matched:
        return text
    at = text.find(matched)
    if at < 0:
        return text
    return text[: at + len(matched)] if no_stop_trim else text[:at]


def _printable(text: str) -> str:
    """The part of ``text`` that later tokens cannot change (after SGLang's ``find_printable_text``)."""
    if text.endswith("\n"):
        return text
    if text and _is_cjk(text[-1]):
        return text
    if len(text) > 1 and _is_cjk(text[-2]):
        return text[:-1]
    return text[: text.rfind(" ") + 1]


def _is_cjk(character: str) -> bool:
    point = ord(character)
    ranges = (
        (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
        (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
    )  # fmt: skip
    return any(low <= point <= high for low, high in ranges)
