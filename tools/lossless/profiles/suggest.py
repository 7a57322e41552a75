"""'Did you mean ...?' for names people type."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """The sentence to append to an error: `` Did you mean 'x'?``, or nothing where no option is close."""
    close = get_close_matches(word, list(options), n=1, cutoff=0.6)
    return f". Did you mean {close[0]!r}?" if close else ""
