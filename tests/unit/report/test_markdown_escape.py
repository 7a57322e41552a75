"""Text stays text in markdown: no markup, no links, no mentions, no broken tables or fences."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.report.markdown import INVISIBLE, block, code, details, escape, number, table


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a | b", r"a \| b"),
        ("<script>", r"\<script>"),
        ("[x](javascript:y)", r"\[x\](javascript:y)"),
        ("![x](y)", r"!\[x\](y)"),
        ("`x` *y* _z_ ~w~ $m$", r"\`x\` \*y\* \_z\_ \~w\~ \$m\$"),
        ("two\r\nlines", "two lines"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("# title", r"\# title"),
        ("> quote", r"\> quote"),
        ("&lt;", r"\&lt;"),
        ("bell\x07", "bell�"),
        ("near-tie (forked)", "near-tie (forked)"),
    ],
)
def test_escape(text: str, shown: str) -> None:
    assert escape(text) == shown


@pytest.mark.parametrize("text", ["@octocat", "sgl-project/sglang#1", "#12", "GH-7", "https://a.b", "www.a.b"])
def test_nothing_is_mentioned_or_linked(text: str) -> None:
    assert escape(text).replace(INVISIBLE, "") in (text, f"\\{text}")
    assert INVISIBLE in escape(text)


@given(st.text())
def test_escaped_text_is_one_line_without_open_markup(text: str) -> None:
    line = escape(text)
    assert len(line.splitlines()) <= 1
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]<|~&$]", line)


@given(st.text())
def test_a_code_span_is_one_cell(text: str) -> None:
    span = code(text)
    assert len(span.splitlines()) <= 1
    assert "|" not in span
    if span.startswith("<code>"):
        assert not re.search(r"<(?!/?code>)", span)
    elif span:
        ticks = re.match(r"`+", span)
        assert ticks is not None
        assert not re.search(rf"(?<!`){ticks[0]}(?!`)", span[len(ticks[0]) : -len(ticks[0])])


@given(st.text(alphabet=st.sampled_from("`\n a")))
def test_a_block_ends_where_its_fence_ends(text: str) -> None:
    lines = block(text).split("\n")
    fence = lines[0]
    assert lines[-1] == fence
    assert "\n".join(lines[1:-1]) == text
    assert not any(line.strip().startswith(fence) for line in lines[1:-1])


def test_tables_and_details() -> None:
    assert table(["a", "n"], [[code("x"), number(0.12345)], ["", number(None)]], right=[1]) == (
        "| a | n |\n| --- | ---: |\n| `x` | 0.1235 |\n|  |  |"
    )
    assert details("a <b> & c", "body") == "<details><summary>a &lt;b&gt; &amp; c</summary>\n\nbody\n\n</details>"
