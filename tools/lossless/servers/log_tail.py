"""Reads a server's log while it grows: whole lines, its end, and what stage of starting they tell of."""

import re
from pathlib import Path

_KEEP = 1 << 20
_STAGES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Load weight begin"), "loading weights"),
    (re.compile(r"loading (?:safetensors )?(?:checkpoint )?shards:.*?(\d+/\d+)", re.I), "loading weights {0}"),
    (re.compile(r"Load weight end.*?\btype=(\w+).*?mem usage=([\d.]+) GB"), "weights loaded: {0}, {1} GB"),
    (re.compile(r"KV Cache is allocated.*?#tokens: (\d+)"), "KV pool: {0} tokens"),
    (re.compile(r"Capture (.*?)\s*(?:CUDA |cuda |CPU )?graph begin"), "capturing graphs: {0}"),
    (re.compile(r"Capturing (?:batches|num tokens).*?(\d+/\d+)"), "capturing graphs {0}"),
    (re.compile(r"max_total_num_tokens=(\d+)"), "KV pool: {0} tokens in all"),
    (re.compile(r"Application startup complete"), "answering, warming up"),
)
READY = "The server is fired up and ready to roll!"


class LogTail:
    """Follows one log file from its beginning. Progress bars (``\\r``) count as lines."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = path
        self._offset = start
        self._rest = b""

    def new_lines(self) -> list[str]:
        """The lines that were finished since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = re.split(rb"[\r\n]+", self._rest + data)
        return [line.decode("utf-8", "replace") for line in lines if line.strip()]


def stage_of(line: str) -> str | None:
    """What a log line says about the progress of starting (``loading weights 2/3``), or None."""
    for pattern, shown in _STAGES:
        found = pattern.search(line)
        if found:
            return shown.format(*found.groups()).rstrip(": ")
    return None


def log_text(path: Path, start: int = 0) -> str:
    """A log's text from byte ``start``; of a very long log the first and the last half mebibyte."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2) - start
            file.seek(start)
            if size <= _KEEP:
                data = file.read()
            else:
                data = file.read(_KEEP // 2) + b"\n[...]\n"
                file.seek(-(_KEEP // 2), 2)
                data += file.read()
    except FileNotFoundError:
        return ""
    return data.decode("utf-8", "replace").replace("\r", "\n")


def last_lines(text: str, count: int = 25) -> str:
    """The last ``count`` lines that are not blank, indented for a message."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(f"    {line[:500]}" for line in lines[-count:])
