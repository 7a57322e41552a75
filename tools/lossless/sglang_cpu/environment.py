"""Builds the virtual environment that real SGLang runs in on the CPU."""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import filelock

from lossless.errors import LosslessError, UsageError
from lossless.sglang_cpu import PYTHON_VERSION, SGLANG_VERSION, SGLANG_VERSIONS, requirements_path, site_path

STAMP = "lossless-sglang-cpu.json"
_WANTED = ".".join(map(str, PYTHON_VERSION))
CHECK = "import torch, sgl_kernel, sglang; print(torch.__version__, sglang.__version__)"


class BuildFailed(LosslessError):
    """A step of the build ended with an error."""


def build(
    folder: Path,
    *,
    version: str = SGLANG_VERSION,
    python: str = sys.executable,
    say: Callable[[str], None] = print,
) -> Path:
    """Makes ``folder`` a virtual environment with SGLang and returns its Python; nothing is done if it is one already.

    ``version`` is the SGLang version, one of SGLANG_VERSIONS. ``python`` is the interpreter to build with. pip finds
    packages where it is set up to look. ``say`` gets one line a step; pip's own output goes to the standard error
    stream. Raises UsageError for another SGLang or Python version or a folder that holds something else (an environment
    of another SGLang version included), BuildFailed when a step fails (the folder is then built anew next time).
    """
    if version not in SGLANG_VERSIONS:
        raise UsageError(
            f"SGLang {version} was not tried on the CPU; tried were {', '.join(SGLANG_VERSIONS)}",
            hint=f"--sglang-version {SGLANG_VERSIONS[-1]}",
        )
    folder = folder.absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", hint="name a new folder")
    with filelock.FileLock(f"{folder}.lock"):
        interpreter = folder / "bin" / "python"
        requirements = hashlib.sha256(requirements_path(version).read_bytes()).hexdigest()
        built, state = _read_stamp(folder)
        if state == requirements and interpreter.exists():
            say(f"{folder} is up to date (SGLang {version})")
            return interpreter
        if built in SGLANG_VERSIONS and built != version:
            raise UsageError(
                f"{folder} is an environment for SGLang {built}, not {version}; nothing was changed",
                hint=f"name another folder, or --sglang-version {built}",
            )
        if state is None and folder.exists() and any(folder.iterdir()):
            raise UsageError(
                f"{folder} is neither empty nor an environment that this command made; nothing was changed",
                hint="name another folder, or remove this one",
            )
        _check_python(python, version)
        for line, command in _steps(folder, python, version):
            say(line)
            _run(command)
            if not (folder / STAMP).exists():
                _write_stamp(folder, version, "unfinished")
        _write_stamp(folder, version, requirements)
        say(f"{folder} is ready (SGLang {version})")
        return interpreter


def _steps(folder: Path, python: str, version: str) -> list[tuple[str, list[str]]]:
    """What is said and what is run. torch comes first and alone: pip chooses its build and its dependencies."""
    interpreter = str(folder / "bin" / "python")
    path = requirements_path(version)
    pins = [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    pip = [interpreter, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    return [
        (f"[1/4] making {folder}", [python, "-m", "venv", "--clear", str(folder)]),
        (f"[2/4] installing {pins[0]}", [*pip, pins[0]]),
        (
            f"[3/4] installing SGLang {version} and {len(pins) - 2} packages",
            [*pip, "--no-deps", "-r", str(path)],
        ),
        ("[4/4] importing SGLang", [interpreter, "-c", CHECK]),
    ]


def _run(command: Sequence[str]) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONHOME", "PYTHONPATH")}
    environment |= {"PYTHONPATH": str(site_path()), "SGLANG_USE_CPU_ENGINE": "1"} if CHECK in command else {}
    try:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, env=environment, check=False).returncode
    except OSError as error:
        raise UsageError(f"cannot run {command[0]}: {error}") from None
    if status != 0:
        raise BuildFailed(
            f"exit status {status} from: {' '.join(command)}", hint="its output is above; then run this again"
        )


def _check_python(python: str, version: str) -> None:
    command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        found = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        ).stdout.strip()
    except OSError as error:
        raise UsageError(f"cannot run {python}: {error}", hint=f"name a Python {_WANTED}: --python PATH") from None
    if found != _WANTED:
        is_python = re.fullmatch(r"\d+\.\d+", found)
        raise UsageError(
            f"{python} is {f'Python {found}' if is_python else 'no working Python'}; "
            f"SGLang {version} on the CPU is pinned for Python {_WANTED} only",
            hint=f"name one: --python python{_WANTED}",
        )


def _read_stamp(folder: Path) -> tuple[str | None, str | None]:
    """The SGLang version and the hash of the requirements installed ("unfinished" after a failed build).

    The hash is None where this command was never at work, the version where the stamp does not name one.
    """
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError):
        return None, "unfinished"
    if not isinstance(stamp, dict):
        return None, "unfinished"
    return stamp.get("sglang"), str(stamp.get("requirements"))


def _write_stamp(folder: Path, version: str, requirements: str) -> None:
    new = folder / f"{STAMP}.new"
    new.write_text(json.dumps({"sglang": version, "requirements": requirements}) + "\n", encoding="utf-8")
    new.replace(folder / STAMP)
