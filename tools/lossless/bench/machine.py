"""What the servers run on, in words."""

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_ASK_S = 20.0


def describe_machine(*, on_gpu: bool, cards: Sequence[str] = ()) -> str | None:
    """``2 x NVIDIA H200, 140 GB``, or the processor's name; None where it cannot be told.

    ``cards`` are the ones a server got, as in CUDA_VISIBLE_DEVICES; without any the caller's own count. The
    environment variable LOSSLESS_GPU overrides what nvidia-smi says.
    """
    return (os.environ.get("LOSSLESS_GPU") or _cards(cards)) if on_gpu else _processor()


def _cards(cards: Sequence[str]) -> str | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    argv = [tool, "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_ASK_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return card_names(done.stdout, cards or _visible())


def card_names(listing: str, cards: Sequence[str]) -> str | None:
    """Names and memory from ``nvidia-smi``'s lines ``index, uuid, name, MiB``; of all where ``cards`` is empty."""
    found: list[str] = []
    for line in listing.splitlines():
        index, uuid, name, memory = ([part.strip() for part in line.split(",")] + [""] * 4)[:4]
        if not cards or any(card == index or (card and uuid.startswith(card)) for card in cards):
            size = f", {int(memory) / 1024:.0f} GB" if memory.isdigit() else ""
            found.append(f"{name}{size}")
    kinds = {kind: found.count(kind) for kind in found}
    return "; ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in kinds.items()) or None


def _visible() -> tuple[str, ...]:
    text = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _processor() -> str | None:
    """The first processor's name and the number of usable processors (Linux)."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    name = name or platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} threads" if name else None
