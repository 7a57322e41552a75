"""SGLang versions as the package index knows them. Standard library only: it runs before anything is installed."""

import re
import subprocess
import sys

RELEASE = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:\.post[0-9]+)?")
VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc|\.post|\.dev)[0-9]+)*")


def checked(text: str) -> str:
    """A version that may become an argument, a path or a branch name.

    Raises:
        SystemExit: it is none.
    """
    if not VERSION.fullmatch(text) or len(text) > 40:
        raise SystemExit(f"no version: {text!r}; expected one such as 0.5.19")
    return text


def order(version: str) -> tuple[tuple[int, ...], int]:
    """Sorts releases: 0.5.9 < 0.5.10 < 0.5.10.post1."""
    numbers, _, post = version.partition(".post")
    return tuple(map(int, numbers.split("."))), int(post or 0)


def newest(listing: str | None = None) -> str:
    """The newest release of SGLang; ``listing`` is what ``pip index versions sglang`` prints.

    Raises:
        SystemExit: the index does not answer, or with nothing that looks like releases.
    """
    if listing is None:
        command = [sys.executable, "-m", "pip", "index", "versions", "sglang"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command[1:])} failed:\n{done.stderr.strip()}")
        listing = done.stdout
    line = next((line for line in listing.splitlines() if line.startswith("Available versions:")), "")
    found = [v for v in re.split(r"[,\s]+", line.partition(":")[2]) if RELEASE.fullmatch(v)]
    if not found:
        raise SystemExit(f"no releases of SGLang in {listing!r}")
    return max(found, key=order)
