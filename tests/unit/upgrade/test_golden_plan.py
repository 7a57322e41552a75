"""What ``--snapshot-update`` would write is what it writes, and what it does not change stays as it is."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.data import Snapshot, SnapshotCollection
from upgrade_runs import FLIPPED, FORKED, STORY, TEXT, first_difference, run_pair

from lossless.golden import read_goldens
from lossless.golden.check import GoldenCheck
from lossless.golden.extension import GoldenExtension
from lossless.golden.files import parse_golden
from lossless.golden.fixture import GoldenFixture
from lossless.golden.plan import planned
from lossless.protocol import Sampling
from lossless.record.store import Shard


class Writing:
    """Stands for syrupy's snapshot with ``--snapshot-update``: the extension compares and writes, as in a session."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, ""

    def __call__(self, *, name: str) -> "Writing":
        self.name = name
        return self

    def __eq__(self, text: object) -> bool:
        extension, path = GoldenExtension(), self.folder / f"{self.name}.json"
        found = extension.read_snapshot_data_from_location(
            snapshot_location=str(path), snapshot_name=self.name, session_id="1"
        )
        if found is None or not extension.matches(serialized_data=str(text), snapshot_data=str(found)):
            extension.write_snapshot_collection(snapshot_collection=collection(path, str(text)))
        return True

    __hash__ = None  # type: ignore[assignment]


def collection(path: Path, text: str) -> SnapshotCollection:
    made = SnapshotCollection(location=str(path))
    made.add(Snapshot(name=path.stem, data=text))
    return made


def update(run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Update every golden of the run; what happened to each, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    analysis, notes = run.analysis(), []
    check = GoldenCheck(analysis)
    monkeypatch.setattr(GoldenExtension, "compare", staticmethod(check.holds))
    fixture = GoldenFixture(check, Writing(folder), folder, True, notes.append)
    steps: list[Callable[[], None]] = [lambda p=p: fixture.compare(p) for p in analysis.prompts]
    steps += [lambda: fixture.compare_acceptance("nextn", analysis.acceptance("nextn"))]
    for step in steps:
        try:
            step()
        except (pytest.fail.Exception, pytest.xfail.Exception):
            continue
    return {name: word for word, _, name in (note.partition(":") for note in notes)}


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def plan_of(run: Any, folder: Path) -> dict[str, str]:
    return {p.name: p.action for p in planned(GoldenCheck(run.analysis()), folder)}


WORDS = {"write": "written", "rewrite": "written", "keep": "kept", "refuse": "refused"}


def flipped(make_run: Any, regret: float) -> Any:
    """A pair whose new baseline flips one token of ``list-0``, and re-scores the old output."""
    pair = run_pair(make_run, new_list=FLIPPED)
    at = first_difference(pair.new, FLIPPED, TEXT)
    pair.new.scored("list-0", pair.new.ids(TEXT), {at: regret}, {at: pair.new.ids(FLIPPED)[at]})
    return pair


@pytest.mark.parametrize(("regret", "action"), [(0.0625, "keep"), (3.0, "rewrite")], ids=["near-tie", "other tokens"])
def test_the_plan_is_what_happens(
    make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regret: float, action: str
) -> None:
    pair, folder = flipped(make_run, regret), tmp_path / "golden"
    assert set(plan_of(pair.old, folder).values()) == {"write"}
    assert set(update(pair.old, folder, monkeypatch).values()) == {"written"}
    plan = plan_of(pair.new, folder)
    assert plan == {"list-0": action, "story-0": "keep", "_acceptance-nextn": "keep"}
    assert update(pair.new, folder, monkeypatch) == {name: WORDS[a] for name, a in plan.items()}
    assert set(plan_of(pair.new, folder).values()) == {"keep"}


def test_recording_again_changes_no_byte(make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, folder = run_pair(make_run), tmp_path / "golden"
    update(pair.old, folder, monkeypatch)
    before, times = bytes_of(folder), {p.name: p.stat().st_mtime_ns for p in folder.iterdir()}
    assert set(update(pair.old, folder, monkeypatch).values()) == {"kept"}
    assert bytes_of(folder) == before
    assert {p.name: p.stat().st_mtime_ns for p in folder.iterdir()} == times


def test_an_upgrade_rewrites_only_what_no_longer_holds(
    make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, folder = flipped(make_run, 3.0), tmp_path / "golden"
    update(pair.old, folder, monkeypatch)
    before = bytes_of(folder)
    update(pair.new, folder, monkeypatch)
    after = bytes_of(folder)
    assert [name for name in after if after[name] != before.get(name)] == ["list-0.json"]
    versions = {n: parse_golden(c, where=n).provenance.version for n, c in after.items() if not n.startswith("_")}
    assert versions == {"list-0.json": "0.5.20", "story-0.json": "0.5.19"}


def test_other_reasons_to_write_or_not(make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, folder = run_pair(make_run), tmp_path / "golden"
    update(pair.old, folder, monkeypatch)
    story = parse_golden((folder / "story-0.json").read_bytes(), where="story-0")
    other = replace(story, provenance=replace(story.provenance, prompt="another request"))
    (folder / "story-0.json").write_text(other.dumps(), encoding="utf-8")
    (folder / "list-0.json").write_bytes(b"\xff{")
    (folder / "_acceptance-nextn.json").write_text("{", encoding="utf-8")
    found = {p.name: (p.action, p.why) for p in planned(GoldenCheck(pair.new.analysis()), folder)}
    assert {action for action, _ in found.values()} == {"rewrite"}
    assert "damaged" in found["list-0"][1]
    assert found["story-0"][1] == "it was recorded for another request"
    assert "damaged" in found["_acceptance-nextn"][1]
    assert set(update(pair.new, folder, monkeypatch).values()) == {"written"}


def test_an_unproven_pair_is_refused(make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, folder = run_pair(make_run, variant=FORKED), tmp_path / "golden"
    plan = plan_of(pair.new, folder)
    assert plan == {"list-0": "refuse", "story-0": "write", "_acceptance-nextn": "refuse"}
    assert update(pair.new, folder, monkeypatch) == {name: WORDS[a] for name, a in plan.items()}
    assert sorted(bytes_of(folder)) == ["story-0.json"]


def test_known_issues_are_refused(make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, folder = make_run({"params-0": Sampling(96, min_new_tokens=20)}), tmp_path / "golden"
    short, long = run.ids(TEXT), (*run.ids(TEXT)[:-1], *run.ids(TEXT))
    run.says("baseline", "params-0", short)
    run.says("nextn", "params-0", long)
    run.scored("params-0", long, {len(short) - 1: 9.0}, {len(short) - 1: 1})
    assert plan_of(run, folder) == {"params-0": "refuse", "_acceptance-nextn": "write"}
    assert update(run, folder, monkeypatch) == {"params-0": "refused", "_acceptance-nextn": "written"}


def test_a_shard_has_no_accept_lengths_to_write(make_run: Any, tmp_path: Path) -> None:
    shard = Shard(1, 2, ("list-0", "story-0", "copy-0"))
    assert plan_of(run_pair(make_run, shard=shard).new, tmp_path) == {"list-0": "write", "story-0": "write"}


def test_stress_prompts_have_no_goldens(make_run: Any, tmp_path: Path) -> None:
    pair = run_pair(make_run, groups={"story-0": "stress"})
    assert "story-0" not in plan_of(pair.new, tmp_path)


def test_accept_lengths_outside_their_band(make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, folder = run_pair(make_run), tmp_path / "golden"
    update(pair.old, folder, monkeypatch)
    for run, prompt, said in ((pair.new, "list-0", TEXT), (pair.new, "story-0", STORY)):
        run.says("nextn", prompt, said, spec_verify_ct=len(run.ids(said)) * 2 // 3)
    (found,) = [p for p in planned(GoldenCheck(pair.new.analysis()), folder) if p.name == "_acceptance-nextn"]
    assert found.action == "rewrite"
    assert "fell to" in found.why


# ----------------------------------------------------------------------------- crashes
def test_a_crash_while_writing_leaves_the_old_golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "list-0.json"
    path.write_text("old", encoding="utf-8")

    def dies(*_: Any) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        GoldenExtension.write_snapshot_collection(snapshot_collection=collection(path, "new"))
    assert bytes_of(tmp_path) == {"list-0.json": b"old"}


def test_a_golden_is_written_as_it_is(tmp_path: Path) -> None:
    text = json.dumps({"text": "中\r\n"}, ensure_ascii=False) + "\n"
    GoldenExtension.write_snapshot_collection(snapshot_collection=collection(tmp_path / "a.json", text))
    assert bytes_of(tmp_path) == {"a.json": text.encode()}


def test_what_is_left_of_a_killed_writer_is_no_golden(tmp_path: Path) -> None:
    (tmp_path / ".list-0.json.123").write_text("{", encoding="utf-8")
    assert read_goldens(tmp_path) == ({}, {})


def test_nothing_is_ever_deleted(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="never deleted"):
        GoldenExtension().delete_snapshots(snapshot_location=str(tmp_path), snapshot_names={"a"})
