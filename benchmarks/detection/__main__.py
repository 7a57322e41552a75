"""``python -m benchmarks.detection [--short|--full] [--parts …] [--out DIR]``: run, and write the table."""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PARTS = ("faults", "noise", "sensitivity", "epsilon")


def collect(folder: Path, parts: tuple[str, ...], *, short: bool, only: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The parts of the table by name."""
    # numpy reads these once, so they are set before it is loaded; the engine's matrices are too small for more.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from benchmarks.detection import run
    from benchmarks.detection.plan import Prompts
    from benchmarks.detection.recording import Workshop

    workshop, prompts = Workshop(folder), Prompts()
    data: dict[str, Any] = {}
    took: dict[str, Any] = {}

    def timed(part: str, begin: tuple[float, float]) -> None:
        took[part] = {
            "wall_s": round(time.monotonic() - begin[0], 1),
            "cpu_s": round(time.process_time() - begin[1], 1),
        }
        run.say(f"{part}: {took[part]}")

    begin = time.monotonic(), time.process_time()
    if "faults" in parts:
        data["faults"] = run.run_faults(workshop, prompts, short=short, only=only)
        timed("faults", begin)
    begin = time.monotonic(), time.process_time()
    if {"noise", "sensitivity", "epsilon"} & set(parts):
        data["noise"], analyses = run.run_noise(workshop, prompts, short=short)
        timed("noise", begin)
        begin = time.monotonic(), time.process_time()
        if "sensitivity" in parts:
            data["sensitivity"] = run.run_sensitivity(workshop, prompts, analyses[0], short=short)
            timed("sensitivity", begin)
        begin = time.monotonic(), time.process_time()
        if "epsilon" in parts:
            data["epsilon"] = run.run_epsilon(workshop, prompts, analyses, short=short)
            timed("epsilon", begin)
    data["took"] = took
    return data


def write(out: Path, data: dict[str, Any], *, command: str) -> None:
    """Merge into ``detection.json`` and write ``detection.md``."""
    from benchmarks.detection.table import markdown

    path = out / "detection.json"
    old: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if "faults" in data:
        data = {**data, "faults": merge_rows(old.get("faults", []), data["faults"])}
    merged = {**old, **data, "took": {**old.get("took", {}), **data["took"]}, "command": command}
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(merged, ensure_ascii=False, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    (out / "detection.md").write_text(markdown(merged), encoding="utf-8")


def key(row: dict[str, Any]) -> tuple[str, float | None, str]:
    """What a row is about."""
    return row["name"], row["rate"], row["planted_in"]


def merge_rows(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Old rows with the new ones in their places, or behind them."""
    fresh = {key(row): row for row in new}
    kept = [fresh.pop(key(row), row) for row in old]
    return [*kept, *fresh.values()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--short", action="store_true", help="a few faults and noises: what runs in CI")
    size.add_argument("--full", action="store_true", help="everything (the default)")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}; the rest is kept")
    parser.add_argument(
        "--only", default="", metavar="NAME[:RATE],…", help="of the part faults run these; the rest is kept"
    )
    parser.add_argument("--out", type=Path, default=Path("docs"), metavar="DIR")
    args = parser.parse_args()
    parts = tuple(args.parts.split(","))
    if unknown := set(parts) - set(PARTS):
        sys.exit(f"unknown parts {', '.join(sorted(unknown))}; allowed: {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as folder:
        data = collect(Path(folder), parts, short=args.short, only=frozenset(filter(None, args.only.split(","))))
    write(args.out, data, command="python -m benchmarks.detection --" + ("short" if args.short else "full"))


if __name__ == "__main__":
    main()
