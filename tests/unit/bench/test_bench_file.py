"""bench.json: kept, read again, resumed, and never mixed with other figures."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from bench_made import bench, sample, server

from lossless.bench.bencher import Bencher, bench_key, plan_for
from lossless.bench.file import BenchFile
from lossless.bench.plan import Plan, Settings
from lossless.bench.run import unfinished
from lossless.errors import UsageError
from lossless.profiles import load_profile
from lossless.prompts import Tokenizer
from lossless.protocol import Sampling
from lossless.record.store import RecordedPrompt
from lossless.reference.builtin import builtin_path
from lossless.report.html.sections import Bench as BenchInReport

PROFILE = load_profile("tiny")


@pytest.fixture(scope="module")
def plan() -> Plan:
    tokenizer = Tokenizer.from_folder(builtin_path() / "target")
    prompts = [RecordedPrompt("a", "code", "parity", (7,), Sampling(96), "a")]
    return plan_for(PROFILE, tokenizer, prompts, Settings(streams=(1,), lengths=(256, 300)))


class Silent:
    def starting(self, server: str, line: str) -> None: ...

    def stage(self, server: str, stage: str, total: int, done: int) -> None: ...

    def advance(self, server: str, stage: str, tokens: int) -> None: ...


def bencher(folder: Path, plan: Plan, key: str = "k") -> Bencher:
    return Bencher(folder, PROFILE, plan, key, Silent())


def test_long_prompts_have_exactly_the_wanted_length(plan: Plan) -> None:
    asked = {a.task.length: len(a.task.ids) for r in plan.rounds for a in r.asks if r.stage == "context"}
    assert asked == {256: 256, 300: 300}


def test_what_is_kept_is_read_again(tmp_path: Path, plan: Plan) -> None:
    own = bencher(tmp_path, plan)
    assert own.missing("nextn")
    own.keep(server("nextn", [sample(verify_steps=7)]))
    assert not own.missing("nextn")
    assert own.missing("baseline")
    found = BenchFile(tmp_path).read()
    assert found is not None
    assert found.servers["nextn"].samples == (sample(verify_steps=7),)
    assert (found.names, found.lengths, found.tasks) == (("baseline", "nextn", "dflash"), (256, 300), {"code": ("a",)})
    assert found.tables


def test_the_html_report_can_show_it(tmp_path: Path, plan: Plan) -> None:
    bencher(tmp_path, plan).keep(server("nextn", [sample(verify_steps=7)]))
    shown = msgspec.json.decode((tmp_path / "bench.json").read_bytes(), type=BenchInReport)
    assert shown.tables[0].title == "Summary"
    assert json.loads((tmp_path / "bench.json").read_text())["schema"] == 1


def test_figures_of_another_plan_are_thrown_away(tmp_path: Path, plan: Plan) -> None:
    bencher(tmp_path, plan).keep(server("nextn", [sample()]))
    other = bencher(tmp_path, plan, "another")
    assert other.missing("nextn")
    other.keep(server("baseline", [sample()]))
    found = BenchFile(tmp_path).read()
    assert found is not None
    assert set(found.servers) == {"baseline"}


def test_a_server_that_died_is_measured_again(tmp_path: Path, plan: Plan) -> None:
    own = bencher(tmp_path, plan)
    own.keep(server("nextn", [sample()], complete=False, problem="it died"))
    assert own.missing("nextn")


def test_the_key_holds_the_servers_arguments(plan: Plan) -> None:
    other = replace(PROFILE, args={**PROFILE.args, "chunked-prefill-size": 128})
    assert len({bench_key(PROFILE, plan), bench_key(other, plan), bench_key(PROFILE, plan, "speculation-off")}) == 3


def test_only_an_unfinished_bench_of_the_same_key_is_resumed(tmp_path: Path) -> None:
    half = bench({"baseline": server("baseline", [])})
    assert unfinished(tmp_path / "none", "k") is None
    BenchFile(tmp_path / "1").change(lambda _: half)
    BenchFile(tmp_path / "2").change(lambda _: replace(half, key="other"))
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "bench.json").write_text("{cut")
    assert unfinished(tmp_path, "k") == tmp_path / "1"
    whole = bench({name: server(name, []) for name in ("baseline", "nextn")})
    BenchFile(tmp_path / "4").change(lambda _: whole)
    assert unfinished(tmp_path, "k") is None


def test_a_damaged_file_is_a_usage_error(tmp_path: Path) -> None:
    assert BenchFile(tmp_path).read() is None
    (tmp_path / "bench.json").write_text('{"schema": 1')
    with pytest.raises(UsageError, match="is damaged"):
        BenchFile(tmp_path).read()
    BenchFile(tmp_path / "new").change(lambda _: replace(bench({}), schema=99))
    with pytest.raises(UsageError, match="has schema 99, this version reads 1"):
        BenchFile(tmp_path / "new").read()
