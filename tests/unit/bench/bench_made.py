"""Samples and benches for tests, made by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

from lossless.bench.file import Bench, Facts, ServerBench
from lossless.bench.plan import Settings
from lossless.bench.sample import Sample


def sample(category: str = "code", repeat: int = 0, *, tokens: int = 21, decode_s: float = 1.0, **more: Any) -> Sample:
    """One stream: the first token after 0.5 s, the rest over ``decode_s``."""
    fields: dict[str, Any] = {
        "stage": "speed",
        "task": "t",
        "streams": 1,
        "prompt_tokens": 100,
        "first_tokens": 1,
        "first_s": 0.5,
        "last_s": 0.5 + decode_s,
        **more,
    }
    return Sample(category=category, repeat=repeat, tokens=tokens, **fields)


def server(name: str, samples: Sequence[Sample], **more: Any) -> ServerBench:
    facts = Facts("0.5.19", "models/tiny", "bfloat16", None if name == "baseline" else name.upper(), "NVIDIA H200")
    return ServerBench(name, **{"complete": True, "seconds": 2.0, "facts": facts, **more}, samples=tuple(samples))


def bench(servers: Mapping[str, ServerBench], **more: Any) -> Bench:
    fields: dict[str, Any] = {
        "key": "k",
        "created": "2026-01-02T03:04:05+00:00",
        "tool_version": "0.1.0",
        "profile": "small",
        "kind": "sglang",
        "settings": Settings(streams=(1,)),
        "tasks": {"code": ("t",)},
        "lengths": (),
        "names": ("baseline", "nextn"),
        "servers": dict(servers),
        **more,
    }
    return Bench(**fields)
