"""When something broke, from nights of all kinds: green, red, inconclusive, missing, flapping."""

import json
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion
from typer.testing import CliRunner

from lossless.analysis.history import Night, Series, night, read, record, series
from lossless.commands import summary, suspects
from lossless.errors import UsageError
from lossless.protocol import Sampling
from lossless.record.merge import merge_runs
from lossless.record.store import Golden, Shard
from lossless.report.evidence import evidence
from lossless.report.suspects import commands, suspects_markdown, suspects_text

TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."
GREEN, RED, UNKNOWN = "proven", "divergent", "inconclusive"


def made(day: int, status: str, *failing: str, version: str | None = None, **more: Any) -> Night:
    return Night(
        **{
            "date": f"2026-11-{day:02}T02:00:00+00:00",
            "run": f"202611{day:02}-tiny",
            "profile": "tiny",
            "prompt_set": "quick",
            "plan": "d",
            "status": status,
            "version": version or f"0.5.{day}",
            "commit": None,
            "gpu": "NVIDIA H200",
            "tool_version": "0.1.0",
            "failing": failing or (("nextn/list",) if status == RED else ()),
            **more,
        }
    )


def one(*nights: Night) -> Series:
    (found,) = series(nights)
    return found


def ends(found: Series) -> list[tuple[str | None, str | None]]:
    return [(s.good.version if s.good else None, s.bad.version) for s in found.suspects]


def test_the_first_failure_after_green() -> None:
    found = one(made(1, GREEN), made(2, GREEN), made(3, RED))
    assert (found.color, found.first_red, ends(found)) == ("red", True, [("0.5.2", "0.5.3")])
    assert found.suspects[0].items == ("nextn/list",)


def test_still_red_keeps_its_range() -> None:
    found = one(made(1, GREEN), made(2, RED), made(3, RED), made(4, RED))
    assert (found.first_red, ends(found)) == (False, [("0.5.1", "0.5.2")])


def test_green_again_has_no_suspects() -> None:
    found = one(made(1, GREEN), made(2, RED), made(3, GREEN))
    assert (found.color, found.first_red, found.suspects) == ("green", False, ())


def test_the_order_of_lines_does_not_matter() -> None:
    assert ends(one(made(3, RED), made(1, GREEN), made(2, RED))) == [("0.5.1", "0.5.2")]


def test_inconclusive_nights_are_neither() -> None:
    found = one(made(1, GREEN), made(2, UNKNOWN), made(3, UNKNOWN), made(4, RED), made(5, UNKNOWN))
    assert (found.color, ends(found)) == ("red", [("0.5.1", "0.5.4")])
    assert [n.version for n in found.suspects[0].between] == ["0.5.2", "0.5.3"]
    assert not found.first_red, "the latest night is not a red one"
    assert "was inconclusive and does not count" in suspects_text([found])
    assert one(made(1, GREEN), made(2, UNKNOWN), made(3, RED)).first_red
    assert one(made(1, UNKNOWN)).color == "unknown"


def test_missing_nights_widen_the_range_by_themselves() -> None:
    assert ends(one(made(1, GREEN), made(9, RED))) == [("0.5.1", "0.5.9")]


def test_no_green_night_before() -> None:
    found = one(made(1, RED), made(2, RED))
    assert (found.first_red, ends(found)) == (False, [(None, "0.5.1")])
    assert "no earlier night saw these pass" in suspects_text([found])
    assert commands(found.suspects[0]) == ["lossless verify 20261101-tiny"]


def test_each_item_has_its_own_range() -> None:
    found = one(
        made(1, GREEN),
        made(2, RED, "nextn/list"),
        made(3, RED, "nextn/list", "nextn/code"),
        made(4, RED, "nextn/code", "nextn/list", "dflash/list"),
    )
    assert {s.items: (s.good.version if s.good else None, s.bad.version) for s in found.suspects} == {
        ("nextn/list",): ("0.5.1", "0.5.2"),
        ("nextn/code",): ("0.5.2", "0.5.3"),
        ("dflash/list",): ("0.5.3", "0.5.4"),
    }


def test_an_item_that_could_not_be_tested_did_not_pass() -> None:
    found = one(
        made(1, GREEN), made(2, RED, "nextn/code", untested=("nextn/list",)), made(3, RED, "nextn/list", "nextn/code")
    )
    assert dict(zip((s.items for s in found.suspects), ends(found), strict=True)) == {
        ("nextn/code",): ("0.5.1", "0.5.2"),
        ("nextn/list",): ("0.5.1", "0.5.3"),
    }


def test_another_prompt_set_proves_nothing_about_an_item() -> None:
    assert ends(one(made(1, GREEN, plan="old"), made(2, RED))) == [(None, "0.5.2")]


def test_flapping() -> None:
    nights = [made(d, s, version="0.5.19") for d, s in enumerate((GREEN, RED, GREEN, RED), start=1)]
    found = one(*nights)
    assert found.flapping == ("0.5.19",)
    assert (found.first_red, found.suspects[0].same_build) == (True, True)
    assert found.suspects[0].good == nights[2]
    text = suspects_text([found])
    assert "not SGLang, which was 0.5.19 both times" in text
    assert "both green and red: 0.5.19" in text
    assert not one(made(1, GREEN), made(2, RED)).flapping


def test_cards_profiles_and_sets_are_apart() -> None:
    nights = [made(1, GREEN), made(2, RED, gpu="NVIDIA L4"), made(3, RED, profile="b"), made(4, RED, prompt_set="full")]
    assert [(s.profile, s.prompt_set, s.gpu, s.color) for s in series(nights)] == [
        ("tiny", "quick", "NVIDIA H200", "green"),
        ("tiny", "quick", "NVIDIA L4", "red"),
        ("b", "quick", "NVIDIA H200", "red"),
        ("tiny", "full", "NVIDIA H200", "red"),
    ]


def test_commits_and_releases_become_commands() -> None:
    good, bad = made(1, GREEN, version="0.5.19"), made(2, RED, "nextn/a b", "dflash/list", version="0.5.20")
    assert commands(one(good, bad).suspects[0]) == [
        "pip install 'sglang==0.5.19'    # passed",
        "pip install 'sglang==0.5.20'    # fails",
        "git bisect start v0.5.20 v0.5.19    # in a clone of SGLang",
        "pytest -m lossless --lossless-profile tiny -k 'a b or list'",
    ]
    nightly = made(2, RED, version="0.5.20.dev3+g1a2b3c4d", commit="1a2b3c4d")
    assert "git bisect start 1a2b3c4d v0.5.19    # in a clone of SGLang" in commands(one(good, nightly).suspects[0])
    assert not any("pip install" in c for c in commands(one(good, nightly).suspects[0]))
    assert nightly.build == "0.5.20.dev3+g1a2b3c4d"
    same_version = one(
        made(1, GREEN, version="0.5.19", commit="aaaaaaa"), made(2, RED, version="0.5.19", commit="b" * 7)
    )
    assert not same_version.suspects[0].same_build
    unknown = one(made(1, GREEN, version="reference-0.1.0"), made(2, RED, version="reference-0.2.0"))
    assert commands(unknown.suspects[0]) == ["pytest -m lossless --lossless-profile tiny -k list"]


def test_what_people_read(snapshot: SnapshotAssertion) -> None:
    found = series(
        [
            made(1, GREEN),
            made(2, UNKNOWN),
            made(3, RED, "nextn/list", "golden/code"),
            made(4, RED, *(f"nextn/p{i}" for i in range(20)), "nextn/list"),
            made(1, GREEN, profile="other"),
        ]
    )
    assert f"{suspects_text(found)}\n-----\n{suspects_markdown(found)}" == snapshot


@given(st.lists(st.sampled_from([GREEN, RED, UNKNOWN]), min_size=1, max_size=12))
def test_a_range_ends_where_the_last_red_streak_began(statuses: list[str]) -> None:
    nights = [made(day, status) for day, status in enumerate(statuses, start=1)]
    told = [n for n in nights if n.color != "unknown"]
    found = one(*nights)
    if not told or told[-1].status == GREEN:
        assert found.suspects == ()
        return
    streak = len(told) - next((i for i, n in enumerate(reversed(told)) if n.status == GREEN), len(told))
    (range_,) = found.suspects
    assert range_.bad == told[streak]
    assert range_.good == (told[streak - 1] if streak else None)


# ------------------------------------------------------------------ recording
def test_a_night_from_evidence(make_run: Any) -> None:
    golden = {"list-1": Golden((5, 6, 1), "x", "stop", 1)}
    run = make_run({f"list-{i}": Sampling(96) for i in range(4)}, goldens=golden)
    for server in ("baseline", "nextn"):
        for prompt in run.prompts:
            if (server, prompt) != ("nextn", "list-3"):
                run.says(server, prompt, TEXT)
    run.scored("list-1", (5, 6, 1), {0: 9.0, 1: 9.0})
    ids = run.says("nextn", "list-0", TEXT.replace("three", "seven", 1))
    run.scored("list-0", ids, {8: 3.0}, {8: run.ids(TEXT)[8]})
    run.says("nextn", "list-2", TEXT, completion_tokens=99)
    found = night(evidence(run.analysis()), commit="abc", gpu="L4")
    assert found.failing == ("nextn/list-0", "nextn/list-2", "golden/list-1")
    assert found.untested == ("nextn/list-3",)
    assert (found.color, found.version, found.commit, found.gpu) == ("red", "0.5.19", "abc", "L4")
    assert (found.date, found.run, found.plan) == ("2026-01-01T00:00:00+00:00", "run", "p")


def test_known_issues_make_no_night_red(make_run: Any) -> None:
    run = make_run({"list-0": Sampling(96), "params-0": Sampling(96, frequency_penalty=0.5)})
    for server in ("baseline", "nextn"):
        for prompt in run.prompts:
            run.says(server, prompt, TEXT)
    ids = run.says("nextn", "params-0", TEXT.replace("three", "seven", 1))
    run.scored("params-0", ids, {8: 3.0}, {8: run.ids(TEXT)[8]})
    found = night(evidence(run.analysis()))
    assert (found.color, found.failing) == ("green", ())


@pytest.mark.parametrize(
    ("version", "commit"), [("0.5.20.dev3+g1a2b3c4d", "1a2b3c4d"), ("0.5.19", None), ("0.5.20+gpu", None), (None, None)]
)
def test_a_commit_is_read_from_the_version(make_run: Any, version: str | None, commit: str | None) -> None:
    data = evidence(make_run().analysis())
    data["versions"]["baseline"] = version
    assert night(data).commit == commit


def test_recording_again_replaces(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history.jsonl"
    assert read(path) == ()
    record(path, made(2, UNKNOWN))
    record(path, made(1, GREEN))
    record(path, made(2, GREEN))
    assert [(n.run, n.status) for n in read(path)] == [("20261101-tiny", GREEN), ("20261102-tiny", GREEN)]
    assert [p.name for p in path.parent.iterdir() if p.name not in ("history.jsonl", "history.jsonl.lock")] == []


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    threads = [threading.Thread(target=record, args=(path, made(day, GREEN))) for day in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read(path)) == 16


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not a night"),
        ('{"date": 1}', "line 2 is not a night"),
        (json.dumps(asdict(replace(made(2, GREEN), schema=9))), "line 2 has format 9"),
    ],
)
def test_a_damaged_history_is_named_and_kept(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "history.jsonl"
    record(path, made(1, GREEN))
    text = path.read_text(encoding="utf-8") + line + "\n"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        record(path, made(3, GREEN))
    assert path.read_text(encoding="utf-8") == text


# ------------------------------------------------------------------- commands
def invoke(*args: str) -> Any:
    app = typer.Typer()
    summary.register(app)
    suspects.register(app)
    return CliRunner().invoke(app, list(args), env={"LOSSLESS_GPU": "NVIDIA L4"})


def test_a_shard_is_no_night_but_the_merged_run_is(make_run: Any, tmp_path: Path) -> None:
    ids, stores = ("list-0", "list-1"), []
    for k, name in enumerate(ids, start=1):
        manifest = {"shard": Shard(k, 2, ids), "key": f"{k}" * 64, "model_digest": "m" * 64}
        run = make_run({name: Sampling(96)}, folder=f"shard-{k}", **manifest)
        for server in ("baseline", "nextn"):
            run.says(server, name, TEXT)
        stores.append(run.store)
    path = tmp_path / "history.jsonl"
    refused = invoke("summary", str(stores[0].path), "--history", str(path))
    assert "is a shard: it did not test every prompt" in str(refused.exception)
    assert not path.exists()
    merged = merge_runs(stores, tmp_path / "merged")
    assert invoke("summary", str(merged.path), "--history", str(path)).exit_code == 0
    assert [(n.run, n.color) for n in read(path)] == [("merged", "green")]


def test_summary_records_and_suspects_reads(make_run: Any, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    for day, said, version in ((1, TEXT, "0.5.20"), (2, TEXT.replace("three", "seven", 1), "0.5.21")):
        run = make_run(folder=f"night-{day}", created=f"2026-11-0{day}T02:00:00+00:00")
        for name in ("baseline", "nextn"):
            run.server(name, version=version)
        run.says("baseline", "list-0", TEXT)
        ids = run.says("nextn", "list-0", said)
        run.scored("list-0", ids, {8: 3.0} if day == 2 else None)
        assert invoke("summary", str(run.store.path), "--history", str(path)).exit_code == 0
        shown = invoke("suspects", str(path))
        assert shown.exit_code == day - 1
    assert "suspects: after 0.5.20, up to 0.5.21" in shown.output
    (data,) = json.loads(invoke("suspects", str(path), "--format", "json").output)
    assert (data["gpu"], data["first_red"], data["suspects"][0]["items"]) == ("NVIDIA L4", True, ["nextn/list-0"])
    assert invoke("suspects", str(path), "--format", "markdown").output.startswith("### small · prompts standard")
    other = invoke("suspects", str(path), "--profile", "other")
    assert (other.exit_code, other.output) == (3, "the history holds no night\n")
    assert "there is no history" in str(invoke("suspects", str(tmp_path / "none")).exception)
