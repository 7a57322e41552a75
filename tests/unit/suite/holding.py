"""Another process that holds something until it is ended."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import lossless


@contextmanager
def holder(code: str, folder: Path) -> Iterator[tuple["subprocess.Popen[str]", IO[str]]]:
    """The process that runs ``code`` with ``folder`` as its argument, and what it prints; killed at the end."""
    environment = {**os.environ, "PYTHONPATH": str(Path(lossless.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout
    finally:
        process.kill()
        process.communicate()
