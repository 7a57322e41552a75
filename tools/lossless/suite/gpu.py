"""What card a run was made on, for histories and test reports."""

import os
import shutil
import subprocess

QUERY = ("--query-gpu=name", "--format=csv,noheader")


def gpu_name() -> str | None:
    """``LOSSLESS_GPU`` if it is set, else what nvidia-smi calls this machine's cards (``2 x NVIDIA H200``), else
    None."""
    if given := os.environ.get("LOSSLESS_GPU"):
        return given
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        done = subprocess.run([tool, *QUERY], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    names = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    kinds = dict.fromkeys(names)
    return ", ".join(n if names.count(n) == 1 else f"{names.count(n)} x {n}" for n in kinds) or None
