"""Stop, count and text rules: each broken once, and kept by what an honest server says."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import EOS, RULES, ended, said, spell

from lossless.verdict import Finish, Reason, StopRules, Transcript, expected_text, violations

OTHER = 7  # a stop token asked for
ASKED = replace(RULES, stop_token_ids=(OTHER,))
STRINGS = replace(RULES, stop=("END", "中"))
FOUR = replace(RULES, max_new_tokens=4)
HAN = "中".encode()  # three bytes, three tokens


@dataclass(frozen=True)
class Rule:
    """A transcript, its rules, and the reasons of what it breaks with a part of the message (none: it keeps all)."""

    name: str
    said: Transcript
    rules: StopRules
    reason: Reason | None = None
    says: str = ""


KEPT = (
    Rule("stops at EOS", said(ended("abc")), RULES),
    Rule("EOS alone", said((EOS,)), RULES),
    Rule("stops at the cap", said(b"abcd"), FOUR),
    Rule("EOS as the last token of the cap", said(ended("abc")), FOUR),
    Rule("a stop token asked for", said((*b"abc", OTHER), Finish("stop", OTHER), text="abc"), ASKED),
    Rule(
        "a stop token asked for, kept in the text",
        said((*b"abc", OTHER), Finish("stop", OTHER)),
        replace(ASKED, no_stop_trim=True),
    ),
    Rule("EOS where it is ignored", said((97, EOS, 98, 99)), replace(FOUR, ignore_eos=True)),
    Rule("a stop string", said(b"abEND", Finish("stop", "END"), text="ab"), STRINGS),
    Rule("a stop string kept", said(b"abEND", Finish("stop", "END")), replace(STRINGS, no_stop_trim=True)),
    Rule(
        "a stop string as the last token of the cap",
        said(b"aEND", Finish("stop", "END"), text="a"),
        replace(STRINGS, max_new_tokens=4),
    ),
    Rule("a multi-byte stop string", said((*b"ab", *HAN), Finish("stop", "中"), text="ab"), STRINGS),
    Rule("most of a stop string at the cap", said(b"abEN"), replace(STRINGS, max_new_tokens=4)),
    Rule("min_new_tokens reached", said(ended("abc")), replace(RULES, min_new_tokens=3)),
    Rule("min_new_tokens above the cap", said(b"abcd"), replace(FOUR, min_new_tokens=9)),
    Rule("a whole character at the end", said((97, *HAN), text="a中"), FOUR),
    Rule("half a character at the cap, shown", said((*b"ab", *HAN[:2]), text="ab\ufffd"), FOUR),
    Rule("half a character at the cap, held back", said((*b"ab", *HAN[:2]), text="ab"), FOUR),
    Rule("half a character before EOS", said((97, *HAN[:2], EOS), text="a"), RULES),
    Rule(
        "EOS shown in the text",
        said(ended("abc"), text="abc\0"),
        replace(RULES, no_stop_trim=True, skip_special_tokens=False),
    ),
    Rule("a matched stop that is not named", said(ended("abc"), Finish("stop")), RULES),
)
BROKEN = (
    Rule("token after EOS", said((*ended("ab"), 99), Finish("stop", 99)), RULES, Reason.STOP, "1 tokens follow"),
    Rule(
        "token after EOS, finish length",
        said((*ended("ab"), 99)),
        FOUR,
        Reason.STOP,
        "1 tokens follow the stop token 0 at position 2",
    ),
    Rule(
        "token after a stop token",
        said((97, OTHER, 98, 99)),
        replace(ASKED, max_new_tokens=4),
        Reason.STOP,
        "2 tokens follow",
    ),
    Rule(
        "EOS before min_new_tokens",
        said(ended("abc")),
        replace(RULES, min_new_tokens=4),
        Reason.STOP,
        "min_new_tokens is 4",
    ),
    Rule(
        "EOS, but finish is length",
        said((*b"abc", EOS), Finish("length")),
        FOUR,
        Reason.STOP,
        "is a stop token, but finish is length",
    ),
    Rule("too many tokens", said(b"abcde"), FOUR, Reason.STOP, "5 tokens, but max_new_tokens is 4"),
    Rule("stop without a token", said((), Finish("stop", EOS)), RULES, Reason.STOP, "without any token"),
    Rule("stop without a stop token", said(b"abc", Finish("stop")), RULES, Reason.STOP, "no stop token was emitted"),
    Rule(
        "stop at an unknown token",
        said(b"abc", Finish("stop", 99), text="ab"),
        RULES,
        Reason.STOP,
        "no stop token was emitted",
    ),
    Rule("stop at another token", said(b"abc", Finish("stop", EOS)), RULES, Reason.STOP, "the last token is 99"),
    Rule("aborted", said(ended("ab"), Finish("abort")), RULES, Reason.STOP, "finish reason is abort"),
    Rule("length too early", said(b"abc"), FOUR, Reason.LENGTH, "length after 3 of 4 tokens"),
    Rule("miscounted", said(ended("ab"), completion_tokens=2), RULES, Reason.LENGTH, "says 2, but there are 3 ids"),
    Rule(
        "tokens after the stop string",
        said(b"abENDx", Finish("stop", "END"), text="ab"),
        STRINGS,
        Reason.STOP,
        "tokens follow the stop string 'END'",
    ),
    Rule(
        "tokens after a multi-byte stop string",
        said((*HAN, 97), Finish("stop", "中"), text=""),
        STRINGS,
        Reason.STOP,
        "tokens follow",
    ),
    Rule(
        "the stop string, but finish is length",
        said(b"aEND"),
        replace(STRINGS, max_new_tokens=4),
        Reason.STOP,
        "spells the stop string 'END', but finish is length",
    ),
    Rule("the stop string, but finish is EOS", said(ended("aEND"), text="aEND"), STRINGS, Reason.STOP, "tokens follow"),
    Rule(
        "a stop string nobody asked for",
        said(b"abX", Finish("stop", "X"), text="ab"),
        STRINGS,
        Reason.STOP,
        "but the stop strings are",
    ),
    Rule(
        "a stop string that is not there", said(b"abc", Finish("stop", "END")), STRINGS, Reason.STOP, "do not spell it"
    ),
    Rule("text too long", said(ended("abc"), text="abcd"), RULES, Reason.TEXT, "first difference at character 3"),
    Rule("text too short", said(ended("abc"), text="ab"), RULES, Reason.TEXT, "first difference at character 2"),
    Rule(
        "the stop string left in the text", said(b"abEND", Finish("stop", "END")), STRINGS, Reason.TEXT, "character 2"
    ),
    Rule(
        "text past the stop string cut too early",
        said(b"abEND", Finish("stop", "END"), text="a"),
        STRINGS,
        Reason.TEXT,
        "character 1",
    ),
    Rule(
        "a lost character in the middle",
        said((97, *HAN, 98), text="ab"),
        replace(RULES, max_new_tokens=5),
        Reason.TEXT,
        "character 1",
    ),
    Rule("a lost whole character at the end", said((97, *HAN), text="a"), FOUR, Reason.TEXT, "character 1"),
    Rule(
        "a broken character in the middle",
        said((97, *HAN, 98), text="a\ufffdb"),
        replace(RULES, max_new_tokens=5),
        Reason.TEXT,
        "character 1",
    ),
)


@pytest.mark.parametrize("rule", KEPT, ids=lambda r: r.name.replace(" ", "-"))
def test_kept(rule: Rule) -> None:
    assert violations(rule.said, rule.rules, spell) == ()


@pytest.mark.parametrize("rule", BROKEN, ids=lambda r: r.name.replace(" ", "-"))
def test_broken(rule: Rule) -> None:
    found = violations(rule.said, rule.rules, spell)
    assert any(v.reason is rule.reason and rule.says in v.message for v in found), found


def test_without_a_tokenizer_only_ids_are_looked_at() -> None:
    leaked = said(b"abENDx", Finish("stop", "END"), text="nonsense")
    assert violations(leaked, STRINGS, None) == ()
    assert violations(said((*ended("ab"), 99), Finish("stop", 99)), RULES, None) != ()


@given(st.text(alphabet="ab中é😀", max_size=12), st.integers(0, 40))
@settings(deadline=None, max_examples=100)
def test_an_output_cut_anywhere_keeps_the_text_rule(text: str, cut: int) -> None:
    """Also in the middle of a character, shown as a replacement mark or held back."""
    ids = tuple(text.encode()[:cut])
    rules = replace(RULES, max_new_tokens=max(1, len(ids)))
    shown = said(ids, Finish("length"))
    held_back = replace(shown, text=shown.text.rstrip("\ufffd"))
    for transcript in (shown, held_back):
        assert [v for v in violations(transcript, rules, spell) if v.reason is Reason.TEXT] == []


@given(st.text(alphabet="ab中é😀", min_size=1, max_size=12), st.integers(0, 11))
@settings(deadline=None, max_examples=100)
def test_a_lost_character_never_goes_unseen(text: str, where: int) -> None:
    at = where % len(text)
    lost = said((*text.encode(), EOS), text=text[:at] + text[at + 1 :])
    found = violations(lost, RULES, spell)
    assert [v.reason for v in found] == [Reason.TEXT]


def test_expected_text_cuts_at_the_first_stop_string() -> None:
    twice = said(b"aENDbEND", Finish("stop", "END"))
    assert expected_text(twice, STRINGS, spell) == "a"
    assert expected_text(twice, replace(STRINGS, no_stop_trim=True), spell) == "aENDbEND"
    assert expected_text(said(ended("ab")), RULES, spell) == "ab"
