"""The HTML report as a file: one that asks for nothing and in which nothing a model said can act."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from lossless.commands import report as report_command
from lossless.errors import UsageError
from lossless.protocol import Sampling
from lossless.report.html import collect, render
from lossless.report.html.page import SCRIPTS, json_block, packed_block, visible

HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>\u2028\u202e\x00 & \"quotes\" 'too'"
MakeRun = Callable[..., Any]


class Page(HTMLParser):
    """Elements with their attributes, and the text of each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: list[tuple[str, dict[str, str | None], str]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.blocks.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:
            tag, attrs, text = self.blocks[-1]
            self.blocks[-1] = (tag, attrs, text + data)
        else:
            self.text += data


@pytest.fixture
def hostile(make_run: MakeRun) -> Any:
    """A run in which every text from outside is hostile."""
    run = make_run({"list-0": Sampling(96, stop=(HOSTILE,))}, target=HOSTILE, fault=HOSTILE, profile=HOSTILE)
    said = run.says("baseline", "list-0", HOSTILE)
    run.says("nextn", "list-0", (*said[:4], *said[3:]), text=HOSTILE + "!")
    run.server("nextn", version=HOSTILE, complete=False, problem=HOSTILE)
    return run


def test_hostile_texts_make_no_element(make_run: MakeRun, hostile: Any) -> None:
    plain = make_run(folder="plain")
    plain.says("nextn", "list-0", plain.says("baseline", "list-0", "1, 2, 3"))
    tags = {tag for tag, _ in Page(render(collect(plain.analysis()))).elements}
    page = Page(render(collect(hostile.analysis())))
    assert {tag for tag, _ in page.elements} - tags <= {"strong", "li", "ul", "br"}
    assert "img" not in {tag for tag, _ in page.elements}
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on") or name == "style"]
    assert "onerror=alert(1)" in page.text
    assert "\u202e" not in page.text
    assert "\x00" not in page.text


def test_data_blocks_come_back_as_they_were(hostile: Any) -> None:
    report = collect(hostile.analysis())
    blocks = {attrs["id"]: text for _, attrs, text in Page(render(report)).blocks if attrs.get("id")}
    assert json.loads(blocks["index"]) == json.loads(json.dumps(report.index))
    packed = json.loads(blocks["chunk-0"])
    assert json.loads(zlib.decompress(base64.b64decode(packed))) == json.loads(json.dumps(report.chunks[0]))


@pytest.mark.parametrize("text", [HOSTILE, "<!--", "]]>", "\ud800", "a\u2029b"])
def test_no_data_can_end_its_script_element(text: str) -> None:
    for block in (json_block({"text": text}), packed_block({"text": text})):
        assert not re.search(r"[<>&\u2028\u2029]", block)
    assert json.loads(json_block([text.replace("\ud800", "")])) == [text.replace("\ud800", "")]


def test_the_policy_allows_this_style_and_this_script_only(hostile: Any) -> None:
    page = Page(render(collect(hostile.analysis())))
    policy = next(a["content"] for t, a in page.elements if t == "meta" and a.get("http-equiv"))
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (text,) = [b for t, attrs, b in page.blocks if t == tag and "type" not in attrs]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"


def test_nothing_is_loaded_from_elsewhere(hostile: Any) -> None:
    page = Page(render(collect(hostile.analysis())))
    links = [value for _, attrs in page.elements for name, value in attrs.items() if name in ("src", "href", "action")]
    assert links
    assert all(value is not None and value.startswith("#") for value in links)
    assert "url(" not in next(text for tag, _, text in page.blocks if tag == "style")


def test_scripts_never_build_markup_from_text() -> None:
    folder = Path(report_command.__file__).parents[1] / "report" / "html"
    for name in SCRIPTS:
        script = (folder / name).read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", script), (
            name
        )


def test_tables_have_captions_and_headers(hostile: Any) -> None:
    text = render(collect(hostile.analysis()))
    for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
        assert "<caption" in table or "aria-labelledby" in table
        assert 'id="grid"' in table or 'scope="col"' in table


def test_invisible_characters_are_written_out() -> None:
    assert visible("a\x00b\u202ec\nd\te") == "a⟨U+0000⟩b⟨U+202E⟩c\nd\te"


# ------------------------------------------------------------------------------------------------ the command
@pytest.fixture
def app() -> typer.Typer:
    found = typer.Typer()
    found.callback()(lambda: None)
    report_command.register(found)
    return found


def test_the_command_writes_one_file_and_says_its_size(
    make_run: MakeRun, app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run()
    run.says("nextn", "list-0", run.says("baseline", "list-0", "1, 2, 3"))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["report", str(run.store.path)], catch_exceptions=False)
    written = tmp_path / "lossless-report.html"
    assert result.exit_code == 0
    assert re.fullmatch(r"lossless-report\.html \(\d+ KiB\)\n", result.output)
    assert written.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".lossless-report")] == []


def test_a_failed_write_leaves_the_old_file(make_run: MakeRun, app: typer.Typer, tmp_path: Path) -> None:
    run = make_run()
    run.says("nextn", "list-0", run.says("baseline", "list-0", "1, 2, 3"))
    for output in (tmp_path / "missing" / "report.html", tmp_path):
        with pytest.raises(UsageError, match="cannot write"):
            CliRunner().invoke(app, ["report", str(run.store.path), "-o", str(output)], catch_exceptions=False)


def test_what_is_no_run_is_a_usage_error(app: typer.Typer, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a recorded run"):
        CliRunner().invoke(app, ["report", str(tmp_path)], catch_exceptions=False)
