"""Run folders whose texts are hostile or very long, for the tests of the HTML report."""

from pathlib import Path
from typing import Any

from lossless.prompts import Tokenizer
from lossless.protocol import Sampling
from lossless.record.plan import AGAIN, PLAIN, SCORE
from lossless.record.store import Manifest, Record, RecordedPrompt, RunStore, ServerState, output_digest
from lossless.reference.builtin import builtin_path

TARGET = builtin_path() / "target"
HOSTILE = (
    "</script><img src=x onerror=\"window.hacked='img'\"><script>window.hacked='script'</script><!--"
    "\u202eevil\u202c\x00\u2066 javascript:alert(1) {{ 7*7 }} ${7*7} 'quote' \"double\" &lt;b&gt; "
)
LONG = 20_000  # tokens
UNBROKEN = "x" * 4000


def hostile_run(folder: Path) -> RunStore:
    """Three prompts: ``evil`` says hostile text and differs, ``long`` differs in the middle of 20,000 tokens, ``wide``
    says a word without an end."""
    tokenizer = Tokenizer.from_folder(TARGET)
    texts = {f"evil {HOSTILE}": HOSTILE * 3, "long": " word" * LONG, "wide": UNBROKEN}
    prompts = tuple(
        RecordedPrompt(
            name,
            HOSTILE if name.startswith("evil") else "list",
            "json",
            tokenizer.encode_text(f"Say: {name}"),
            Sampling(LONG * 2),
            HOSTILE,
        )
        for name in texts
    )
    manifest = Manifest(
        key="k" * 64, profile=HOSTILE, kind="sglang", target=HOSTILE, dtype="bfloat16", variants=("nextn",),
        prompt_set="made", prompt_digest="p", tokenizer_digest=tokenizer.digest, model_digest=None, eos_ids=(1,),
        concurrency=4, tool_version="0", created="2026-01-01T00:00:00+00:00", epsilon=0.125, fault=HOSTILE,
    )  # fmt: skip
    store = RunStore(folder)
    store.create(manifest, prompts, {}, (TARGET / "tokenizer.json").read_text(encoding="utf-8"))
    facts: dict[str, Any] = {"version": "0.5.19", "model_path": HOSTILE, "dtype": "bfloat16"}
    store.write_server(ServerState("baseline", True, server_info={**facts, "speculative_algorithm": None}))
    spec = {"speculative_algorithm": "EAGLE", "speculative_accept_threshold_single": 1.0}
    store.write_server(ServerState("nextn", False, HOSTILE, server_info={**facts, **spec}))
    for prompt, text in zip(prompts, texts.values(), strict=True):
        ids = (*tokenizer.encode_text(text), 1)
        middle = len(ids) // 2
        other = ids if prompt.id == "wide" else (*ids[:middle], 500 + (ids[middle] == 500), *ids[middle + 1 :])
        for stage in (PLAIN, AGAIN):
            store.append("baseline", Record(stage, prompt.id, answer=_answer(tokenizer, prompt, ids), wall_s=0.5))
        said = _answer(tokenizer, prompt, other, spec_verify_ct=max(1, len(other) // 3))
        store.append("nextn", Record(PLAIN, prompt.id, answer=said, wall_s=0.25))
        for output, regret in ((ids, {}), (other, {middle: 9.0})):
            store.append("baseline", _score(prompt, output, regret, ids[middle]))
    return store


def _answer(tokenizer: Tokenizer, prompt: RecordedPrompt, ids: tuple[int, ...], **meta: Any) -> dict[str, Any]:
    facts = {
        "finish_reason": {"type": "stop", "matched": 1},
        "prompt_tokens": len(prompt.ids),
        "completion_tokens": len(ids),
        "cached_tokens": 0,
        **meta,
    }
    return {"text": tokenizer.decode(ids[:-1]), "output_ids": list(ids), "meta_info": facts}


def _score(prompt: RecordedPrompt, ids: tuple[int, ...], regret: dict[int, float], rival: int) -> Record:
    entries: list[Any] = [[None, prompt.ids[-1], None]]
    top: list[Any] = [None]
    for t, token in enumerate(ids):
        own = -0.1 - regret.get(t, 0.0)
        rows = [[own, token, None], [-0.1 if t in regret else -3.0, rival if rival != token else 4000, None]]
        entries.append([own, token, None])
        top.append(sorted(rows, key=lambda row: -row[0]))
    meta = {
        "finish_reason": {"type": "length", "length": 0},
        "prompt_tokens": len(prompt.ids) + len(ids),
        "completion_tokens": 0,
        "input_token_logprobs": entries,
        "input_top_logprobs": top,
    }
    answer = {"text": "", "output_ids": [], "meta_info": meta}
    return Record(SCORE, prompt.id, output=output_digest(prompt.ids, ids), answer=answer)
