"""Token ids: the chat template, exact lengths, stop tokens, and what broken model folders are told."""

import json
import unicodedata
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.errors import UsageError
from lossless.prompts import Message, Prompt, Tokenizer
from lossless.protocol.requests import Sampling

TINY = Path(str(resources.files("lossless.reference") / "tiny" / "target"))
TOKENIZER = Tokenizer.from_folder(TINY)

# Ids that the model's training code made of these prompts.
KNOWN = {
    "Subtract 60 from 85.": [2, 209, 4029, 231, 32, 26, 698, 231, 34, 31, 24, 1, 209, 3, 209],
    "Compute 9 times 11.": [2, 209, 2083, 231, 35, 2752, 231, 27, 27, 24, 1, 209, 3, 209],
    "List five musical instruments.": [2, 209, 1147, 3084, 2319, 2292, 24, 1, 209, 3, 209],
    "埃及的首都是哪里？": [2, 209, 2821, 236, 555, 243, 3931, 1646, 1, 209, 3, 209],
}


def prompt(**keys: object) -> Prompt:
    return Prompt(id="p", category="x", group="parity", sampling=Sampling(1), subsets=(), **keys)  # type: ignore[arg-type]


def chat(text: str, **keys: object) -> Prompt:
    return prompt(messages=(Message("user", text),), **keys)


def folder(tmp_path: Path, config: object = None, template: str | None = None) -> Path:
    """A model folder with the tiny tokenizer and the given chat template."""
    (tmp_path / "tokenizer.json").write_bytes((TINY / "tokenizer.json").read_bytes())
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if template is not None:
        (tmp_path / "chat_template.jinja").write_text(template, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("text", KNOWN)
def test_chat_prompts_become_the_ids_of_the_training_code(text: str) -> None:
    assert list(TOKENIZER.encode(chat(text))) == KNOWN[text]


def test_raw_text_gets_neither_template_nor_special_tokens() -> None:
    assert TOKENIZER.encode(prompt(text="List five")) == TOKENIZER.encode_text("List five")
    assert TOKENIZER.decode(TOKENIZER.encode(prompt(text="List five"))) == "List five"


@given(st.text(min_size=1, max_size=20), st.integers(1, 60))
def test_exact_tokens_is_exact(text: str, length: int) -> None:
    plain = TOKENIZER.encode(prompt(text=text))
    cut = TOKENIZER.encode(prompt(text=text, exact_tokens=length))
    assert len(cut) == length
    assert cut == tuple(plain[i % len(plain)] for i in range(length))


@given(st.text(max_size=40))
def test_decode_gives_the_text_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode_text(text), skip_special_tokens=False) == unicodedata.normalize(
        "NFC", text
    )


def test_ids_are_taken_as_they_are_within_the_vocabulary() -> None:
    assert TOKENIZER.encode(prompt(ids=(0, 4095))) == (0, 4095)
    assert TOKENIZER.vocab_size == 4096
    for bad in (4096, -1):
        with pytest.raises(UsageError, match=rf"id {bad} is outside the vocabulary; allowed: 0 to 4095"):
            TOKENIZER.encode(prompt(ids=(1, bad)))


def test_prompt_without_tokens_is_refused() -> None:
    with pytest.raises(UsageError, match="'p' has no tokens"):
        TOKENIZER.encode(prompt(text=""))


def test_stop_token_text_becomes_an_id() -> None:
    assert TOKENIZER.sampling(prompt(text="x", stop_token_texts=(".", "<|end|>"))).stop_token_ids == (24, 1)
    with pytest.raises(UsageError, match=r"stop_token_text 'lighthouses' is \d+ tokens"):
        TOKENIZER.sampling(prompt(text="x", stop_token_texts=("lighthouses",)))


def test_token_text_is_readable() -> None:
    end, dot = TOKENIZER.token_text(1), TOKENIZER.token_text(24)
    half_a_character = TOKENIZER.encode_text("京")[0]
    assert (end, dot) == ("<|end|>", ".")
    assert "\ufffd" not in TOKENIZER.token_text(half_a_character)
    assert [TOKENIZER.token_text(id_) for id_ in (4096, -1)] == ["<unknown id 4096>", "<unknown id -1>"]


def test_decode_can_show_special_tokens() -> None:
    assert TOKENIZER.decode([24, 1]) == "."
    assert TOKENIZER.decode([24, 1], skip_special_tokens=False) == ".<|end|>"


def test_digest_is_of_the_tokenizer_file(tmp_path: Path) -> None:
    assert Tokenizer.from_folder(folder(tmp_path)).digest == TOKENIZER.digest
    assert len(TOKENIZER.digest) == 64


class TestChatTemplate:
    def test_file_comes_before_the_config(self, tmp_path: Path) -> None:
        tokenizer = Tokenizer.from_folder(folder(tmp_path, {"chat_template": "config"}, "file"))
        assert tokenizer.render([Message("user", "x")]) == "file"

    def test_named_templates_use_the_default_one(self, tmp_path: Path) -> None:
        named = [{"name": "tool", "template": "no"}, {"name": "default", "template": "yes"}]
        assert Tokenizer.from_folder(folder(tmp_path, {"chat_template": named})).render([Message("user", "x")]) == "yes"

    def test_knows_what_templates_of_real_models_use(self, tmp_path: Path) -> None:
        template = (
            "{{ bos_token }}{% for m in messages %}\n"
            "    {% if loop.index0 == 1 %}{% break %}{% endif %}\n"
            "{{ m.content | tojson }}{{ m.role | upper }}\n"
            "{% endfor %}{{ enable_thinking is defined }} {{ strftime_now('%Y') }}"
            "{% if add_generation_prompt %}!{% endif %}"
        )
        config = {"bos_token": {"content": "<s>"}, "chat_template": template}
        tokenizer = Tokenizer.from_folder(folder(tmp_path, config))
        turns = [Message("user", '中"<'), Message("assistant", "b")]
        assert tokenizer.render(turns) == '<s>"中\\"<"USER\nFalse 2026!'
        assert tokenizer.render(turns, thinking=True) == '<s>"中\\"<"USER\nTrue 2026!'

    def test_thinking_reaches_the_ids(self, tmp_path: Path) -> None:
        template = "{% if enable_thinking is defined and not enable_thinking %}no {% endif %}yes"
        tokenizer = Tokenizer.from_folder(folder(tmp_path, template=template))
        texts = [tokenizer.decode(tokenizer.encode(chat("x", thinking=value))) for value in (None, True, False)]
        assert texts == ["yes", "yes", "no yes"]

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="has no chat template") as caught:
            Tokenizer.from_folder(folder(tmp_path, {})).encode(chat("x"))
        assert caught.value.hint == "use prompts with text instead of messages"

    def test_refusing_the_messages(self, tmp_path: Path) -> None:
        tokenizer = Tokenizer.from_folder(folder(tmp_path, template="{{ raise_exception('roles must alternate') }}"))
        with pytest.raises(UsageError, match="refuses the messages: roles must alternate"):
            tokenizer.encode(chat("x"))

    def test_not_valid(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"chat template of .* is not valid"):
            Tokenizer.from_folder(folder(tmp_path, template="{% if %}"))

    def test_cannot_reach_out_of_its_sandbox(self, tmp_path: Path) -> None:
        template = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
        with pytest.raises(UsageError, match="unsafe"):
            Tokenizer.from_folder(folder(tmp_path, template=template)).encode(chat("x"))


class TestBrokenFolder:
    def test_absent(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"no tokenizer\.json") as caught:
            Tokenizer.from_folder(tmp_path)
        assert caught.value.hint == "pass the model's folder: --lossless-target DIR"

    @pytest.mark.parametrize("target", ["somebody/a-model-that-is-not-cached", "/no/such/folder", "a b\nc", ""])
    def test_neither_folder_nor_cached(self, target: str) -> None:
        with pytest.raises(UsageError, match="neither a model folder nor in the local hub cache"):
            Tokenizer.from_folder(target)

    def test_tokenizer_unreadable(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_text("{}")
        with pytest.raises(UsageError, match=r"tokenizer.json of .* cannot be read"):
            Tokenizer.from_folder(tmp_path)

    @pytest.mark.parametrize(("config", "message"), [("[]", "must hold an object"), ("{", "is not JSON")])
    def test_config_unreadable(self, tmp_path: Path, config: str, message: str) -> None:
        (folder(tmp_path) / "tokenizer_config.json").write_text(config)
        with pytest.raises(UsageError, match=message):
            Tokenizer.from_folder(tmp_path)

    def test_hub_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
        repo = tmp_path / "models--owner--model"
        snapshot = repo / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        (repo / "refs").mkdir()
        (repo / "refs" / "main").write_text("abc")
        folder(snapshot, template="hello")
        tokenizer = Tokenizer.from_folder("owner/model")
        assert tokenizer.decode(tokenizer.encode(chat("x"))) == "hello"
