"""A user's own prompt file: what it can say, and what it is told when it is wrong."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.errors import UsageError
from lossless.prompts import Message, Prompt, PromptSet, load_prompts
from lossless.protocol.requests import Sampling


def load(folder: Path, content: str, name: str = "mine.toml") -> PromptSet:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return load_prompts(str(path))


def entry(**keys: str) -> str:
    return "[[prompt]]\n" + "\n".join(f"{key} = {value}" for key, value in keys.items()) + "\n"


def test_smallest_file(tmp_path: Path) -> None:
    prompts = load(tmp_path, '[[prompt]]\nid = "a"\nuser = "Hello"\n')
    assert prompts.name == "mine.toml"
    assert prompts.prompts == (
        Prompt(
            id="a",
            category="other",
            group="parity",
            sampling=Sampling(max_new_tokens=128),
            subsets=("quick", "standard", "full"),
            messages=(Message("user", "Hello"),),
        ),
    )


def test_json_lines(tmp_path: Path) -> None:
    prompts = load(tmp_path, '{"id": "a", "text": "x"}\n\n{"id": "b", "ids": [1, 2]}\n', "mine.jsonl").prompts
    assert [(prompt.id, prompt.text, prompt.ids) for prompt in prompts] == [("a", "x", None), ("b", None, (1, 2))]


def test_defaults_are_overlaid_key_by_key(tmp_path: Path) -> None:
    content = """
        [defaults]
        group = "stop"
        sampling = { max_new_tokens = 9, stop = ["x"] }
        [[prompt]]
        id = "a"
        text = "t"
        sampling = { max_new_tokens = 7 }
        """
    (prompt,) = load(tmp_path, content).prompts
    assert prompt.group == "stop"
    assert prompt.sampling == Sampling(max_new_tokens=7, stop=("x",))


def test_same_as_takes_input_and_sampling_over_the_defaults(tmp_path: Path) -> None:
    content = """
        [defaults]
        sampling = { max_new_tokens = 50 }
        [[prompt]]
        id = "a"
        user = "Hello"
        category = "greeting"
        thinking = false
        exact_tokens = 6
        stop_token_text = ["."]
        sampling = { max_new_tokens = 20 }
        [[prompt]]
        id = "b"
        same_as = "a"
        sampling = { min_new_tokens = 5 }
        """
    a, b = load(tmp_path, content).prompts
    assert (b.messages, b.category, b.thinking, b.exact_tokens) == (a.messages, "greeting", False, 6)
    assert (b.stop_token_texts, b.same_as) == ((".",), "a")
    assert b.sampling == Sampling(max_new_tokens=20, min_new_tokens=5)


def test_caps_and_lengths_make_one_prompt_for_each_value(tmp_path: Path) -> None:
    content = entry(id='"c"', text='"t"', caps="[1, 10, 100]") + entry(id='"n"', text='"t"', exact_tokens="[3, 4]")
    prompts = load(tmp_path, content).prompts
    assert [(prompt.id, prompt.sampling.max_new_tokens, prompt.exact_tokens) for prompt in prompts] == [
        ("c-001", 1, None),
        ("c-010", 10, None),
        ("c-100", 100, None),
        ("n-03", 128, 3),
        ("n-04", 128, 4),
    ]


def test_passages_come_first(tmp_path: Path) -> None:
    content = '[passages]\np = """\nOne.\n"""\n' + "".join(
        [
            entry(id='"a"', passage='"p"', repeat="2", user='"Why?"'),
            entry(id='"b"', passage='"p"', text='"Then"'),
            entry(id='"c"', passage='"p"'),
        ]
    )
    a, b, c = load(tmp_path, content).prompts
    assert a.messages == (Message("user", "One.\n\nOne.\n\nWhy?"),)
    assert (b.text, c.text) == ("One.\n\nThen", "One.")


WRONG = {
    "unknown key": (entry(id='"a"', usr='"x"'), r"mine.toml, prompt 1 \('a'\): unknown key 'usr'; allowed: id, user"),
    "unknown group": (entry(id='"a"', text='"x"', group='"loud"'), r"group: .*'loud'.*allowed: parity, short"),
    "unknown subset": (entry(id='"a"', text='"x"', subsets='["all"]'), r"subsets\[.*'all'.*allowed: quick, standard"),
    "wrong type": (entry(id='"a"', text="5"), r"\('a'\): text: Expected `str \| null`, got `int`"),
    "no id": (entry(text='"x"'), r"prompt 1: key 'id' is missing"),
    "id with slash": (entry(id='"../a"', text='"x"'), r"prompt id '../a' is not allowed"),
    "long id": (entry(id=f'"{"a" * 81}"', text='"x"'), r"is not allowed: use 1 to 80"),
    "category": (entry(id='"a"', text='"x"', category='"My Kind"'), r"category 'My Kind' is not allowed"),
    "same id twice": (entry(id='"a"', text='"x"') * 2, r"prompt 2 \('a'\): id 'a' is used by an earlier prompt"),
    "no input": (entry(id='"a"'), r"has no input: give exactly one of user, messages, text, ids"),
    "two inputs": (entry(id='"a"', text='"x"', user='"y"'), r"has user and text: give exactly one"),
    "empty ids": (entry(id='"a"', ids="[]"), r"ids: .*length >= 1"),
    "negative id": (entry(id='"a"', ids="[-1]"), r"ids\[.*>= 0"),
    "unknown sampling": (
        entry(id='"a"', text='"x"', sampling="{ top_p = 1.0 }"),
        r"sampling.top_p is unknown; allowed: ",
    ),
    "token id": (entry(id='"a"', text='"x"', sampling="{ stop_token_ids = [1] }"), r"use stop_token_text"),
    "sampling type": (entry(id='"a"', text='"x"', sampling='{ stop = "y" }'), r"sampling.stop: Expected `array`"),
    "sampling no table": (entry(id='"a"', text='"x"', sampling="3"), r"sampling must be a table of keys, got 3"),
    "temperature": (entry(id='"a"', text='"x"', sampling="{ temperature = 0.7 }"), r"temperature = 0.7.*only greedy"),
    "negative cap": (
        entry(id='"a"', text='"x"', sampling="{ max_new_tokens = -1 }"),
        r"max_new_tokens = -1.*0 or more",
    ),
    "min above max": (
        entry(id='"a"', text='"x"', sampling="{ max_new_tokens = 4, min_new_tokens = 5 }"),
        r"min_new_tokens = 5 is not allowed; allowed: 0 to max_new_tokens \(4\)",
    ),
    "penalty": (
        entry(id='"a"', text='"x"', sampling="{ frequency_penalty = nan }"),
        r"frequency_penalty = nan.*-2 to 2",
    ),
    "empty stop": (entry(id='"a"', text='"x"', sampling='{ stop = [""] }'), r"sampling.stop holds an empty string"),
    "schema": (entry(id='"a"', text='"x"', sampling='{ json_schema = "{" }'), r"json_schema is not JSON"),
    "same_as": (entry(id='"a"', same_as='"b"'), r"same_as = 'b' is not the id of an earlier prompt"),
    "passage": (entry(id='"a"', passage='"p"'), r"passage = 'p' is not in the file's \[passages\], which has: none"),
    "repeat": (entry(id='"a"', text='"x"', repeat="2"), r"repeat needs passage"),
    "passage with ids": (
        entry(id='"a"', ids="[1]", passage='"p"'),
        r"passage goes with user, with text or alone, not with ids",
    ),
    "zero length": (entry(id='"a"', text='"x"', exact_tokens="0"), r"exact_tokens: "),
    "caps twice": (entry(id='"a"', text='"x"', caps="[1, 1]"), r"caps has a value twice"),
    "two lists": (entry(id='"a"', text='"x"', caps="[1]", exact_tokens="[1]"), r"cannot be combined"),
    "defaults": ('[defaults]\nid = "a"\n', r"mine.toml: defaults cannot hold 'id'"),
    "default key": ('[defaults]\ngrp = "a"\n' + entry(id='"a"', text='"x"'), r"unknown key 'grp'"),
    "table": ('prompts = "x"\n', r"mine.toml: unknown key 'prompts'; allowed: defaults, passages, prompt"),
    "one table": ('[prompt]\nid = "a"\n', r"'prompt' must be written as \[\[prompt\]\]"),
    "passage type": ("[passages]\np = 1\n", r"passages.p must be a string, got 1"),
    "not TOML": ("id = \n", r"mine.toml: not TOML: "),
    "empty": ("", r"prompt set 'mine.toml' is empty"),
    "no table at all": ("prompt = [1]\n", r"prompt 1: an entry must be a table of keys, got 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_file_entry_key_and_allowed_values(case: str, tmp_path: Path) -> None:
    content, message = WRONG[case]
    with pytest.raises(UsageError, match=message):
        load(tmp_path, content)


def test_errors_in_json_lines_name_the_line(tmp_path: Path) -> None:
    for line in ('{"id": ', r'{"id": "b", "text": "\ud800"}'):
        with pytest.raises(UsageError, match=r"mine.jsonl, line 3: not JSON"):
            load(tmp_path, '{"id": "a", "text": "x"}\n\n' + line, "mine.jsonl")


def test_unknown_set_is_told_the_names(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"'fast' is unknown; allowed: quick, standard, full, long, stress, or a .toml or .jsonl"
    ):
        load_prompts("fast")
    with pytest.raises(UsageError, match=r"cannot read the prompt file .*absent.toml"):
        load_prompts(str(tmp_path / "absent.toml"))


def test_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes('[[prompt]]\nid = "a"\ntext = "é"\n'.encode("latin-1"))
    with pytest.raises(UsageError, match="cannot read the prompt file"):
        load_prompts(str(path))


def make(id_: str, **keys: object) -> Prompt:
    return Prompt(id=id_, category="x", group="parity", sampling=Sampling(1), subsets=(), **keys)  # type: ignore[arg-type]


ALLOWED = "abcdefghijklmnopqrstuvwxyz0123456789_-"


@given(st.text(ALLOWED, min_size=1, max_size=80))
def test_any_id_of_the_allowed_characters_is_taken(id_: str) -> None:
    assert make(id_, text="x").id == id_


@given(st.text(max_size=90).filter(lambda text: not 1 <= len(text) <= 80 or not set(text) <= set(ALLOWED)))
def test_any_other_id_is_refused(id_: str) -> None:
    with pytest.raises(UsageError, match="is not allowed"):
        make(id_, text="x")


@pytest.mark.parametrize("id_", ["a\n", "a/b", "..", "a.json", "A", "ａ", "a\0", "a b", ""])
def test_ids_that_would_be_odd_file_names_are_refused(id_: str) -> None:
    with pytest.raises(UsageError, match="is not allowed"):
        make(id_, text="x")


@pytest.mark.parametrize("keys", [{}, {"text": "x", "ids": (1,)}, {"text": "", "messages": ()}])
def test_a_prompt_has_exactly_one_input(keys: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="give exactly one"):
        make("a", **keys)


def test_a_set_refuses_repeated_ids_and_later_references() -> None:
    with pytest.raises(UsageError, match="occurs twice"):
        PromptSet("s", (make("a", text="x"), make("a", text="y")))
    with pytest.raises(UsageError, match="not an earlier prompt"):
        PromptSet("s", (make("a", text="x", same_as="b"), make("b", text="x")))
