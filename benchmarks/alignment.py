"""How long two long token sequences take to align, beside plain ``difflib.SequenceMatcher(autojunk=False)``.

Each measurement runs in a child process of its own, which reports its time without start-up and its own peak memory
(interpreter and numpy included). difflib gets a time limit; where it is stopped, the time is a lower bound. The goal:
131,072 tokens with 1% edits within 2 s and 1 GB.

    python benchmarks/alignment.py
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from lossless.verdict import align

EDITS, ZIPF, UNRELATED = "1% edits", "1% edits, word frequencies", "unrelated"
INPUTS = (EDITS, ZIPF, UNRELATED)
METHODS = ("lossless", "difflib")
VOCABULARIES = (4096, 150_000)
GOAL_S, GOAL_MIB = 2.0, 1024.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """``seconds`` and ``peak_mib`` (resident, MiB) of one alignment; ``matched`` equal tokens in ``hunks`` hunks.

    Where ``stopped`` is set the time limit came first: the figures are then lower bounds, and there is no result.
    """

    input: str
    vocabulary: int
    method: str
    seconds: float
    peak_mib: float
    hunks: int | None
    matched: int | None
    stopped: bool


def sequences(kind: str, tokens: int, vocabulary: int, seed: int) -> tuple[list[int], list[int]]:
    """Random tokens, and either other random tokens or a copy with 1% single-token edits: replaced, dropped, added.

    Tokens are equally frequent, or as frequent as words of a natural text (the k-th one 1/k as often as the first).
    """
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, vocabulary + 1) if kind == ZIPF else np.ones(vocabulary)

    def draw(count: int) -> list[int]:
        drawn: list[int] = rng.choice(vocabulary, count, p=weights / weights.sum()).tolist()
        return drawn

    a = draw(tokens)
    if kind == UNRELATED:
        return a, draw(tokens)
    b = list(a)
    places = sorted(rng.choice(tokens, tokens // 100, replace=False).tolist(), reverse=True)
    edits = rng.choice(["replace", "drop", "add"], len(places)).tolist()
    for place, edit, token in zip(places, edits, draw(len(places)), strict=True):
        b[place : place + (edit != "add")] = [] if edit == "drop" else [token]
    return a, b


def by_lossless(a: list[int], b: list[int]) -> tuple[int, int]:
    """Hunks and matched tokens of this project's alignment."""
    found = align(a, b)
    return len(found.hunks), len(b) - sum(h.variant_end - h.variant_start for h in found.hunks)


def by_difflib(a: list[int], b: list[int]) -> tuple[int, int]:
    """The same of difflib alone."""
    codes = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return sum(tag != "equal" for tag, *_ in codes), sum(j2 - j1 for tag, _, _, j1, j2 in codes if tag == "equal")


def child(kind: str, method: str, tokens: int, vocabulary: int, seed: int) -> None:
    """One measurement in this process, as JSON on standard output."""
    a, b = sequences(kind, tokens, vocabulary, seed)
    run: Callable[[list[int], list[int]], tuple[int, int]] = by_lossless if method == "lossless" else by_difflib
    begin = time.perf_counter()
    hunks, matched = run(a, b)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"seconds": seconds, "peak_mib": peak / 2**20, "hunks": hunks, "matched": matched}))


def measure(kind: str, method: str, options: argparse.Namespace, vocabulary: int) -> Measurement:
    """Run the child; end it at the time limit (of which start-up and making the input take about a second)."""
    command = [sys.executable, __file__, "--child", kind, method, "--tokens", str(options.tokens)]
    command += ["--vocabulary", str(vocabulary), "--seed", str(options.seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            out, _ = process.communicate(timeout=options.limit)
        except subprocess.TimeoutExpired:
            resident = psutil.Process(process.pid).memory_info().rss / 2**20
            process.kill()
            return Measurement(kind, vocabulary, method, options.limit, resident, None, None, stopped=True)
    if process.returncode:
        sys.exit(f"measuring {method} on {kind} failed with exit status {process.returncode}")
    return Measurement(kind, vocabulary, method, **json.loads(out), stopped=False)


def table(results: list[Measurement], tokens: int) -> Table:
    """One row a measurement."""
    shown = Table(title=f"aligning 2 sequences of {tokens:,} tokens", title_justify="left")
    for column in ("input", "vocabulary", "method"):
        shown.add_column(column)
    for column in ("seconds", "peak MiB", "hunks", "matched tokens"):
        shown.add_column(column, justify="right")
    for m in results:
        least = "> " if m.stopped else ""
        shown.add_row(
            m.input,
            f"{m.vocabulary:,}",
            m.method,
            f"stopped after {m.seconds:g} s" if m.stopped else f"{m.seconds:.2f}",
            f"{least}{m.peak_mib:.0f}",
            "-" if m.hunks is None else f"{m.hunks:,}",
            "-" if m.matched is None else f"{m.matched:,}",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=131_072, help="length of each sequence (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which a method is stopped")
    parser.add_argument("--seed", type=int, default=1, help="of the random input")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--vocabulary", type=int, action="append", help="distinct tokens; repeat for several")
    parser.add_argument("--child", nargs=2, metavar=("INPUT", "METHOD"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    vocabularies = options.vocabulary or list(VOCABULARIES)
    if options.child:
        child(options.child[0], options.child[1], options.tokens, vocabularies[0], options.seed)
        return
    results = [
        measure(kind, method, options, vocabulary)
        for kind in INPUTS
        for vocabulary in vocabularies
        for method in METHODS
    ]
    ours = [m for m in results if m.method == "lossless" and m.input != UNRELATED]
    met = all(not m.stopped and m.seconds < GOAL_S and m.peak_mib < GOAL_MIB for m in ours)
    if options.json:
        print(
            json.dumps({"tokens": options.tokens, "goal_met": met, "results": [asdict(m) for m in results]}, indent=2)
        )
    else:
        console = Console()
        console.print(table(results, options.tokens))
        console.print(f"goal (1% edits within {GOAL_S:g} s and {GOAL_MIB:g} MiB): {'met' if met else 'MISSED'}")
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
