"""How long the HTML report of a large run takes to open in a real Chromium, and how large the file is.

Builds a run of synthetic answers (by default 500 prompts, 4 variants, 4,096 tokens each, one answer in ten with another
tail), judges it with the same code as a real one, writes the report, and opens it several times in a headless Chromium
with a fresh profile. The time is from the start of navigation to the moment the page can be used (``data-ready``), and
from there to the first prompt in full; beside it, as a ratio, that of a page with two short prompts. Re-scoring is made
up as it is asked for: as JSON on disk it would be gigabytes.

    python -m benchmarks.report
    python -m benchmarks.report --prompts 100 --tokens 1024 --json

It ends with status 1 where the page takes 2 s or more. Needs the extra ``browser``, Chromium and its driver.
"""

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from lossless.analysis import Analysis
from lossless.prompts import Tokenizer
from lossless.protocol import Sampling
from lossless.record.plan import AGAIN, PLAIN
from lossless.record.store import Manifest, Record, RecordedPrompt, RunStore, ServerState
from lossless.reference.builtin import builtin_path
from lossless.report.html import collect, render
from lossless.verdict import Candidate, OutputScores, Transcript

GOAL_S = 2.0
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
CATEGORIES = ("code", "json", "logic", "story", "summary", "translation")
EOS = 1


class MadeUp(Analysis):
    """An analysis whose re-scoring is computed from the tokens: one in a hundred is a second choice, by a hair."""

    def __init__(self, store: RunStore) -> None:
        super().__init__(store)
        self._made: dict[tuple[int, ...], OutputScores] = {}

    def scores(self, prompt: RecordedPrompt, output: Transcript) -> OutputScores:  # noqa: ARG002
        if output.ids not in self._made:
            self._made[output.ids] = self._make(output)
        return self._made[output.ids]

    def _make(self, output: Transcript) -> OutputScores:
        rows, logprobs = [], []
        for token in output.ids:
            rival, own = (token * 7 + 3) % 4000 + 5, -((token * 37) % 997) / 900 - 0.01
            behind = 0.01 if token % 100 == 7 else 0.0
            other = own + behind if behind else own - 0.2 - (token * 13 % 997) / 99
            best = sorted((Candidate(token, own), Candidate(rival, other)), key=lambda c: -c.logprob)
            rows.append(tuple(best))
            logprobs.append(own)
        return OutputScores(output.ids, tuple(logprobs), tuple(rows))


def build(folder: Path, prompts: int, variants: int, tokens: int, *, differing: float, seed: int = 1) -> RunStore:
    """A run folder. ``differing`` is the share of a variant's answers whose second half is another one."""
    target = builtin_path() / "target"
    tokenizer, dice = Tokenizer.from_folder(target), random.Random(seed)
    names = tuple(f"variant-{k}" for k in range(variants))
    entries = tuple(
        RecordedPrompt(
            f"{CATEGORIES[k % len(CATEGORIES)]}-{k:03}", CATEGORIES[k % len(CATEGORIES)], "json",
            tuple(dice.choices(range(5, 4000), k=64)), Sampling(tokens), f"Prompt number {k}",
        )
        for k in range(prompts)
    )  # fmt: skip
    manifest = Manifest(
        key="k" * 64, profile="synthetic", kind="sglang", target="synthetic", dtype="bfloat16", variants=names,
        prompt_set="synthetic", prompt_digest="p", tokenizer_digest=tokenizer.digest, model_digest=None, eos_ids=(EOS,),
        concurrency=8, tool_version="0", created="2026-01-01T00:00:00+00:00", epsilon=0.125,
    )  # fmt: skip
    store = RunStore(folder)
    store.create(manifest, entries, {}, (target / "tokenizer.json").read_text(encoding="utf-8"))
    base = {prompt.id: tuple(dice.choices(range(5, 4000), k=tokens)) for prompt in entries}
    for name in ("baseline", *names):
        facts = {"version": "0.5.19", "dtype": "bfloat16", "speculative_algorithm": "EAGLE" if name in names else None}
        store.write_server(ServerState(name, True, server_info=facts))
        records = store.path / "records" / f"{name}.jsonl"
        with records.open("w", encoding="utf-8") as file:
            for prompt in entries:
                ids = base[prompt.id]
                if name in names and dice.random() < differing:
                    ids = (*ids[: tokens // 2], *dice.choices(range(5, 4000), k=tokens - tokens // 2))
                for stage in (PLAIN,) if name in names else (PLAIN, AGAIN):
                    record = Record(stage, prompt.id, wall_s=1.0, answer=_answer(tokenizer, prompt, ids, name in names))
                    file.write(json.dumps({s: getattr(record, s) for s in Record.__slots__}) + "\n")
    return store


def _answer(tokenizer: Tokenizer, prompt: RecordedPrompt, ids: tuple[int, ...], speculates: bool) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "finish_reason": {"type": "length", "length": len(ids)},
        "prompt_tokens": len(prompt.ids),
        "completion_tokens": len(ids),
    }
    if speculates:
        steps = len(ids) // 3
        meta |= {"spec_verify_ct": steps, "spec_correct_drafts_histogram": [steps // 4, steps // 4, 0, steps // 2]}
    return {"text": tokenizer.decode(ids), "output_ids": list(ids), "meta_info": meta}


def write(folder: Path, page: Path, prompts: int, variants: int, tokens: int, *, differing: float) -> float:
    """Build a run and write its page; CPU seconds of judging and writing."""
    store = build(folder, prompts, variants, tokens, differing=differing)
    begin = time.process_time()
    page.write_text(render(collect(MadeUp(store), command="latest")), encoding="utf-8")
    return time.process_time() - begin


def opened(page: Path, times: int) -> Iterator[tuple[float, float]]:
    """Seconds from navigation until the page can be used, and until the first prompt stands there in full."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        sys.exit("chromium or chromedriver not found: apt-get install chromium chromium-driver")
    for _ in range(times):
        with tempfile.TemporaryDirectory() as profile:
            options = Options()
            options.binary_location = chromium
            for flag in (*FLAGS, f"--user-data-dir={profile}"):
                options.add_argument(flag)
            browser = webdriver.Chrome(options=options, service=Service(driver))
            try:
                browser.set_script_timeout(120)
                browser.get(page.as_uri())
                yield tuple(
                    browser.execute_async_script(
                        "const done = arguments[0]; const ask = () => document.querySelector('#token dl')"
                        " ? done([Number(document.documentElement.dataset.ready) / 1000, performance.now() / 1000])"
                        " : requestAnimationFrame(ask); ask();"
                    )
                )
            finally:
                browser.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--prompts", type=int, default=500)
    parser.add_argument("--variants", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--differing", type=float, default=0.1, help="share of answers with another tail")
    parser.add_argument("--times", type=int, default=3, help="how often the page is opened")
    parser.add_argument("--keep", type=Path, help="keep the page under this name")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    shape = (options.prompts, options.variants, options.tokens)
    with tempfile.TemporaryDirectory() as folder:
        page, small = options.keep or Path(folder) / "report.html", Path(folder) / "small.html"
        took = write(Path(folder) / "run", page, *shape, differing=options.differing)
        write(Path(folder) / "small", small, 2, 1, 64, differing=options.differing)
        figures = list(opened(page.resolve(), options.times))
        least = list(opened(small, options.times))
        size = page.stat().st_size
    ready = statistics.median(ready for ready, _ in figures)
    found = {
        "prompts": options.prompts,
        "variants": options.variants,
        "tokens": options.tokens,
        "differing": options.differing,
        "size_mb": round(size / 1e6, 1),
        "written_cpu_s": round(took, 1),
        "ready_s": round(ready, 2),
        "detail_s": round(statistics.median(detail for _, detail in figures), 2),
        "ready_over_small": round(ready / statistics.median(ready for ready, _ in least), 1),
    }
    if options.json:
        print(json.dumps(found))
    else:
        table = Table(box=None, show_header=False)
        for name, value in found.items():
            table.add_row(name, str(value))
        Console(highlight=False).print(table)
    sys.exit(found["ready_s"] >= GOAL_S)


if __name__ == "__main__":
    main()
