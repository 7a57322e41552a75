"""GitHub Actions expressions, as far as this project's workflows use them.

https://docs.github.com/en/actions/reference/workflows-and-actions/expressions
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|([0-9]+(?:\.[0-9]+)?)|([A-Za-z_][\w.-]*)|(\|\||&&|==|!=|[!()\[\],]))")
_WHOLE = re.compile(r"\s*\$\{\{(?P<body>(?:(?!\}\}).)*)\}\}\s*", re.DOTALL)
_PART = re.compile(r"\$\{\{(?P<body>.*?)\}\}", re.DOTALL)
CONSTANTS = {"true": True, "false": False, "null": None}

Functions = Mapping[str, Callable[..., Any]]


class Parser:
    """Recursive descent over one expression; ``||`` and ``&&`` give operands, as in JavaScript."""

    def __init__(self, text: str, contexts: Mapping[str, Any], functions: Functions) -> None:
        self.tokens: list[tuple[str, str]] = []
        position = 0
        text = text.strip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise ValueError(f"cannot read {text[position:]!r} in {text!r}")
            kind = ("string", "number", "name", "operator")[found.lastindex - 1]  # type: ignore[operator]
            self.tokens.append((kind, found[found.lastindex]))  # type: ignore[index]
            position = found.end()
        self.text, self.contexts, self.functions, self.at = text, contexts, functions, 0

    def parse(self) -> Any:
        value = self.either()
        if self.at != len(self.tokens):
            raise ValueError(f"too much in {self.text!r}")
        return value

    def either(self) -> Any:
        value = self.both()
        while self.take("||"):
            other = self.both()
            value = value if truthy(value) else other
        return value

    def both(self) -> Any:
        value = self.equal()
        while self.take("&&"):
            other = self.equal()
            value = other if truthy(value) else value
        return value

    def equal(self) -> Any:
        value = self.unary()
        while True:
            if self.take("=="):
                value = same(value, self.unary())
            elif self.take("!="):
                value = not same(value, self.unary())
            else:
                return value

    def unary(self) -> Any:
        return not truthy(self.unary()) if self.take("!") else self.primary()

    def primary(self) -> Any:
        if self.take("("):
            value = self.either()
            self.need(")")
            return value
        if self.at == len(self.tokens):
            raise ValueError(f"{self.text!r} ends too early")
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "string":
            return text[1:-1].replace("''", "'")
        if kind == "number":
            return float(text)
        if kind != "name":
            raise ValueError(f"{text!r} is no value in {self.text!r}")
        if self.take("("):
            arguments = []
            while not self.take(")"):
                arguments.append(self.either())
                self.take(",")
            return self.functions[text](*arguments)
        return CONSTANTS[text] if text in CONSTANTS else self.context(text)

    def context(self, path: str) -> Any:
        first, *rest = path.split(".")
        if first not in self.contexts:
            raise ValueError(f"unknown context {first!r} in {self.text!r}")
        value = self.contexts[first]
        for key in rest:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def take(self, operator: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == ("operator", operator):
            self.at += 1
            return True
        return False

    def need(self, operator: str) -> None:
        if not self.take(operator):
            raise ValueError(f"{operator!r} is missing in {self.text!r}")


def truthy(value: Any) -> bool:
    return value not in (None, False, 0, "")


def same(a: Any, b: Any) -> bool:
    """Text is compared without case; values of other kinds as numbers."""
    if isinstance(a, str) and isinstance(b, str):
        return a.lower() == b.lower()
    return a == b if type(a) is type(b) else _number(a) == _number(b)


def _number(value: Any) -> float:
    try:
        return float(value or 0)
    except (TypeError, ValueError):
        return float("nan")


def text_of(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def evaluate(text: str, contexts: Mapping[str, Any], functions: Functions) -> Any:
    """The value of an expression, with or without ``${{ }}`` around it."""
    whole = _WHOLE.fullmatch(text)
    return Parser(whole["body"] if whole else text, contexts, {"fromJSON": json.loads, **functions}).parse()


def fill(value: Any, contexts: Mapping[str, Any], functions: Functions) -> Any:
    """``value`` with every ``${{ }}`` replaced, in lists and mappings too."""
    if isinstance(value, Mapping):
        return {k: fill(v, contexts, functions) for k, v in value.items()}
    if isinstance(value, list):
        return [fill(v, contexts, functions) for v in value]
    if not isinstance(value, str):
        return value
    if _WHOLE.fullmatch(value):
        return evaluate(value, contexts, functions)
    return _PART.sub(lambda found: text_of(evaluate(found["body"], contexts, functions)), value)
