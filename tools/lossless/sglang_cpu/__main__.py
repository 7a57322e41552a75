"""``python -m lossless.sglang_cpu VENV_DIR``: builds the environment and prints its Python."""

import argparse
import sys
from pathlib import Path

from lossless.errors import LosslessError
from lossless.sglang_cpu import SGLANG_VERSION, SGLANG_VERSIONS, site_path
from lossless.sglang_cpu.environment import build


def main(arguments: list[str] | None = None) -> int:
    """Prints the path of the environment's Python, alone on standard output. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lossless.sglang_cpu",
        description="Build a virtual environment with SGLang for the CPU (about 2.5 GB on disk).",
    )
    parser.add_argument("folder", type=Path, metavar="VENV_DIR", help="new folder, or one that this command made")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="the Python 3.11 to build it with")
    parser.add_argument(
        "--sglang-version",
        default=SGLANG_VERSION,
        metavar="VERSION",
        help=f"one of {', '.join(SGLANG_VERSIONS)} (default: {SGLANG_VERSION})",
    )
    options = parser.parse_args(arguments)
    try:
        interpreter = build(options.folder, version=options.sglang_version, python=options.python, say=_say)
    except LosslessError as error:
        _say(f"error: {error}")
        return error.exit_code
    _say(
        f"for the profile tiny-sglang-cpu: LOSSLESS_SGLANG_PYTHON={interpreter} LOSSLESS_SGLANG_CPU_SITE={site_path()}"
    )
    print(interpreter)
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
