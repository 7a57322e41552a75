"""Markdown that shows any text as that text: model outputs and prompt ids must not become markup, links or mentions.

Rules: https://github.github.com/gfm/ (escapes, tables, fences). Mentions and issue references are made of rendered
text, so a backslash does not stop them; an invisible character between does.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import chain

INVISIBLE = "\u200b"  # zero-width space
_MARKUP = re.compile(r"[\\`*_\[\]<|~&$]")
_REFERENCE = re.compile(r"@(?=\w)|#(?=\d)|GH-(?=\d)|(?<=:)//|(?<=www)\.")
_BREAKS = re.compile(r"\s*[\r\n\v\f\x85\u2028\u2029]+\s*")
_START = re.compile(r"^(\d*)([-=.+#>)])")  # what means something at the start of a line only
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


def escape(text: str) -> str:
    """``text`` on one line, as it is, wherever inline markdown is allowed (table cells included)."""
    line = _CONTROL.sub("�", _BREAKS.sub(" ", text)).strip()
    line = _MARKUP.sub(r"\\\g<0>", line)
    line = _START.sub(r"\1\\\2", line)
    return _REFERENCE.sub(lambda found: f"{found[0]}{INVISIBLE}", line)


def code(text: str) -> str:
    """``text`` on one line as a code span that also holds in a table cell."""
    line = _CONTROL.sub("�", _BREAKS.sub(" ", text)).strip()
    if not line:
        return ""
    if "|" in line:  # a code span cannot hold a pipe in a table cell without a visible backslash
        return f"<code>{_entities(line)}</code>"
    ticks = "`" * (_longest_run(line) + 1)
    space = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def block(text: str, language: str = "") -> str:
    """``text`` as a fenced block, whatever fences it holds itself."""
    fence = "`" * max(3, _longest_run(text) + 1)
    body = _CONTROL.sub("�", text.replace("\r\n", "\n").replace("\r", "\n"))
    return f"{fence}{language}\n{body}\n{fence}"


def details(title: str, body: str) -> str:
    """A collapsed part; ``title`` is text, ``body`` markdown."""
    return f"<details><summary>{_entities(_BREAKS.sub(' ', title))}</summary>\n\n{body}\n\n</details>"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()) -> str:
    """A table; cells are markdown already. ``right`` are the indices of columns that hold numbers."""
    aligned = set(right)
    rule = ["---:" if i in aligned else "---" for i in range(len(columns))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in chain((columns, rule), rows))


def number(value: float | None, digits: int = 4) -> str:
    """A number for a cell, empty for None."""
    return "" if value is None else f"{value:.{digits}g}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


def _entities(text: str) -> str:
    """HTML text, mentions broken too."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "&#124;")
    return _REFERENCE.sub(lambda found: f"{found[0]}{INVISIBLE}", escaped)
