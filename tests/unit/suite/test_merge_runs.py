"""Joining shards: what is refused and why, and that the joint status is the worst of all."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
from syrupy.assertion import SnapshotAssertion
from typer.testing import CliRunner

from lossless.analysis import analyze
from lossless.analysis.compare import Side, compare
from lossless.analysis.merge import MergedAnalysis
from lossless.commands import merge as merge_command
from lossless.errors import UsageError
from lossless.protocol import Sampling
from lossless.record.merge import merge_runs
from lossless.record.runs import resumable
from lossless.record.store import Golden, RunStore, ServerState, Shard
from lossless.report.evidence_schema import evidence_schema
from lossless.verdict import Kind, Reason
from lossless.verdict.noise import given

SAID = "85 - 60 = 25. The answer is 25."
WRONG = "85 - 61 = 24."
IDS = ("list-0", "code-1", "list-2")


def invoke(*args: object) -> Any:
    app = typer.Typer()
    merge_command.register(app)
    app.command("other")(lambda: None)  # with two commands the first one keeps its name
    return CliRunner().invoke(app, ["merge", *map(str, args)], env={"COLUMNS": "120", "TERMINAL_WIDTH": "120"})


def shard(make_run: Any, index: int, total: int = 3, *, variant: str | None = SAID, **fields: Any) -> Any:
    """Shard ``index`` with one prompt; ``variant`` None: the variant never answered."""
    prompt = fields.pop("prompt", IDS[index - 1])
    manifest = {"shard": Shard(index, total, IDS[:total]), "key": f"{index}" * 64, "model_digest": "m" * 64, **fields}
    run = make_run({prompt: Sampling(96)}, folder=fields.pop("folder", f"shard-{index}"), **manifest)
    ids = run.says("baseline", prompt, SAID)
    run.scored(prompt, ids)
    if variant is not None:
        other = run.says("nextn", prompt, variant)
        if other != ids:
            run.scored(prompt, other, {2: 9.0})
    return run


def three(make_run: Any, **second: Any) -> list[RunStore]:
    return [shard(make_run, k, **(second if k == 2 else {})).store for k in (1, 2, 3)]


def test_a_merged_run_opens_like_any_other(make_run: Any, tmp_path: Path) -> None:
    stores = three(make_run)
    merged = merge_runs([stores[2], stores[0], stores[1]], tmp_path / "merged")
    assert [s.manifest.shard for s in merged.shards] == [Shard(k, 3, IDS) for k in (1, 2, 3)]
    opened = RunStore.open(merged.path)
    assert (opened.manifest.shard, opened.manifest.merged, opened.complete) == (None, 3, True)
    assert tuple(p.id for p in opened.prompts) == IDS
    assert sorted(opened.answers("nextn")) == sorted(k for s in stores for k in s.answers("nextn"))
    analysis = analyze(opened)
    assert [(j.prompt.id, j.verdict.kind) for j in analysis.verdicts()] == [(id_, Kind.IDENTICAL) for id_ in IDS]
    assert all(c.ok for c in analysis.controls)
    for store, kept in zip(stores, opened.shards, strict=True):
        for name in ("baseline", "nextn"):
            assert (kept.path / f"records/{name}.jsonl").read_bytes() == (
                store.path / f"records/{name}.jsonl"
            ).read_bytes()


def test_a_merged_run_is_never_resumed(make_run: Any, tmp_path: Path) -> None:
    stores = three(make_run)
    merged = merge_runs(stores, tmp_path / "runs" / "merged")
    assert merged.manifest.key not in {s.manifest.key for s in stores}
    assert resumable(tmp_path / "runs", stores[0].manifest.key) is None


@pytest.mark.parametrize(
    ("variant", "status", "word"), [(SAID, 0, "proven"), (WRONG, 1, "divergent"), (None, 3, "inconclusive")]
)
def test_the_status_is_the_worst_of_all(
    make_run: Any, tmp_path: Path, variant: str | None, status: int, word: str, snapshot: SnapshotAssertion
) -> None:
    stores = three(make_run, variant=variant)
    target = tmp_path / "merged"
    result = invoke(*(s.path for s in stores), "-o", target)
    assert result.exit_code == status, result.output
    said = [line.rstrip() for line in result.output.replace(str(tmp_path), "").splitlines()]
    assert "\n".join(said[said.index("shards") :]) == snapshot
    found = json.loads((target / "evidence.json").read_text(encoding="utf-8"))
    assert (found["status"], found["schema"]) == (word, 1)
    jsonschema.Draft202012Validator(evidence_schema()).validate(found)
    assert [(s["shard"], s["of"], s["status"]) for s in found["shards"]] == [
        (1, 3, "proven"),
        (2, 3, word),
        (3, 3, "proven"),
    ]
    assert [s["epsilon"]["value"] for s in found["shards"]] == [0.125] * 3
    assert sum(sum(counts.values()) for s in found["shards"] for counts in s["counts"].values()) == sum(
        found["counts"]["nextn"].values()
    )


def test_divergent_is_worse_than_inconclusive(make_run: Any, tmp_path: Path) -> None:
    stores = [shard(make_run, k, variant=v).store for k, v in ((1, None), (2, WRONG), (3, SAID))]
    result = invoke(*(s.path for s in stores), "-o", tmp_path / "merged", "--json")
    assert result.exit_code == 1
    assert json.loads(result.output)["status"] == "divergent"


def test_a_control_that_fails_in_one_shard_counts(make_run: Any, tmp_path: Path) -> None:
    """All tokens are the same, but in one shard speculation never ran: the others' steps do not make up for it."""
    stores = three(make_run)
    silent = make_run({"code-1": Sampling(96)}, folder="silent", shard=Shard(2, 3, IDS), model_digest="m" * 64)
    silent.scored("code-1", silent.says("baseline", "code-1", SAID))
    silent.says("nextn", "code-1", SAID, spec_verify_ct=0)
    result = invoke(stores[0].path, silent.store.path, stores[2].path, "-o", tmp_path / "merged", "--json")
    assert result.exit_code == 3
    found = json.loads(result.output)
    control = next(c for c in found["controls"] if c["name"] == "speculation")
    assert not control["ok"]
    assert control["detail"].startswith("shard 2/3: no answer reports a verify step")
    verdicts = {v["prompt"]: v["verdict"] for v in found["verdicts"]}
    assert verdicts == {"list-0": "identical", "code-1": "inconclusive", "list-2": "identical"}


def test_each_shard_keeps_its_own_bound(make_run: Any, tmp_path: Path) -> None:
    """A difference that one shard's floor does not explain is not excused by another shard's wider one."""
    analysis = MergedAnalysis(merge_runs(three(make_run, variant=WRONG), tmp_path / "merged"))
    for own, bound in zip(analysis.shards, (9.5, 0.125, 9.5), strict=True):
        own.epsilon = given(bound)
    assert analysis.epsilon.value == 9.5
    assert analysis.verdict("nextn", "code-1").verdict.kind is Kind.DIVERGENT
    for own, bound in zip(analysis.shards, (0.125, 9.5, 0.125), strict=True):
        own.epsilon = given(bound)
    assert analysis.verdict("nextn", "code-1").verdict.reason is not Reason.GAP


def test_what_judges_a_prompt_elsewhere_is_its_shard_too(make_run: Any, tmp_path: Path) -> None:
    """Replaying a prompt and comparing runs use the bound of the shard that recorded it."""
    analysis = MergedAnalysis(merge_runs(three(make_run, variant=WRONG), tmp_path / "merged"))
    for own, bound in zip(analysis.shards, (9.5, 0.125, 9.5), strict=True):
        own.epsilon = given(bound)
    assert [analysis.home(id_) for id_ in IDS] == list(analysis.shards)
    assert analysis.home("nobody's") is analysis
    judged = {j.prompt.id: j.verdict.kind for j in compare(Side(analysis, "baseline"), Side(analysis, "nextn"))}
    assert judged == {"list-0": Kind.IDENTICAL, "code-1": Kind.DIVERGENT, "list-2": Kind.IDENTICAL}


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ((1, 3), "shard 2/3 missing"),
        ((2,), "shards 1/3, 3/3 missing"),
        ((1, 2, 2, 3), "shard 2/3 was given 2 times"),
    ],
)
def test_every_shard_exactly_once(make_run: Any, tmp_path: Path, numbers: tuple[int, ...], says: str) -> None:
    stores = three(make_run)
    with pytest.raises(UsageError, match=says):
        merge_runs([stores[k - 1] for k in numbers], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"profile": "other"}, "profile: shard 1/3 has 'small', shard 2/3 has 'other'"),
        ({"prompt_digest": "q"}, "prompt_digest: shard 1/3 has 'p', shard 2/3 has 'q'"),
        ({"model_digest": "n" * 64}, f"model_digest: shard 1/3 has '{'m' * 64}', shard 2/3 has '{'n' * 64}'"),
        ({"tool_version": "1"}, "tool_version: shard 1/3 has '0', shard 2/3 has '1'"),
        ({"fault": "wrong-token"}, "fault: shard 1/3 has None, shard 2/3 has 'wrong-token'"),
        ({"epsilon": 0.5}, "epsilon: shard 1/3 has 0.125, shard 2/3 has 0.5"),
        ({"variants": ("nextn", "dflash")}, "variants: shard 1/3 has ('nextn',), shard 2/3 has ('nextn', 'dflash')"),
        ({"goldens": {"code-1": Golden((1,), "", "length")}}, "golden code-1: shard 1/3 and shard 2/3"),
        ({"prompt": "list-0"}, "prompt list-0: it is in shard 1/3 and in shard 2/3"),
        ({"prompt": "stray"}, "prompt stray of shard 2/3 is not in the set"),
    ],
)
def test_mismatches_are_named_with_both_values(
    make_run: Any, tmp_path: Path, second: dict[str, Any], says: str
) -> None:
    stores = three(make_run, **second)
    with pytest.raises(UsageError) as caught:
        merge_runs(stores, tmp_path / "merged")
    assert says in str(caught.value)
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize(
    ("server", "info", "says"),
    [
        ("baseline", {"version": "0.5.20"}, "baseline, version: shard 1/3 has '0.5.19', shard 2/3 has '0.5.20'"),
        ("nextn", {"speculative_num_steps": 5}, "nextn, speculative_num_steps: shard 1/3 has None, shard 2/3 has 5"),
        ("nextn", {"attention_backend": "triton"}, "nextn, attention_backend: shard 1/3 has None"),
    ],
)
def test_the_servers_must_be_the_same(
    make_run: Any, tmp_path: Path, server: str, info: dict[str, Any], says: str
) -> None:
    runs = [shard(make_run, k) for k in (1, 2, 3)]
    runs[1].server(server, **info)
    with pytest.raises(UsageError) as caught:
        merge_runs([r.store for r in runs], tmp_path / "merged")
    assert says in str(caught.value)


def test_one_model_may_lie_in_other_folders(make_run: Any, tmp_path: Path) -> None:
    runs = [shard(make_run, k, **({"target": "/data/tiny"} if k == 2 else {})) for k in (1, 2, 3)]
    for name in ("baseline", "nextn"):
        runs[1].server(name, model_path="/data/tiny")
    assert merge_runs([r.store for r in runs], tmp_path / "merged").complete


def test_without_a_digest_the_folder_must_be_the_same(make_run: Any, tmp_path: Path) -> None:
    runs = [shard(make_run, k, model_digest=None, **({"target": "/data/tiny"} if k == 2 else {})) for k in (1, 2, 3)]
    with pytest.raises(UsageError, match="target: shard 1/3 has 'tiny', shard 2/3 has '/data/tiny'"):
        merge_runs([r.store for r in runs], tmp_path / "merged")


def test_a_server_that_failed_in_one_shard_is_told(make_run: Any, tmp_path: Path) -> None:
    runs = [shard(make_run, k) for k in (1, 2, 3)]
    runs[2].store.write_server(ServerState("nextn", False, "killed"))
    merged = merge_runs([r.store for r in runs], tmp_path / "merged")
    state = merged.server("nextn")
    assert state is not None
    assert (state.complete, state.problem) == (False, "shard 3/3: killed")


def test_a_run_of_the_whole_set_is_no_shard(make_run: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="recorded without --lossless-shard"):
        merge_runs([make_run().store], tmp_path / "merged")


def test_links_in_a_run_are_not_followed(make_run: Any, tmp_path: Path) -> None:
    stores = three(make_run)
    (tmp_path / "outside").write_text("x", encoding="utf-8")
    (stores[1].path / "logs" / "nextn.log").symlink_to(tmp_path / "outside")
    merged = merge_runs(stores, tmp_path / "merged")
    assert not (merged.shards[1].path / "logs" / "nextn.log").exists()


def test_nothing_is_written_over(make_run: Any, tmp_path: Path) -> None:
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / "mine").write_text("x", encoding="utf-8")
    with pytest.raises(UsageError, match="exists already"):
        merge_runs(three(make_run), tmp_path / "merged")
    assert (tmp_path / "merged" / "mine").read_text(encoding="utf-8") == "x"


def test_runs_without_the_new_fields_still_load(make_run: Any) -> None:
    store = make_run().store
    path = store.path / "run.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    del data["shard"], data["merged"]
    path.write_text(json.dumps(data), encoding="utf-8")
    assert (store.manifest.shard, store.manifest.merged, store.shards) == (None, 0, ())
