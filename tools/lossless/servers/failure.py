"""The one place where a failed server becomes a message."""

import re
import shlex
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lossless.errors import ServerDied, ServerError
from lossless.protocol.redact import redact
from lossless.servers.log_tail import last_lines

Explain = Callable[[str], str | None]
"""Takes a server's log text and returns what went wrong in plain words, or None where it does not know."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A server that did not start, or ended. ``exit_code`` is None while the process lives (the deadline passed);
    negative for a signal, as in :mod:`subprocess`."""

    name: str
    happened: str
    command: Sequence[str]
    exit_code: int | None
    log_text: str
    log_path: Path
    secrets: tuple[str, ...] = ()

    def describe(self, explain: Explain | None) -> tuple[str, str | None]:
        """The message and the hint. An explanation comes first, then the log's last 25 lines, then the command."""
        why = explain(self.log_text) if explain else None
        tail = last_lines(self.log_text) or "    (the log is empty)"
        parts = [f"server {self.name!r} {self.happened}{f': {why}' if why else ''}", "  the log's last lines:", tail]
        parts.append(f"  command: {shlex.join(self.command)}")
        hint = None if why else _hint(self.log_text)
        return redact("\n".join(parts), self.secrets), f"{hint + '; ' if hint else ''}the whole log is {self.log_path}"

    def start_error(self, explain: Explain | None) -> ServerError:
        """For a server that never became ready."""
        message, hint = self.describe(explain)
        return ServerError(message, hint=hint)

    def died(self, explain: Explain | None) -> ServerDied:
        """For a server that had been ready."""
        message, hint = self.describe(explain)
        return ServerDied(message, hint=hint)


def exit_words(code: int) -> str:
    """``exit status 2`` or ``killed by SIGKILL``."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _hint(log: str) -> str | None:
    unknown = re.search(r"error: unrecognized arguments: (.+)", log)
    if unknown:
        return f"the server does not know {unknown[1].strip()}: correct `args` in the profile"
    bad = re.search(r"error: argument (--[\w-]+).*", log)
    if bad:
        return f"the server refuses the value of {bad[1]}: correct `args` in the profile"
    if re.search(r"No module named '?sglang\b", log):
        return "that Python has no SGLang: set LOSSLESS_SGLANG_PYTHON to one that has, or `command` in the profile"
    return None
