"""The page as one string: template, style, script and data in a single file that asks for nothing."""

import base64
import hashlib
import json
import re
import zlib
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from lossless.report.html.data import Report

STYLES = ("base.css", "verdicts.css", "detail.css", "print.css")
SCRIPTS = ("core.js", "filters.js", "grid.js", "list.js", "tokens.js", "plot.js", "detail.js", "main.js")
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def render(report: Report) -> str:
    """The whole page.

    Nothing in it can come from elsewhere: the policy allows this style and this script by their digests, and no
    source at all for anything else.
    """
    style, script = _style(), _script()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    return _environment().get_template("template.html.j2").render(
        report.view,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        index=json_block(report.index),
        vocabulary=packed_block(report.vocabulary),
        chunks=[packed_block(chunk) for chunk in report.chunks],
    )  # fmt: skip


def json_block(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(_ESCAPES).encode("utf-8", "replace").decode())


def packed_block(value: Any) -> Markup:
    """JSON, deflated and in base64, as a JSON string: read only when its prompt is chosen."""
    data = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    return Markup(f'"{base64.b64encode(zlib.compress(data, 6)).decode()}"')


def visible(text: str) -> str:
    """Text whose invisible characters (controls, direction marks) are written out, so that none acts on the page."""
    return _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def nats(value: float | None) -> str:
    """A figure in nats, logprobs or the like, with four digits."""
    return "–" if value is None else f"{value:.4g}"


def fixed(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def is_figure(value: Any) -> bool:
    """Whether a cell is set like a number: it is one, or begins like one."""
    return isinstance(value, int | float) or bool(re.match(r"[-+−–]?\d|[-–]?$", str(value)))


def _finalize(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lossless.report.html", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"nats": nats, "fixed": fixed}
    environment.tests["figure"] = is_figure
    return environment


@cache
def _style() -> str:
    return "\n" + "\n".join(_read(name) for name in STYLES)


@cache
def _script() -> str:
    body = "\n".join(_read(name) for name in SCRIPTS)
    return f'\n"use strict";\n(() => {{\n{body}\n}})();\n'


def _read(name: str) -> str:
    return files("lossless.report.html").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """A source expression of the Content Security Policy, level 2."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
