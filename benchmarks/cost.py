"""What a suite run costs beside the bare generation of the same requests.

Runs ``pytest -m lossless`` once in a process of its own, one server at a time, and splits its wall time into server
starts and stops, generation, re-scoring and everything else. Then it starts the same servers again, sends the very
same generating requests, same order, same concurrency, same flushes, with nothing but an HTTP client, and stops them.
Ratios are within this one run; the goal is a total within 1.05 of start + bare generation + stop, re-scoring within
0.10 of bare generation. The suite does not say how long its servers took to stop; the bare ones stand in.

    python benchmarks/cost.py --profile tiny --prompts quick
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from lossless.profiles import load_profile, with_overrides
from lossless.record.plan import Stage, stages
from lossless.record.recorder import plan_request
from lossless.record.store import RecordedPrompt, RunStore
from lossless.servers import make_server

ROOT = Path(__file__).parents[1]


def one_at_a_time(name: str, folder: Path) -> str:
    """A copy of a shipped profile that runs one server at a time, so that the parts add up to the wall time."""
    source = load_profile(name).source
    if source is None:
        sys.exit(f"profile {name!r} has no file")
    text = source.read_text(encoding="utf-8")
    kept = [line for line in text.splitlines() if not line.startswith("parallel_servers")]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return str(path)


def suite(profile: str, prompts: str, runs: Path) -> tuple[float, RunStore]:
    """Wall seconds of one suite run in its own process, and the folder it recorded."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "lossless",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",  # users of the suite do not have what the project's own tests need
        str(ROOT / "tests/lossless"),
    ]
    command += ["--lossless-profile", profile, "--lossless-prompts", prompts, "--lossless-runs", str(runs)]
    command += ["--lossless-resume", "never", "--lossless-golden", str(runs / "no-goldens")]
    begin = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    wall = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"the suite did not pass:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
    return wall, RunStore.open(next(p for p in runs.iterdir() if (p / "run.json").exists()))


def bare(profile: str, prompts: str, store: RunStore) -> tuple[float, float, float]:
    """Seconds of starting, of generating the same requests with nothing else around them, and of stopping."""
    loaded = with_overrides(load_profile(profile), prompts=prompts)
    by_id = {p.id: p for p in store.prompts}
    start_s = generate_s = stop_s = 0.0
    for name in (*loaded.variants, "baseline"):
        plan = stages(store.prompts, baseline=name == "baseline", concurrency=store.manifest.concurrency)
        recorded = store.answers(name)
        with tempfile.TemporaryDirectory() as logs:
            begin = time.monotonic()
            with make_server(loaded, name, log_dir=Path(logs)) as server, httpx.Client(timeout=600) as client:
                start_s += time.monotonic() - begin
                begin = time.monotonic()
                for stage in plan:
                    asked = tuple(i for i in stage.items if (i.stage, i.prompt, i.turn, None) in recorded)
                    _send(client, server.url, replace(stage, items=asked), by_id)
                generate_s += time.monotonic() - begin
                begin = time.monotonic()
            stop_s += time.monotonic() - begin
    return start_s, generate_s, stop_s


def _send(client: httpx.Client, url: str, stage: Stage, prompts: dict[str, RecordedPrompt]) -> None:
    bodies = [plan_request(prompts[item.prompt], stage).payload() for item in stage.items]

    def post(body: dict[str, object]) -> None:
        client.post(f"{url}/generate", json=body).raise_for_status()

    def flush() -> None:
        client.post(f"{url}/flush_cache", params={"timeout": 30}).raise_for_status()

    if not bodies:
        return
    if stage.flush == "once":
        flush()
    if stage.concurrency > 1:
        with ThreadPoolExecutor(stage.concurrency) as pool:
            list(pool.map(post, bodies))
        return
    for body in bodies:
        if stage.flush == "each":
            flush()
        post(body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="tiny")
    parser.add_argument("--prompts", default="quick")
    parser.add_argument("--repeat", type=int, default=1, help="runs; each prints its own ratios")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = []
    for _ in range(args.repeat):
        with tempfile.TemporaryDirectory() as folder:
            profile = one_at_a_time(args.profile, Path(folder))
            wall, store = suite(profile, args.prompts, Path(folder) / "runs")
            states = [s for n in (*store.manifest.variants, "baseline") if (s := store.server(n)) is not None]
            start = sum(s.start_s for s in states)
            generate = sum(s.generate_s for s in states)
            score = sum(s.score_s for s in states)
            bare_start, bare_generate, stop = bare(profile, args.prompts, store)
        own, whole = wall - start - generate - score - stop, bare_start + bare_generate + stop
        results.append(
            {
                "wall_s": wall,
                "start_s": start,
                "generate_s": generate,
                "score_s": score,
                "own_s": own,
                "bare_start_s": bare_start,
                "bare_generate_s": bare_generate,
                "bare_stop_s": stop,
                "total_ratio": wall / whole,
                "score_ratio": score / bare_generate,
                "own_ratio": own / whole,
            }
        )
    if args.json:
        print(json.dumps(results, indent=2))
        return
    table = Table(
        title=f"{args.profile}, prompts {args.prompts}: seconds, and ratios to bare start + generation + stop", box=None
    )
    for column in ("part", *(f"run {k + 1}" for k in range(len(results)))):
        table.add_column(column, justify="left" if column == "part" else "right")
    for key in results[0]:
        table.add_row(key, *(f"{r[key]:.3f}" if key.endswith("ratio") else f"{r[key]:.2f}" for r in results))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
