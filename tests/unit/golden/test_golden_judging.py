"""Goldens judged by today's baseline, and when one may be written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lossless.analysis import Acceptance
from lossless.golden.check import GoldenCheck
from lossless.golden.extension import GoldenExtension
from lossless.golden.files import GoldenFile
from lossless.golden.fixture import GoldenFixture
from lossless.protocol import Sampling
from lossless.record.store import Golden
from lossless.verdict import Kind, Reason

TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."
FLIPPED = TEXT.replace("three", "seven", 1)


def recorded(make_run: Any, golden: str | None = None, *, scored: float | None = None, folder: str = "run") -> Any:
    """A run in which both servers say TEXT, and a golden that says something else (with that regret at its flip)."""
    run = make_run(folder=folder)
    ids = run.ids(golden or TEXT)
    goldens = {"list-0": Golden(ids, golden or TEXT, "stop", 1)}
    run = make_run(folder=folder + "-with-golden", goldens=goldens)
    for server in ("baseline", "nextn"):
        run.says(server, "list-0", TEXT)
    if scored is not None:
        own = run.ids(TEXT)
        at = next(t for t, (x, y) in enumerate(zip(own, ids, strict=False)) if x != y)
        run.scored("list-0", ids, {at: scored}, {at: own[at]})
    return run


@pytest.mark.parametrize(
    ("golden", "scored", "kind", "reason"),
    [
        (None, None, Kind.IDENTICAL, None),
        (FLIPPED, 0.0625, Kind.NEAR_TIE, None),
        (FLIPPED, 0.0, Kind.NEAR_TIE, None),
        (FLIPPED, 1.0, Kind.DIVERGENT, Reason.GAP),
        (FLIPPED, None, Kind.INCONCLUSIVE, Reason.UNSCORED),
        (TEXT[:30], None, Kind.INCONCLUSIVE, Reason.UNSCORED),
    ],
    ids=["same", "near-tie", "tie", "edited token", "edited after recording", "another ending"],
)
def test_golden_verdict(
    make_run: Any, golden: str | None, scored: float | None, kind: Kind, reason: Reason | None
) -> None:
    run = recorded(make_run, golden, scored=scored)
    judged = run.analysis().golden_verdict("list-0")
    assert judged is not None
    assert (judged.verdict.kind, judged.verdict.reason) == (kind, reason)
    assert judged.names == ("baseline", "golden")


def test_without_a_golden_there_is_no_verdict(make_run: Any) -> None:
    run = make_run()
    run.says("baseline", "list-0", TEXT)
    assert run.analysis().golden_verdict("list-0") is None


def candidate(run: Any) -> GoldenFile:
    found = GoldenCheck(run.analysis()).candidate("list-0")
    assert found is not None
    return found


def test_a_candidate_is_what_the_baseline_says(make_run: Any) -> None:
    found = candidate(recorded(make_run))
    assert (found.output.text, found.output.finish_reason, found.output.finish_matched) == (TEXT, "stop", 1)
    assert (found.provenance.engine, found.provenance.version) == ("sglang", "0.5.19")
    assert found.input == "Question list-0:"
    run = make_run(folder="silent")
    assert GoldenCheck(run.analysis()).candidate("list-0") is None


def with_output(golden: GoldenFile, run: Any, text: str, **change: Any) -> str:
    return replace(golden, output=replace(golden.output, token_ids=run.ids(text), text=text, **change)).dumps()


def test_a_golden_on_disk_holds_or_not(make_run: Any) -> None:
    run = recorded(make_run, FLIPPED, scored=0.0625)
    check, now = GoldenCheck(run.analysis()), candidate(run)
    assert check.holds(now.dumps(), now.dumps())
    assert check.holds(now.dumps(), with_output(now, run, FLIPPED)), "a near-tie in today's eyes"
    assert not check.holds(now.dumps(), with_output(now, run, TEXT.replace("five", "nine"))), "edited, never scored"
    assert not check.holds(now.dumps(), with_output(now, run, TEXT, finish_reason="length", finish_matched=None))
    assert not check.holds(now.dumps(), "{ damaged")
    assert not check.holds(now.dumps(), replace(now, prompt="copy-0").dumps())
    other = replace(now, provenance=replace(now.provenance, prompt="another request"))
    assert not check.holds(now.dumps(), other.dumps()), "recorded for other sampling parameters"


def test_an_edited_token_that_was_scored_fails(make_run: Any) -> None:
    run = recorded(make_run, FLIPPED, scored=3.0)
    now = candidate(run)
    assert not GoldenCheck(run.analysis()).holds(now.dumps(), with_output(now, run, FLIPPED))


def test_strict_does_not_accept_a_fork(make_run: Any) -> None:
    fork = TEXT[:40] + "an ending of its own"
    run = recorded(make_run, fork, scored=0.0625)
    now = candidate(run)
    on_disk = with_output(now, run, fork)
    assert GoldenCheck(run.analysis()).holds(now.dumps(), on_disk)
    assert not GoldenCheck(run.analysis(), strict=True).holds(now.dumps(), on_disk)


# ----------------------------------------------------------------------------- writing
class Snapshot:
    """Stands for syrupy's: writes when updating, else compares by the check."""

    def __init__(self, folder: Path, check: GoldenCheck, updating: bool) -> None:
        self.folder, self.check, self.updating, self.name = folder, check, updating, ""

    def __call__(self, *, name: str) -> "Snapshot":
        self.name = name
        return self

    def __eq__(self, text: object) -> bool:
        path = self.folder / f"{self.name}.json"
        if path.is_file() and self.check.holds(str(text), path.read_text()):
            return True
        if self.updating:
            path.write_text(str(text))
        return self.updating

    __hash__ = None  # type: ignore[assignment]


def fixture(run: Any, folder: Path, notes: list[str], *, updating: bool) -> GoldenFixture:
    folder.mkdir(exist_ok=True)
    check = GoldenCheck(run.analysis())
    return GoldenFixture(check, Snapshot(folder, check, updating), folder, updating, notes.append)


def test_writing_keeping_and_comparing(make_run: Any, tmp_path: Path) -> None:
    run, folder, notes = recorded(make_run), tmp_path / "golden", []
    fixture(run, folder, notes, updating=True).compare("list-0")
    fixture(run, folder, notes, updating=True).compare("list-0")
    assert notes == ["written:list-0", "kept:list-0"]
    assert (folder / "list-0.json").read_text() == candidate(run).dumps()
    fixture(run, folder, notes, updating=False).compare("list-0")
    assert len(notes) == 2


def test_nothing_is_written_that_is_not_proven(make_run: Any, tmp_path: Path) -> None:
    run, notes = make_run(), []
    run.says("baseline", "list-0", TEXT)
    run.says("nextn", "list-0", FLIPPED)
    with pytest.raises(pytest.fail.Exception, match="nothing is proven"):
        fixture(run, tmp_path / "golden", notes, updating=True).compare("list-0")
    assert notes == ["refused:list-0"]
    assert list((tmp_path / "golden").iterdir()) == []


def test_what_a_failed_comparison_says(make_run: Any, tmp_path: Path) -> None:
    run, folder = recorded(make_run, FLIPPED, scored=3.0), tmp_path / "golden"
    folder.mkdir()
    compare = fixture(run, folder, [], updating=False).compare
    with pytest.raises(pytest.skip.Exception, match="no goldens recorded yet"):
        compare("list-0")
    (folder / "copy-0.json").write_text("{}")
    with pytest.raises(pytest.fail.Exception, match="there is no golden"):
        compare("list-0")
    path = folder / "list-0.json"
    path.write_bytes(b"\xff")
    with pytest.raises(pytest.fail.Exception, match=r"list-0\.json is damaged"):
        compare("list-0")
    path.write_text(with_output(candidate(run), run, FLIPPED))
    with pytest.raises(pytest.fail.Exception, match=r"divergent \(gap\)[\s\S]*written by sglang 0\.5\.19"):
        compare("list-0")
    now = candidate(run)
    path.write_text(replace(now, provenance=replace(now.provenance, prompt="other")).dumps())
    with pytest.raises(pytest.fail.Exception, match="was recorded for another request"):
        compare("list-0")


def test_no_answer_is_inconclusive(make_run: Any, tmp_path: Path) -> None:
    run, notes = make_run(), []
    with pytest.raises(pytest.fail.Exception, match="inconclusive, the baseline gave no answer"):
        fixture(run, tmp_path / "golden", notes, updating=False).compare("list-0")
    with pytest.raises(pytest.fail.Exception, match="was not written"):
        fixture(run, tmp_path / "golden", notes, updating=True).compare("list-0")
    assert notes == ["refused:list-0"]


# --------------------------------------------------------------------- accept lengths
class AcceptanceSnapshot(Snapshot):
    """As syrupy with GoldenExtension: compares by whatever the fixture put on the class."""

    def __eq__(self, text: object) -> bool:
        path = self.folder / f"{self.name}.json"
        compare = GoldenExtension.compare
        assert compare is not None
        if path.is_file() and compare(str(text), path.read_text()):
            return True
        if self.updating:
            path.write_text(str(text))
        return self.updating

    __hash__ = None  # type: ignore[assignment]


def test_accept_lengths_are_written_compared_and_explained(make_run: Any, tmp_path: Path) -> None:
    before = GoldenExtension.compare  # another test of this process may have set it
    run, folder, notes = recorded(make_run), tmp_path / "golden", []
    folder.mkdir()
    check = GoldenCheck(run.analysis())

    def compare(length: float, *, updating: bool = False) -> None:
        fixture = GoldenFixture(check, AcceptanceSnapshot(folder, check, updating), folder, updating, notes.append)
        fixture.compare_acceptance("nextn", {"list": Acceptance(1, round(length * 100), 100, 0)})

    with pytest.raises(pytest.skip.Exception):
        compare(3.0)
    compare(3.0, updating=True)
    compare(3.1, updating=True)
    assert notes == ["written:_acceptance-nextn", "kept:_acceptance-nextn"]
    assert '"accept_length": 3.0' in (folder / "_acceptance-nextn.json").read_text()
    compare(2.9)
    with pytest.raises(pytest.fail.Exception, match=r"left its golden band[\s\S]*list: fell to 1\.50 from 3\.00"):
        compare(1.5)
    (folder / "_acceptance-nextn.json").write_text("{")
    with pytest.raises(pytest.fail.Exception, match="is damaged"):
        compare(3.0)
    assert GoldenExtension.compare is before, "put back"


def test_accept_lengths_of_an_unproven_variant_are_not_written(make_run: Any, tmp_path: Path) -> None:
    run, notes = make_run(), []
    run.says("baseline", "list-0", TEXT)
    run.says("nextn", "list-0", FLIPPED)
    with pytest.raises(pytest.fail.Exception, match="1 prompts are not proven"):
        fixture(run, tmp_path / "golden", notes, updating=True).compare_acceptance(
            "nextn", run.analysis().acceptance("nextn")
        )
    assert notes == ["refused:_acceptance-nextn"]


def test_a_known_issue_is_no_proof_either(make_run: Any, tmp_path: Path) -> None:
    """The variant diverges as this SGLang version is known to: expected, and still nothing is written."""
    run, notes = make_run({"list-0": Sampling(96, min_new_tokens=60)}, groups={"list-0": "params"}), []
    run.says("baseline", "list-0", TEXT * 3)
    run.says("nextn", "list-0", TEXT)
    with pytest.raises(pytest.xfail.Exception, match=r"is not written: nextn: min_new_tokens .* #28179"):
        fixture(run, tmp_path / "golden", notes, updating=True).compare("list-0")
    assert notes == ["refused:list-0"]
    assert list((tmp_path / "golden").iterdir()) == []


def test_another_prompt_set_leaves_the_usual_accept_lengths_alone(make_run: Any, tmp_path: Path) -> None:
    """Its categories hold other prompts: they are compared with a file of their own, and never overwrite the other."""
    run, folder, notes = make_run({"list-0": Sampling(96)}, prompt_set="quick"), tmp_path / "golden", []
    for server in ("baseline", "nextn"):
        run.says(server, "list-0", TEXT)
    folder.mkdir()
    usual = folder / "_acceptance-nextn.json"
    usual.write_text('{"all": {"accept_length": 9.0, "verify_steps": 999}}')
    check = GoldenCheck(run.analysis())

    def compare(*, updating: bool, length: int = 300) -> None:
        fixture = GoldenFixture(check, AcceptanceSnapshot(folder, check, updating), folder, updating, notes.append)
        fixture.compare_acceptance("nextn", {"list": Acceptance(1, length, 100, 0)})

    with pytest.raises(pytest.skip.Exception, match="prompt set quick"):
        compare(updating=False)
    compare(updating=True)
    compare(updating=False)
    with pytest.raises(pytest.fail.Exception, match="left its golden band"):
        compare(updating=False, length=150)
    assert notes == ["written:_acceptance-nextn.quick"]
    assert '"accept_length": 9.0' in usual.read_text()


@pytest.mark.parametrize(("backend", "unproven"), [("xgrammar", ["json-0"]), (None, [])])
def test_a_prompt_that_cannot_be_asked_keeps_nothing_back(
    make_run: Any, backend: str | None, unproven: list[str]
) -> None:
    run = make_run({"list-0": Sampling(96), "json-0": Sampling(96, json_schema="{}")})
    for server in ("baseline", "nextn"):
        run.server(server, grammar_backend=backend)
        run.says(server, "list-0", TEXT)
    assert GoldenCheck(run.analysis()).unproven() == unproven
