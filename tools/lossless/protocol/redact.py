"""Keeps keys out of everything that is printed, stored or raised."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

MASK = "***"
_SECRET_NAME = re.compile(r"(?i)(api[_-]?keys?|token|secrets?|passwords?|credentials?|authorization)$")
_NOT_SECRET = re.compile(r"(?i)(eos|bos|pad|unk|mask|stop|image|video|audio|draft|max|min|num|total|per)[\w-]*token$")
_PATTERNS = (
    (re.compile(r"(?i)(\bbearer\s+)[^\s'\",]+"), rf"\1{MASK}"),
    (re.compile(r"(?i)(--(?:admin-)?(?:api-key|hf-token)[=\s]+)[^\s'\",]+"), rf"\1{MASK}"),
    (
        re.compile(
            r"(?i)(['\"]?\b(?:admin_)?(?:api_key|hf_token)['\"]?\s*[=:]\s*)(?!None\b|null\b)(['\"]?)[^\s'\",)}]+\2"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"\b(?:hf_|sk-)[A-Za-z0-9_-]{16,}"), MASK),
    (re.compile(r"(?i)(\bhttps?://)[^/\s@]+@"), rf"\1{MASK}@"),
)
_SHORTEST = 6
"""Shorter values are not looked for: masking every 'true' would hide the message and protect nothing."""


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` with the given secrets and everything that looks like an API key replaced by ``***``."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MASK)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def secrets_of(env: Mapping[str, str]) -> tuple[str, ...]:
    """The values of the variables whose names say that they hold a key."""
    return tuple(v for k, v in env.items() if v and _holds_key(k))


def redact_object(value: Any) -> Any:
    """A JSON value with everything in it that is, or looks like, a key replaced by ``***``."""
    if isinstance(value, dict):
        return {k: MASK if v and _holds_key(k) else redact_object(v) for k, v in value.items()}
    if isinstance(value, list):
        return [redact_object(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def _holds_key(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _NOT_SECRET.search(name)
