"""``lossless golden diff``: what a reviewer is told of every kind of change, and where the two sides are read from."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from syrupy.assertion import SnapshotAssertion
from typer.testing import CliRunner

from lossless.commands import golden as command
from lossless.errors import UsageError
from lossless.golden import GoldenFile, Provenance
from lossless.golden.acceptance import GoldenAcceptance, dumps
from lossless.golden.diff import Change, GoldenChange, diff
from lossless.golden.files import GoldenOutput
from lossless.golden.revisions import read_side
from lossless.prompts import Tokenizer
from lossless.reference.builtin import builtin_path

TARGET = builtin_path() / "target"
TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."
EOS = 1


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_folder(TARGET)


def golden(tokenizer: Tokenizer, text: str = TEXT, name: str = "list-0", **provenance: Any) -> GoldenFile:
    return GoldenFile(
        prompt=name,
        category="list",
        input="List the numbers.",
        output=GoldenOutput(text, (*tokenizer.encode_text(text), EOS), "stop", EOS),
        provenance=Provenance(
            **{
                "engine": "sglang",
                "version": "0.5.19",
                "dtype": "bfloat16",
                "model": None,
                "tokenizer": tokenizer.digest,
                "prompt": "p",
                "arguments": {"page_size": 1},
                **provenance,
            }
        ),
    )


def said(base: GoldenFile, **output: Any) -> GoldenFile:
    return replace(base, output=replace(base.output, **output))


def one(old: GoldenFile | bytes | None, new: GoldenFile | bytes | None, name: str = "list-0") -> GoldenChange:
    sides = []
    for side in (old, new):
        content = side.dumps().encode() if isinstance(side, GoldenFile) else side
        sides.append({} if content is None else {f"tiny/{name}.json": content})
    (found,) = diff(*sides).prompts
    return found


def test_changes_that_touch_no_token(tokenizer: Tokenizer) -> None:
    base = golden(tokenizer)
    assert one(base, base).change is Change.UNCHANGED
    newer = golden(tokenizer, version="0.5.20", arguments={"page_size": 64})
    found = one(base, newer)
    assert (found.change, found.detail) == (Change.PROVENANCE, "version, page_size")
    assert found.fields == (("version", "0.5.19", "0.5.20"), ("page_size", "1", "64"))
    rewritten = json.dumps(json.loads(base.dumps())).encode()
    assert one(base, rewritten).detail == "only how the file is written"
    assert one(base, replace(base, input="List them.")).detail == "input"


def test_added_removed_and_damaged(tokenizer: Tokenizer) -> None:
    base = golden(tokenizer)
    count = len(base.output.token_ids)
    assert (one(None, base).change, one(None, base).detail) == (Change.ADDED, f"{count} tokens")
    assert one(base, None).change is Change.REMOVED
    assert one(base, b"{").change is Change.DAMAGED
    assert one(b"\xff", base).detail.startswith("old: the golden file tiny/list-0.json is damaged")
    assert one(base, replace(base, prompt="copy-0")).change is Change.DAMAGED


def test_a_fork_says_where(tokenizer: Tokenizer) -> None:
    base = golden(tokenizer)
    new = golden(tokenizer, TEXT[:40] + "an ending of its own, quite another one.")
    found = one(base, new)
    pairs = zip(base.output.token_ids, new.output.token_ids, strict=False)
    at = next(k for k, (a, b) in enumerate(pairs) if a != b)
    assert (found.change, found.position) == (Change.FORKED, at)
    sizes = len(base.output.token_ids), len(new.output.token_ids)
    assert found.detail == f"at position {at} of {sizes[0]}; {sizes[0]} tokens became {sizes[1]}"


def test_a_change_that_reconverges(tokenizer: Tokenizer) -> None:
    found = one(golden(tokenizer), golden(tokenizer, TEXT.replace("three", "nine").replace("four", "eight")))
    assert found.change is Change.RECONVERGES
    assert "the last" in found.detail
    assert "tokens are equal" in found.detail


def test_same_text_from_other_tokens(tokenizer: Tokenizer) -> None:
    base = golden(tokenizer)
    ids = list(base.output.token_ids)
    ids[3:4] = [7, 8]
    found = one(base, said(base, token_ids=tuple(ids)))
    assert (found.change, found.position) == (Change.RETOKENIZED, 3)


def test_an_output_that_ends_elsewhere(tokenizer: Tokenizer) -> None:
    base = golden(tokenizer)
    cut = said(base, token_ids=base.output.token_ids[:10], text=TEXT[:30], finish_reason="length", finish_matched=None)
    found = one(base, cut)
    fewer = len(base.output.token_ids) - 10
    assert found.change is Change.LENGTH
    assert found.detail == (f"{fewer} tokens fewer at the end ({fewer + 10} became 10); finish stop (1) became length")
    assert one(cut, base).detail.startswith(f"{fewer} tokens more at the end")


def test_finish_and_text_alone(tokenizer: Tokenizer) -> None:
    base = golden(tokenizer)
    found = one(base, said(base, finish_matched=0))
    assert (found.change, found.detail) == (Change.FINISH, "finish stop (1) became stop (0)")
    assert one(base, said(base, text=TEXT + " ")).change is Change.TEXT


def test_another_request_is_not_called_a_fork(tokenizer: Tokenizer) -> None:
    base = golden(tokenizer)
    same = one(base, golden(tokenizer, prompt="q"))
    assert (same.change, same.detail) == (
        Change.REQUEST,
        "recorded for other prompt tokens or sampling; the output is the same",
    )
    assert one(base, golden(tokenizer, TEXT[:20], prompt="q")).change is Change.REQUEST


def test_accept_lengths() -> None:
    def files(**lengths: float) -> dict[str, bytes]:
        rows = {k: GoldenAcceptance(v, 400) for k, v in lengths.items()}
        return {"tiny/_acceptance-nextn.json": dumps(rows).encode()}

    found = diff(files(same=3.0, near=3.0, far=3.0, gone=2.0), files(same=3.0, near=2.8, far=1.5, born=2.0))
    assert [(b.category, b.old, b.new, b.inside) for b in found.bands] == [
        ("born", None, 2.0, False),
        ("far", 3.0, 1.5, False),
        ("gone", 2.0, None, False),
        ("near", 3.0, 2.8, True),
    ]
    assert found.changed
    assert not diff(files(same=3.0), files(same=3.0)).changed
    assert diff({}, files(same=3.0)).notes == ("accept lengths of tiny/nextn: added",)
    assert "damaged" in diff(files(same=3.0), {"tiny/_acceptance-nextn.json": b"{"}).notes[0]
    assert diff({"tiny/_notes.json": b"1"}, {}).prompts == ()


# -------------------------------------------------------------------------------- sides
def git(folder: Path, *args: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits: the second is an upgrade that changed three of five goldens."""
    folder = tmp_path / "repository"
    tiny = folder / "golden" / "tiny"
    tiny.mkdir(parents=True)
    monkeypatch.chdir(folder)
    git(folder, "init", "--quiet")

    def write(**goldens: GoldenFile) -> None:
        for name, value in goldens.items():
            (tiny / f"{name}.json").write_text(replace(value, prompt=name).dumps(), encoding="utf-8")

    base = golden(tokenizer)
    write(same=base, fork=base, flip=base, short=base, old=base)
    bands = {"list": GoldenAcceptance(3.0, 400), "story": GoldenAcceptance(2.0, 400)}
    (tiny / "_acceptance-nextn.json").write_text(dumps(bands))
    (folder / "golden" / "README.md").write_text("not a golden")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    new = {"version": "0.5.20", "arguments": {"page_size": 64}}
    write(
        fork=golden(tokenizer, TEXT[:40] + "an ending of its own | with `ticks` and <b>tags</b>.", **new),
        flip=golden(tokenizer, TEXT.replace("three", "nine"), **new),
        born=golden(tokenizer, "1, 2, 3.", **new),
        short=said(golden(tokenizer, **new), finish_matched=0),
    )
    (tiny / "old.json").unlink()
    bands["story"] = GoldenAcceptance(1.2, 400)
    (tiny / "_acceptance-nextn.json").write_text(dumps(bands))
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "two")
    return folder


def test_only_goldens_are_read(repository: Path) -> None:
    before = read_side("HEAD", Path("golden")).files
    (repository / "golden" / "notes.json").write_text("{}")
    (repository / "golden" / "tiny" / "deep").mkdir()
    (repository / "golden" / "tiny" / "deep" / "x.json").write_text("{}")
    (repository / "golden" / "tiny" / "link.json").symlink_to("same.json")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "three")
    assert read_side("HEAD", Path("golden")).files == before
    now = read_side("golden", Path("golden"))
    assert (sorted({*now.files} - {*before}), now.profile) == (["tiny/link.json"], None)


def test_a_revision_is_what_was_committed(repository: Path) -> None:
    before, after = (read_side(r, Path("golden")) for r in ("HEAD~1", "HEAD"))
    assert sorted(before.files) == [
        f"tiny/{n}.json" for n in ("_acceptance-nextn", "flip", "fork", "old", "same", "short")
    ]
    now = read_side("golden", Path("golden"))
    assert now.files == after.files
    assert now.profile is None
    (repository / "golden" / "tiny" / "same.json").unlink()
    assert read_side("HEAD", Path("golden")).files == after.files, "the working tree is not looked at"
    assert read_side("golden/tiny", Path("golden")).profile == "tiny"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no-such-branch", "neither a folder nor a git revision"),
        ("--output=x", "neither a folder nor a git revision"),
        ("HEAD; touch x", "neither a folder nor a git revision"),
        ("HEAD:golden", "neither a folder nor a git revision"),
    ],
)
def test_what_is_no_revision(repository: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_side(text, Path("golden"))
    assert sorted(p.name for p in repository.iterdir()) == [".git", "golden"]


def test_where_there_is_nothing_to_read(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no goldens in 'HEAD'"):
        read_side("HEAD", Path("elsewhere"))
    with pytest.raises(UsageError, match="neither a folder nor a git revision"):
        read_side("HEAD", tmp_path / "golden")
    with pytest.raises(UsageError, match="there is no folder"):
        read_side("HEAD", tmp_path / "absent" / "golden")
    assert repository.is_dir()


# ------------------------------------------------------------------------------- command
def invoke(*args: str) -> Any:
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    command.register(app)
    app.callback()(lambda: None)
    return CliRunner().invoke(app, ["golden", "diff", *args], env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--markdown",),
        ("--prompt", "fork"),
        ("--prompt", "flip", "--markdown"),
        ("--tokens", "--tokenizer", "x"),
        ("--json",),
    ],
    ids=["table", "markdown", "prompt", "prompt-markdown", "tokens", "json"],
)
def test_what_a_reviewer_reads(more: tuple[str, ...], snapshot: SnapshotAssertion) -> None:
    words = [str(TARGET) if word == "x" else word for word in more]
    result = invoke("HEAD~1", "HEAD", *words)
    assert result.exit_code == 0, result.exception
    assert plain(result.output) == snapshot


@pytest.mark.usefixtures("repository")
def test_without_a_tokenizer_ids_are_shown(snapshot: SnapshotAssertion) -> None:
    tiny = Path("golden/tiny")
    tiny.rename("golden/own")
    git(Path(), "add", "-A")
    git(Path(), "commit", "--quiet", "-m", "renamed")
    for name, text in (("fork", "x"),):
        path = Path("golden/own") / f"{name}.json"
        path.write_text(path.read_text().replace("an ending of its own", f"an {text} of its own"))
    result = invoke("HEAD", "--prompt", "fork")
    assert result.exit_code == 0
    assert plain(result.output) == snapshot


@pytest.mark.usefixtures("repository")
def test_the_golden_folder_is_the_new_side_unless_told() -> None:
    assert "nothing that is compared changed" in invoke("HEAD").output
    assert invoke("HEAD", "--exit-code").exit_code == 0
    assert invoke("HEAD~1", "--exit-code").exit_code == 1
    assert invoke("HEAD~1").exit_code == 0
    data = json.loads(invoke("HEAD~1", "--json", "--prompt", "flip").output)
    assert [p["prompt"] for p in data["prompts"]] == ["flip"]


@pytest.mark.usefixtures("repository")
def test_profiles(tokenizer: Tokenizer) -> None:
    other = Path("golden/other")
    other.mkdir()
    (other / "same.json").write_text(golden(tokenizer, TEXT[:30], "same").dumps(), encoding="utf-8")
    assert json.loads(invoke("HEAD", "--json").output)["counts"] == {"unchanged": 5, "added": 1}
    limited = json.loads(invoke("HEAD", "--json", "--profile", "tiny").output)
    assert limited["counts"] == {"unchanged": 5}
    across = json.loads(invoke("golden/tiny", "golden/other", "--json").output)
    assert across["counts"] == {"length": 1, "removed": 4} or across["counts"] == {"forked": 1, "removed": 4}
    result = invoke("HEAD", "--profile", "absent")
    assert isinstance(result.exception, UsageError)
    assert "there are: other, tiny" in str(result.exception)


@pytest.mark.usefixtures("repository")
def test_wrong_arguments() -> None:
    for args, message in (
        (("HEAD", "--prompt", "absent"), "neither side has a golden of prompt 'absent'"),
        (("HEAD", "--json", "--markdown"), "choose one"),
        (("nowhere",), "neither a folder nor a git revision"),
    ):
        result = invoke(*args)
        assert isinstance(result.exception, UsageError)
        assert message in str(result.exception)


@pytest.mark.usefixtures("repository")
def test_markdown_cannot_be_broken_out_of() -> None:
    output = invoke("HEAD~1", "HEAD", "--markdown", "--tokens").output
    row = next(line for line in output.splitlines() if "tags" in line)
    assert "<b>" not in row or "`" in row.partition("<b>")[0], "only inside a code span"
    for line in output.splitlines():
        cells = line.replace("&#124;", "").replace("\\|", "").count("|")
        assert cells in (0, 3, 5, 6, 8), line
