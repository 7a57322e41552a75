"""Shards and their merge: real SGLang answers divided and joined again, and shards recorded by the suite itself."""

import json
import tarfile
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import typer
from small_suite import SmallSuite
from typer.testing import CliRunner

from lossless.analysis import Analysis, analyze
from lossless.analysis.merge import MergedAnalysis
from lossless.commands import merge as merge_command
from lossless.record.merge import merge_runs
from lossless.record.plan import SCORE
from lossless.record.store import RunStore, Shard
from lossless.reference.builtin import builtin_path
from lossless.report.evidence import status
from lossless.suite.shard import ShardChoice, chosen

PACKED = Path(__file__).parents[1] / "data" / "gpu-runs"
TOTAL = 3


def merge(*args: object) -> Any:
    app = typer.Typer()
    merge_command.register(app)
    app.command("other")(lambda: None)  # with two commands the first one keeps its name
    return CliRunner().invoke(app, ["merge", *map(str, args)])


def divide(whole: RunStore, folder: Path) -> list[RunStore]:
    """The run as if three machines had recorded a shard each."""
    prompts, manifest = whole.prompts, whole.manifest
    ids = tuple(p.id for p in prompts)
    tokenizer = (whole.path / "tokenizer.json").read_text(encoding="utf-8")
    found = []
    for k in range(1, TOTAL + 1):
        own = frozenset(chosen(prompts, ShardChoice(k, TOTAL), name="whole"))
        store = RunStore(folder / f"shard-{k}")
        store.create(
            replace(manifest, key=f"{k}{manifest.key}", shard=Shard(k, TOTAL, ids)),
            tuple(p for p in prompts if p.id in own),
            whole.goldens,
            tokenizer,
        )
        for name in ("baseline", *manifest.variants):
            state = whole.server(name)
            assert state is not None
            store.write_server(state)
            # Prompts with the same input share the re-scoring of an output; each machine would have asked for its own.
            lines = [r for r in whole.records(name) if r.prompt in own or r.stage == SCORE]
            path = store.path / "records" / f"{name}.jsonl"
            path.write_text("".join(json.dumps(asdict(r), ensure_ascii=False) + "\n" for r in lines), encoding="utf-8")
        found.append(store)
    return found


def unpack(name: str, folder: Path) -> RunStore:
    with tarfile.open(PACKED / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    (folder / "tokenizer.json").write_bytes((builtin_path() / "target" / "tokenizer.json").read_bytes())
    return RunStore.open(folder)


def labels(run: Analysis) -> dict[tuple[str, str, str, int], str]:
    return {(j.variant, j.prompt.id, j.stage, j.turn): j.verdict.label for j in run.verdicts()}


def compare(whole: Analysis, merged: Analysis, outcome: str) -> None:
    """Both judged with one bound. The share of the baseline's own tokens off the argmax stays each shard's own, so its
    budget may be smaller there, and a verdict worse; none becomes milder."""
    assert isinstance(merged, MergedAnalysis)
    before, after = labels(whole), labels(merged)
    assert before.keys() == after.keys()
    changed = {key: (before[key], after[key]) for key in before if before[key] != after[key]}
    assert {new for _, new in changed.values()} <= {"divergent (budget)"}, changed
    assert len(changed) <= len(before) // 100
    assert status(merged, list(merged.verdicts())) == status(whole, list(whole.verdicts())) == outcome
    for variant in whole.manifest.variants:
        assert merged.acceptance(variant) == whole.acceptance(variant)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, list[RunStore], RunStore]:
    """A run on an H200, the same in three shards, and these merged."""
    folder = tmp_path_factory.mktemp("honest")
    whole = unpack("honest", folder / "whole")
    shards = divide(whole, folder)
    return whole, shards, merge_runs(shards, folder / "merged")


@pytest.mark.slow
def test_a_run_divided_and_joined_says_the_same(honest: tuple[RunStore, list[RunStore], RunStore]) -> None:
    whole, _, merged = honest
    compare(analyze(whole, epsilon=0.125), analyze(merged, epsilon=0.125), "proven")


@pytest.mark.slow
def test_a_lossy_run_divided_and_joined_is_as_lossy(tmp_path: Path) -> None:
    whole = unpack("lossy", tmp_path / "whole")
    merged = merge_runs(divide(whole, tmp_path), tmp_path / "merged")
    compare(analyze(whole, epsilon=0.125), analyze(merged, epsilon=0.125), "divergent")


def test_every_verdict_is_its_own_shards(honest: tuple[RunStore, list[RunStore], RunStore]) -> None:
    _, shards, store = honest
    merged = analyze(store)
    apart: dict[tuple[str, str, str, int], str] = {}
    floors = []
    for shard in shards:
        own = analyze(shard)
        apart |= labels(own)
        floors.append(own.epsilon.value)
    assert labels(merged) == apart
    assert Counter(apart.values())["identical"] > 200
    assert merged.epsilon.value == max(floors)
    detail = next(c.detail for c in merged.controls if c.name == "noise floor")
    assert detail == "; ".join(f"shard {k}/3: epsilon {e:.4g} nats" for k, e in enumerate(floors, start=1))


@pytest.mark.slow
def test_shards_that_the_suite_recorded_prove_what_one_run_proves(small_suite: SmallSuite) -> None:
    options = ("--lossless-epsilon", "0.001")  # one or two prompts are too few for a floor of their own
    seen = []
    for k in range(1, TOTAL + 1):
        outcome = small_suite.run(*options, "--lossless-shard", f"{k}/{TOTAL}")
        assert outcome.status == 0, outcome.output
        assert f"· shard {k}/{TOTAL}" in outcome.output
        seen += [v["prompt"] for v in small_suite.evidence()["verdicts"] if v["stage"] == "plain"]
    assert Counter(seen) == dict.fromkeys(("sum", "table", "story", "list", "again"), 2), "each prompt, two variants"
    shards = small_suite.runs
    assert len(shards) == TOTAL
    folder = small_suite.folder / "merged"
    refused = merge(*shards[:2], "-o", folder)
    assert "3/3 missing" in str(refused.exception)
    assert not folder.exists()
    done = merge(*shards, "-o", folder, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["status"] == "proven"
    assert found == json.loads((folder / "evidence.json").read_text(encoding="utf-8"))
    verified = small_suite.lossless("verify", str(folder), "--json")
    assert verified.status == 0, verified.output
    again = json.loads(verified.output)
    assert again == found, "verify says of a merged run what merge said"

    assert small_suite.run(*options).status == 0
    one = small_suite.evidence()
    for part in ("prompt_set", "versions", "counts", "verdicts", "broken_rules", "acceptance"):
        assert found[part] == one[part], part
