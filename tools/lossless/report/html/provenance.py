"""Where a run comes from: versions, digests, arguments, and the commands that repeat it."""

import json
import shlex
from typing import Any

from lossless.analysis import Analysis
from lossless.protocol.redact import redact_object


def provenance(analysis: Analysis) -> list[tuple[str, str]]:
    """Versions, digests and settings, as label and value."""
    m = analysis.manifest
    versions = ", ".join(f"{name} {s.info.get('version', 'unknown')}" for name, s in analysis.servers.items())
    pairs = [
        ("Recorded", m.created),
        ("Engine", versions),
        ("sglang-lossless", m.tool_version),
        ("Profile", f"{m.profile} ({m.kind})"),
        ("Target", m.target),
        ("dtype", m.dtype),
        ("Variants", ", ".join(f"{v} ({m.algorithms[v]})" if v in m.algorithms else v for v in m.variants)),
        ("GPU", ", ".join(_gpus(analysis))),
        ("Prompt set", f"{m.prompt_set}, {len(analysis.prompts)} prompts"),
        ("Prompt digest", m.prompt_digest),
        ("Tokenizer digest", m.tokenizer_digest),
        ("Model digest", m.model_digest or ""),
        ("Run key", m.key),
        ("End-of-sequence ids", ", ".join(map(str, analysis.eos_ids))),
        ("Requests at once", str(m.concurrency)),
        ("Allowed differences", ", ".join(m.allow_differences)),
        ("Shard", "" if m.shard is None else str(m.shard)),
        ("Merged from", f"{m.merged} shards" if m.merged else ""),
        ("Planted fault", m.fault or ""),
    ]
    return [(label, value) for label, value in pairs if value]


def _gpus(analysis: Analysis) -> list[str]:
    """Names of the cards, where a server says them; else the kind of device."""
    found = []
    for server in analysis.servers.values():
        value = next((server.info[k] for k in ("gpu_name", "gpu", "device") if server.info.get(k)), None)
        if isinstance(value, str):
            found.append(value)
    return list(dict.fromkeys(found))


def arguments(analysis: Analysis) -> dict[str, Any]:
    """Resolved arguments and environment settings of the servers; ``differ`` marks those that are not all alike."""
    # Keys are masked here: further on a value no longer stands beside its name.
    info = [redact_object(dict(s.info)) for s in analysis.servers.values()]
    settings = [redact_object(dict(s.settings or {})) for s in analysis.servers.values()]
    rows = []
    for sources in (info, settings):
        for key in sorted({key for source in sources for key, value in source.items() if _plain(value)}):
            values = [_shown(source.get(key)) for source in sources]
            rows.append({"name": key, "values": values, "differ": len(set(values)) > 1})
    return {"servers": list(analysis.servers), "rows": rows}


def _plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool) or bool(value and len(_shown(value)) < 400)


def _shown(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def reproduce(analysis: Analysis, command: str) -> list[tuple[str, str]]:
    """What to type to judge, replay or record it again, as purpose and command line."""
    m = analysis.manifest
    record = ["pytest", "-m", "lossless", "--lossless-profile", m.profile, "--lossless-prompts", m.prompt_set]
    if m.fault:
        record += ["--lossless-fault", m.fault]
    bad = [j for j in analysis.verdicts() if not j.verdict.passed()]
    worst = next((j for j in bad if not analysis.is_known(j)), bad[0] if bad else None)
    lines = [("Judge this run again, without a server", ["lossless", "verify", command])]
    if worst is not None:
        prompt = ["--prompt", worst.prompt.id]
        lines += [
            ("Show one prompt in full", ["lossless", "verify", command, *prompt]),
            (
                "Send one prompt again and shorten it",
                ["lossless", "replay", command, *prompt, "--variant", worst.variant],
            ),
        ]
    return [(purpose, shlex.join(line)) for purpose, line in [*lines, ("Record the run again", record)]]
