"""Prompts to token ids: the model's own tokenizer and chat template, without transformers."""

import datetime
import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox
import tokenizers

from lossless.errors import UsageError
from lossless.prompts.haystack import MARK, QUESTION, Built, Haystack, build
from lossless.prompts.prompt import Message, Prompt
from lossless.protocol.requests import Sampling

_SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")
_TODAY = datetime.datetime(2026, 1, 1)  # templates that print a date must not change the ids from day to day


class Tokenizer:
    """What a Hugging Face folder says about text and ids (``tokenizer.json``, the chat template).

    Special tokens written in a prompt's text become those tokens, as they do in SGLang's ``/generate``.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        digest: str,
        content: str,
        name: str,
        template: str | None,
        special: dict[str, str],
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._name = name
        self._special = special
        self._template = None if template is None else _compile(template, name)
        self.digest = digest
        """SHA-256 (hex) of ``tokenizer.json``."""
        self.content = content
        """What ``tokenizer.json`` holds."""

    @classmethod
    def from_folder(cls, path: str | Path) -> "Tokenizer":
        """Reads a model folder, or the hub id of a model whose tokenizer is already in the local hub cache.

        Nothing is downloaded. Raises UsageError when there is no readable ``tokenizer.json``.
        """
        files = _Files(path)
        content = files.read("tokenizer.json")
        if content is None:
            raise UsageError(
                f"no tokenizer.json in {str(path)!r}, which is neither a model folder nor in the local hub cache",
                hint="pass the model's folder: --lossless-target DIR",
            )
        try:
            tokenizer = tokenizers.Tokenizer.from_str(content)
        except Exception as error:  # the Rust binding raises plain Exception
            raise UsageError(f"tokenizer.json of {str(path)!r} cannot be read: {error}") from None
        config = files.read_json("tokenizer_config.json")
        return cls(
            tokenizer,
            digest=hashlib.sha256(content.encode("utf-8")).hexdigest(),
            content=content,
            name=str(path),
            template=files.read("chat_template.jinja") or _template_in(config),
            special={key: text for key in _SPECIAL_TOKENS if (text := _token_text(config.get(key))) is not None},
        )

    @property
    def vocab_size(self) -> int:
        """Number of token ids the tokenizer knows, added tokens included; the model may have more rows."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The ids to send: at least one, all of them in the vocabulary.

        messages are rendered with ``add_generation_prompt``; neither they nor text get special tokens of the
        tokenizer's own (no BOS that the template did not write). With ``exact_tokens`` n the ids are repeated
        until there are n, then cut to n. Raises UsageError for an empty prompt, an id outside the vocabulary (it
        would take an SGLang server down), and when the chat template is missing or refuses the messages.
        """
        if prompt.haystack is not None:
            ids = self.build(prompt.haystack, prompt.thinking).ids
        elif prompt.ids is not None:
            ids = prompt.ids
            if bad := [id_ for id_ in ids if not 0 <= id_ < self.vocab_size]:
                allowed = f"0 to {self.vocab_size - 1}"
                raise UsageError(f"prompt {prompt.id!r}: id {bad[0]} is outside the vocabulary; allowed: {allowed}")
        else:
            text = prompt.text if prompt.text is not None else self.render(prompt.messages or (), prompt.thinking)
            ids = self.encode_text(text)
        if not ids:
            raise UsageError(f"prompt {prompt.id!r} has no tokens: give it some text")
        if prompt.exact_tokens is not None:
            times = -(-prompt.exact_tokens // len(ids))
            ids = (ids * times)[: prompt.exact_tokens]
        return ids

    def build(self, haystack: Haystack, thinking: bool | None = None) -> Built:
        """A long prompt of exactly ``haystack.tokens`` tokens, in the chat template where the model has one.

        Raises UsageError where they do not suffice for the question and the hidden fact.
        """
        text = f"{MARK}{QUESTION}"
        frame = f"{text}\n" if self._template is None else self.render((Message("user", text),), thinking)
        return build(haystack, self.encode_text, frame)

    def sampling(self, prompt: Prompt) -> Sampling:
        """The prompt's sampling, with ``stop_token_texts`` turned into stop token ids.

        Raises UsageError for a text that is not exactly one token here.
        """
        extra = []
        for text in prompt.stop_token_texts:
            ids = self.encode_text(text)
            if len(ids) != 1:
                raise UsageError(
                    f"prompt {prompt.id!r}: stop_token_text {text!r} is {len(ids)} tokens of {self._name!r}, must be 1"
                )
            extra.append(ids[0])
        return replace(prompt.sampling, stop_token_ids=(*prompt.sampling.stop_token_ids, *extra))

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Raw text to ids, without special tokens of the tokenizer's own."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def render(self, messages: Sequence[Message], thinking: bool | None = None) -> str:
        """The chat template's text, up to where the assistant begins. Raises UsageError."""
        if self._template is None:
            raise UsageError(
                f"{self._name!r} has no chat template (chat_template.jinja or tokenizer_config.json)",
                hint="use prompts with text instead of messages",
            )
        extra = {} if thinking is None else {"enable_thinking": thinking}
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return self._template.render(
                messages=turns, tools=None, documents=None, add_generation_prompt=True, **self._special, **extra
            )
        except jinja2.TemplateError as error:
            raise UsageError(f"the chat template of {self._name!r} refuses the messages: {error}") from None

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of these ids; ids outside the vocabulary are left out."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def token_text(self, id_: int) -> str:
        """One token for people to read: its text, or its raw piece where it is no whole character."""
        piece = self._tokenizer.id_to_token(id_) if id_ >= 0 else None
        if piece is None:
            return f"<unknown id {id_}>"
        text = self.decode([id_], skip_special_tokens=False)
        return piece if not text or "\ufffd" in text else text


class _Files:
    """The files of a model folder, or of a hub id in the local cache."""

    def __init__(self, target: str | Path) -> None:
        self._target = str(target)
        self._folder = Path(target)

    def read(self, name: str) -> str | None:
        if self._folder.is_dir():
            path = self._folder / name
        else:
            # tokenizers depends on huggingface_hub; this call looks at the disk only
            from huggingface_hub import try_to_load_from_cache
            from huggingface_hub.errors import HFValidationError

            try:
                found = try_to_load_from_cache(self._target, name)
            except HFValidationError:  # a path, not a hub id
                return None
            if not isinstance(found, str):
                return None
            path = Path(found)
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {path}: {error}") from None

    def read_json(self, name: str) -> dict[str, Any]:
        content = self.read(name)
        try:
            config = json.loads(content or "{}")
        except ValueError as error:
            raise UsageError(f"{name} of {self._target!r} is not JSON: {error}") from None
        if not isinstance(config, dict):
            raise UsageError(f"{name} of {self._target!r} must hold an object")
        return config


def _template_in(config: dict[str, Any]) -> str | None:
    template = config.get("chat_template")
    if isinstance(template, list):  # several named templates
        named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _token_text(value: object) -> str | None:
    if isinstance(value, dict):  # an AddedToken written out
        value = value.get("content")
    return value if isinstance(value, str) else None


def _compile(template: str, name: str) -> jinja2.Template:
    """Set up as transformers does it (utils/chat_template_utils.py), so that templates render alike."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _TODAY.strftime
    try:
        return environment.from_string(template)
    except jinja2.TemplateError as error:
        raise UsageError(f"the chat template of {name!r} is not valid: {error}") from None


def _tojson(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)
