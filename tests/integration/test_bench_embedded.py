"""Benches of the embedded engine: the command, the suite's option, and what is left when they are interrupted."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_suite import SmallSuite

from lossless.bench.bencher import plan_for
from lossless.bench.file import Bench, BenchFile
from lossless.bench.plan import Settings
from lossless.bench.run import prepare_bench
from lossless.bench.tables import tables
from lossless.profiles import load_profile
from lossless.protocol import GenerateRequest, Sampling
from lossless.protocol.stream import StreamingClient
from lossless.servers import Server, make_server
from lossless.suite.options import Options

QUICK = Settings(repeats=2, streams=(1, 2), categories=("code",), lengths=(256, 9000), temperatures=(0.0, 0.6))
PROMPT = (2, 209, 1631, 314, 271, 1401, 315, 571, 301, 99, 41, 1, 209, 3, 209)


class Silent:
    def starting(self, server: str, line: str) -> None: ...

    def stage(self, server: str, stage: str, total: int, done: int) -> None: ...

    def advance(self, server: str, stage: str, tokens: int) -> None: ...

    def finished(self, state: Any) -> None: ...


def cells(found: Bench, title: str, *start: str) -> dict[str, str]:
    table = next(t for t in tables(found) if t.title == title)
    return dict(zip(table.columns, next(r for r in table.rows if r[: len(start)] == start), strict=True))


@pytest.fixture(scope="module")
def dflash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with make_server(load_profile("tiny"), "dflash", log_dir=tmp_path_factory.mktemp("logs")) as server:
        yield server


def test_a_stream_says_what_the_whole_answer_says(dflash: Server) -> None:
    request = GenerateRequest(PROMPT, Sampling(24, ignore_eos=True))
    with StreamingClient(dflash.url) as client:
        streamed, whole = client.stream(request, namespace="a"), client.generate(request)
    assert streamed.answer.output_ids == whole.output_ids
    assert streamed.answer.text == whole.text
    assert streamed.answer.spec_verify_ct == whole.spec_verify_ct
    assert streamed.answer.cached_tokens == 0
    assert [c.tokens for c in streamed.chunks] == sorted({c.tokens for c in streamed.chunks})
    assert streamed.first is not None
    assert streamed.first.tokens == 1, "the prefill's token comes alone"
    assert [c.at_s for c in streamed.chunks] == sorted(c.at_s for c in streamed.chunks)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    options = Options(profile="tiny", prompts="quick", max_new_tokens=40)
    return prepare_bench(options, QUICK, tmp_path_factory.mktemp("bench"), Silent()).run()


def test_every_server_is_measured_on_the_same_requests(measured: Bench) -> None:
    assert measured.complete
    assert set(measured.servers) == {"baseline", "nextn", "dflash"}
    asked = {
        name: [(s.stage, s.task, s.streams, s.repeat, s.slot, s.prompt_tokens) for s in server.samples]
        for name, server in measured.servers.items()
    }
    assert asked["baseline"] == asked["nextn"] == asked["dflash"]
    said = {name: [(s.task, s.streams, s.tokens) for s in server.samples] for name, server in measured.servers.items()}
    assert said["baseline"] == said["nextn"] == said["dflash"], "greedy and lossless: as many tokens on each"


def test_speculation_shows_in_the_accept_length_only_of_variants(measured: Bench) -> None:
    assert all(s.verify_steps is None for s in measured.servers["baseline"].samples)
    for name in ("nextn", "dflash"):
        assert float(cells(measured, "One request at a time", "code", name)["accept length"]) > 1.5
    assert cells(measured, "One request at a time", "code", "baseline")["accept length"] == "–"


def test_what_the_engine_cannot_do_is_left_out_and_said(measured: Bench) -> None:
    assert all(s.unfit for s in measured.servers["nextn"].samples if s.length == 9000)
    assert not any(s.temperature for s in measured.servers["nextn"].samples)
    note = next(t.note for t in measured.tables if t.title == "Servers")
    assert "the embedded engine decodes greedily" in note
    assert [r[0] for r in next(t for t in measured.tables if t.title == "By prompt length").rows] == ["256"] * 3


def test_speculation_that_is_silently_off_has_accept_length_1(tmp_path: Path) -> None:
    settings = Settings(repeats=2, streams=(1,), categories=("code",), prefill=False, temperatures=(0.0,))
    options = Options(profile="tiny", prompts="quick", fault="speculation-off", max_new_tokens=40)
    found = prepare_bench(options, settings, tmp_path, Silent()).run()
    assert found.complete
    for name in ("nextn", "dflash"):
        assert cells(found, "One request at a time", "code", name)["accept length"] == "1.00"
    note = next(t.note for t in found.tables if t.title == "Servers")
    assert "nextn: 2 of 2 answers report no verify step: they were not speculated." in note


def test_a_server_that_dies_is_named_and_the_others_are_measured(tmp_path: Path) -> None:
    settings = Settings(repeats=1, streams=(1,), categories=("code",), prefill=False, temperatures=(0.0,))
    options = Options(profile="tiny", prompts="quick", fault="die-at-request:2", max_new_tokens=40)
    run = prepare_bench(options, settings, tmp_path, Silent())
    found = run.run()
    assert not found.complete
    assert found.servers["baseline"].complete
    for name in ("nextn", "dflash"):
        assert f"server '{name}'" in (found.servers[name].problem or "")
        assert cells(found, "One request at a time", "code", name)["tokens/s"] == "missing"
    again = prepare_bench(options, settings, tmp_path, Silent())
    assert again.bencher.folder == run.bencher.folder, "an unfinished bench goes on"
    assert not again.bencher.missing("baseline")
    assert again.bencher.missing("nextn")


def test_ctrl_c_leaves_no_server(tmp_path: Path) -> None:
    suite = SmallSuite(tmp_path)
    command = [sys.executable, "-m", "lossless", "bench", "--prompts", "quick", "--streams", "2", "--no-prefill"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    suite.running.append(process)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "2 at once" in line:
                break
        assert suite.servers()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
        assert not suite.servers()
    finally:
        process.kill()
        for server in suite.servers():
            server.kill()


ONE_PROMPT = """
[[prompt]]
id = "table"
user = "Write the multiplication table of 5 up to 7."
category = "arithmetic"
sampling = { max_new_tokens = 40 }
"""


@pytest.fixture
def one_prompt(small_suite: SmallSuite) -> SmallSuite:
    (small_suite.folder / "prompts.toml").write_text(ONE_PROMPT, encoding="utf-8")
    return small_suite


@pytest.mark.slow
def test_the_suite_measures_after_its_verdicts_in_the_same_run(one_prompt: SmallSuite) -> None:
    outcome = one_prompt.run("--lossless-bench", "tests/lossless/test_parity.py")
    assert outcome.status == 0, outcome.output
    (run,) = one_prompt.runs
    found = BenchFile(run).read()
    assert found is not None
    assert found.complete
    assert set(found.servers) == {"baseline", "nextn", "dflash"}
    assert "One request at a time" in outcome.output
    evidence = json.loads((run / "evidence.json").read_text(encoding="utf-8"))
    assert evidence["status"] == "proven"
    for name in ("nextn", "dflash", "baseline"):
        last = max(p.stat().st_mtime for p in (run / "records").glob(f"{name}.jsonl"))
        assert (run / "bench.json").stat().st_mtime >= last


@pytest.mark.slow
def test_a_bench_that_was_interrupted_goes_on_without_asking_for_verdicts_again(one_prompt: SmallSuite) -> None:
    process = one_prompt.start("--lossless-bench", "tests/lossless/test_parity.py")
    end = time.monotonic() + 120
    while not (one_prompt.runs and (one_prompt.runs[0] / "bench.json").exists()):
        assert time.monotonic() < end, "no server was measured"
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    one_prompt.finish(process)
    (run,) = one_prompt.runs
    before = BenchFile(run).read()
    assert before is not None
    kept = {path.name: path.read_bytes() for path in (run / "records").glob("*.jsonl")}
    outcome = one_prompt.run("--lossless-bench", "tests/lossless/test_parity.py")
    assert outcome.status == 0, outcome.output
    assert one_prompt.runs == [run]
    after = BenchFile(run).read()
    assert after is not None
    assert after.complete
    for name, server in before.servers.items():
        assert after.servers[name] == server, "what was measured is kept"
        assert (run / "records" / f"{name}.jsonl").read_bytes() == kept[f"{name}.jsonl"]


def test_the_plan_of_a_set_is_the_same_every_time() -> None:
    from lossless.prompts import load_prompts
    from lossless.suite.prepare import open_tokenizer, recorded_prompt

    profile = load_profile("tiny")
    tokenizer, _ = open_tokenizer(profile, None)
    prompts = [recorded_prompt(p, tokenizer, None) for p in load_prompts("standard").prompts]
    first, again = (plan_for(profile, tokenizer, prompts, QUICK) for _ in range(2))
    assert first.key == again.key
    assert plan_for(profile, tokenizer, prompts).settings.streams == (1, 2)
