"""Long prompts: exact in the target's own tokens, the fact where it should be, the same ids every time."""

import hashlib
import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossless.errors import UsageError
from lossless.prompts import Haystack, LongContext, Prompt, Tokenizer, load_prompts
from lossless.prompts.haystack import MARK, MINIMUM_TOKENS, QUESTION, build, entries
from lossless.protocol.requests import Sampling
from lossless.reference.builtin import builtin_path

TINY = builtin_path() / "target"
TOKENIZER = Tokenizer.from_folder(TINY)
LONG = LongContext(lengths=(1024, 512), depths=(0.1, 0.9), max_new_tokens=24)
LONGEST_ENTRY = 90  # tokens; the fact stands at the entry's end that is nearest

haystacks = st.builds(Haystack, st.integers(MINIMUM_TOKENS, 3500), st.floats(0, 1).map(lambda x: round(x, 3)))


def digest(ids: tuple[int, ...]) -> str:
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:16]


@settings(deadline=None, max_examples=15)
@given(haystacks)
def test_the_length_is_exact_and_the_fact_is_there_once(haystack: Haystack) -> None:
    built = TOKENIZER.build(haystack)
    assert len(built.ids) == haystack.tokens
    start, end = built.fact
    text = TOKENIZER.decode(built.ids, False)
    assert haystack.password in TOKENIZER.decode(built.ids[start:end], False)
    assert text.count(haystack.password) == 1
    assert text.count(QUESTION) == 1
    assert text.endswith(TOKENIZER.render((), None))


@settings(deadline=None, max_examples=15)
@given(haystacks)
def test_the_fact_is_at_its_depth_between_two_entries(haystack: Haystack) -> None:
    built = TOKENIZER.build(haystack)
    start, end = built.fact
    empty = TOKENIZER.build(replace(haystack, depth=0.0)).fact[0]
    frame = len(TOKENIZER.encode_text(f"\n\n{TOKENIZER.render((), None)}{QUESTION}")) + empty + end - start
    assert abs(start - empty - haystack.depth * (haystack.tokens - frame)) <= LONGEST_ENTRY
    assert TOKENIZER.decode(built.ids[:start], False).endswith("\n\n")


def test_the_ids_never_change() -> None:
    """A change of the text is a change of every recorded long prompt: then these digests change too."""
    assert digest(TOKENIZER.build(Haystack(512, 0.5)).ids) == "75a31bc5de4432c5"
    assert digest(TOKENIZER.build(Haystack(2048, 0.9)).ids) == "a506a5b334c2f92d"
    assert Tokenizer.from_folder(TINY).build(Haystack(512, 0.5)) == TOKENIZER.build(Haystack(512, 0.5))


def test_no_two_prompts_begin_alike() -> None:
    shared = len(TOKENIZER.encode_text("The harbor register, volume ")) + 12
    built = [TOKENIZER.build(Haystack(n, d)).ids for n in (512, 1024, 2048) for d in (0.1, 0.5, 0.9)]
    for a, b in combinations(built, 2):
        assert a[:shared] != b[:shared]


def test_no_entry_occurs_twice() -> None:
    source = entries(512)
    found = [next(source) for _ in range(3000)]
    assert len({entry.partition("] ")[2] for entry in found}) > 0.98 * len(found)
    assert len(set(found)) == len(found)
    assert all(entry.startswith(f"[{k + 1}] ") and entry.isascii() for k, entry in enumerate(found))


@given(st.integers(400, 5000), st.floats(0, 1))
def test_any_tokenizer_gets_its_own_exact_length(tokens: int, depth: float) -> None:
    """One token a character: the coarsest there is to cut at, and the finest."""
    built = build(Haystack(tokens, depth), lambda text: tuple(map(ord, text)), f"<user>{MARK}{QUESTION}<end>")
    assert len(built.ids) == tokens
    text = "".join(map(chr, built.ids))
    assert text.startswith("<user>The harbor register")
    assert text.endswith(f"\n\n{QUESTION}<end>")
    assert text[slice(*built.fact)].startswith("[note] The password of the north gate is ")


def test_too_few_tokens_say_how_many_are_needed() -> None:
    with pytest.raises(UsageError, match=r"of 60 tokens is too short: .* take \d+ tokens"):
        TOKENIZER.build(Haystack(60, 0.5))


def test_a_template_that_hides_the_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((TINY / "tokenizer.json").read_bytes())
    (tmp_path / "chat_template.jinja").write_text("<|user|>nothing", encoding="utf-8")
    with pytest.raises(UsageError, match="does not show the user's text"):
        Tokenizer.from_folder(tmp_path).build(Haystack(512, 0.5))


def test_without_a_chat_template_it_is_plain_text(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((TINY / "tokenizer.json").read_bytes())
    tokenizer = Tokenizer.from_folder(tmp_path)
    built = tokenizer.build(Haystack(512, 0.5))
    text = tokenizer.decode(built.ids, False)
    assert len(built.ids) == 512
    assert text.startswith("The harbor register")
    assert text.endswith(f"{QUESTION}\n")


def test_sets_that_hold_built_prompts() -> None:
    ids = {
        n: [p.id for p in load_prompts(n, LONG).prompts if p.haystack] for n in ("quick", "standard", "long", "full")
    }
    every = ["needle-000512-10", "needle-000512-90", "needle-001024-10", "needle-001024-90"]
    assert ids == {"quick": [], "standard": [], "long": every, "full": every}
    stress = [p.id for p in load_prompts("stress", LONG).prompts if p.haystack]
    assert stress == ["needle-000512-10", "needle-001024-10"]
    assert load_prompts("full", LONG).prompts[-1].group == "order"
    assert load_prompts("long", LONG).digest != load_prompts("long", replace(LONG, depths=(0.5,))).digest


def test_a_built_prompt_is_encoded_like_any_other() -> None:
    prompt = next(p for p in load_prompts("long", LONG).prompts if p.id == "needle-001024-90")
    assert (prompt.group, prompt.category, prompt.sampling.max_new_tokens) == ("long", "needle", 24)
    assert len(TOKENIZER.encode(prompt)) == 1024
    assert prompt.expect == Haystack(1024, 0.9).password
    assert replace(prompt, expect="other").digest == prompt.digest
    assert replace(prompt, haystack=Haystack(1024, 0.1)).digest != prompt.digest


def test_built_and_written_input_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="has text and haystack"):
        Prompt(
            id="p", category="x", group="long", sampling=Sampling(1), subsets=(), text="a", haystack=Haystack(512, 0.5)
        )  # fmt: skip


def test_a_file_may_say_what_is_expected(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[prompt]]\nid = "a"\nuser = "Who?"\nexpect = "Nadia"\n[[prompt]]\nid = "b"\nsame_as = "a"\n', encoding="utf-8"
    )
    assert [p.expect for p in load_prompts(str(path)).prompts] == ["Nadia", "Nadia"]
