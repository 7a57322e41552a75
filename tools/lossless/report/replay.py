"""What a replay shows: the verdict, both outputs, and the request pair as commands to paste into a shell."""

import json
import shlex
from typing import Any

from lossless.analysis import Analysis, Judged
from lossless.analysis.localize import hints
from lossless.analysis.reduce import Replayed
from lossless.protocol import GenerateRequest
from lossless.record.store import RecordedPrompt
from lossless.report.evidence import judged_json
from lossless.report.failure import failure_text
from lossless.report.hint import hint_line

BASELINE_URL = "http://127.0.0.1:30000"
VARIANT_URL = "http://127.0.0.1:30001"


def curl_commands(replayed: Replayed) -> tuple[str, ...]:
    """The request to the baseline, then to the variant, each after emptying the cache and with the other requests it
    takes. The addresses are to be replaced; no key is written into a command."""
    prompt = replayed.shown.prompt
    commands = []
    for url in (BASELINE_URL, VARIANT_URL):
        commands.append(f"curl -s -X POST {url}/flush_cache")
        commands += [_curl(url, prompt if p.id == prompt.id else p) for p in replayed.before]
        commands += [f"{_curl(url, p)} >/dev/null &" for p in replayed.beside]
        commands.append(_curl(url, prompt))
    return tuple(commands)


def _curl(url: str, prompt: RecordedPrompt) -> str:
    body = json.dumps(GenerateRequest(prompt.ids, prompt.sampling).payload(), ensure_ascii=False, separators=(",", ":"))
    return f"curl -s {url}/generate -H 'Content-Type: application/json' -d {shlex.quote(body)}"


def replay_text(analysis: Analysis, original: Judged, replayed: Replayed) -> str:
    """Everything for a person: plain text."""
    shown = replayed.shown
    lines = [failure_text(analysis, shown), ""]
    lines += [f"perhaps {hint_line(h)}" for h in hints(analysis, original)[:2]]
    if replayed.reduction is not None:
        r, first = replayed.reduction, replayed.first.prompt
        lines.append(
            f"shortened from {len(first.ids)} prompt tokens and max_new_tokens {first.sampling.max_new_tokens} to "
            f"{len(shown.prompt.ids)} and {shown.prompt.sampling.max_new_tokens} in {r.tried} tries"
            + ("" if r.finished else "; more tries (--tries) may shorten it further")
        )
    lines += [f"note: {note}" for note in notes(replayed)]
    lines += [f"prompt: {_text(analysis, shown.prompt.ids)}"]
    lines += [f"{name}: {text}" for name, text in _outputs(shown).items()]
    if shown.verdict.kind != "identical":
        lines += ["", *curl_commands(replayed)]
    return "\n".join(lines)


def replay_json(analysis: Analysis, original: Judged, replayed: Replayed, status: str) -> dict[str, Any]:
    """The same as plain JSON values."""
    shown, reduction = replayed.shown, replayed.reduction
    return {
        "status": status,
        "run": analysis.store.path.name,
        "prompt": shown.prompt.id,
        "variant": shown.variant,
        "stage": replayed.stage,
        "first": judged_json(replayed.first),
        "smallest": None if replayed.smallest is None else judged_json(replayed.smallest),
        "tries": 0 if reduction is None else reduction.tried,
        "finished": reduction is None or reduction.finished,
        "request": GenerateRequest(shown.prompt.ids, shown.prompt.sampling).payload(),
        "outputs": {
            name: None if t is None else {"ids": list(t.ids), "text": t.text, "finish": str(t.finish)}
            for name, t in zip(shown.names, (shown.left, shown.right), strict=True)
        },
        "hints": [
            {"kind": h.kind, "sentence": h.sentence, "evidence": h.evidence, "reports": list(h.reports)}
            for h in hints(analysis, original)
        ],
        "notes": list(notes(replayed)),
        "curl": list(curl_commands(replayed)),
    }


def notes(replayed: Replayed) -> tuple[str, ...]:
    """What a reader should know: of the servers, of other requests, and of what is left open."""
    found = list(replayed.notes)
    for names, word in ((replayed.before, "after"), (replayed.beside, "beside")):
        if names:
            found.append(f"it was sent {word} {', '.join(p.id for p in names)}")
    if replayed.open_stages:
        stages = ", ".join(replayed.open_stages)
        found.append(f"in the run it differed in stage {stages}, which a replay cannot have again: this proves nothing")
    return tuple(found)


def _outputs(judged: Judged) -> dict[str, str]:
    sides = zip(judged.names, (judged.left, judged.right), strict=True)
    return {name: "(no answer)" if t is None else f"{t.text!r} {list(t.ids)} {t.finish}" for name, t in sides}


def _text(analysis: Analysis, ids: tuple[int, ...]) -> str:
    return repr(analysis.tokenizer.decode(ids, False)) if analysis.tokenizer else str(list(ids))
