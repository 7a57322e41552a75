"""The recorded answers of real servers, as files and as a run folder that the analysis can read."""

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from lossless.protocol import Answer, Sampling
from lossless.record.plan import AGAIN, HIT, LOGPROBS, PLAIN, SCORE, TOGETHER
from lossless.record.store import Manifest, Record, RecordedPrompt, RunStore, ServerState, output_digest
from lossless.reference.builtin import builtin_path

DATA = Path(__file__).parent / "data"
HONEST = ("nextn", "dflash")
LOSSY = ("nextn-simulated-acceptance", "dflash-simulated-acceptance")
EOS = (0, 1)  # generation_config.json of the tiny model
PARAMETERS = {
    "stopstr": Sampling(96, stop=("answer",)),
    "minnew": Sampling(48, min_new_tokens=40),
    "freq": Sampling(48, frequency_penalty=1.5),
}


@cache
def server(name: str) -> dict[str, Any]:
    """One server's file."""
    found: dict[str, Any] = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return found


@cache
def answers(name: str, part: str) -> tuple[Answer, ...]:
    """One list of a server's answers, in prompt order."""
    return tuple(Answer.from_json(body) for body in server(name)[part])


def category(prompt_id: str) -> str:
    return prompt_id.rpartition("-")[0]


def prompts() -> tuple[RecordedPrompt, ...]:
    """All prompts as sent: the plain ones, then those with parameters (``minnew-copy-0`` …), then the caps."""
    found = [
        RecordedPrompt(p["id"], category(p["id"]), "parity", tuple(p["ids"]), Sampling(96), "")
        for p in server("baseline")["prompts"]
    ]
    first = found[:6]
    for part, sampling in PARAMETERS.items():
        group = "stop" if part == "stopstr" else "params"
        found += [
            replace(p, id=f"{part}-{p.id}", group=group, sampling=sampling)
            for p, _ in zip(first, server("baseline")[part], strict=False)
        ]
    found += [replace(first[0], id=f"cap-{n}", group="cap", sampling=Sampling(n)) for n in range(1, 17)]
    return tuple(found)


def build(folder: Path) -> RunStore:
    """A run folder that holds all five recordings.

    The baseline's second run is its pass of 8 at once: the recording has no second pass one at a time.
    """
    store = RunStore(folder)
    variants = (*HONEST, *LOSSY)
    manifest = Manifest(
        key="recorded",
        profile="recorded",
        kind="sglang",
        target="tiny",
        dtype="bfloat16",
        variants=variants,
        prompt_set="recorded",
        prompt_digest="",
        tokenizer_digest="",
        model_digest=None,
        eos_ids=EOS,
        concurrency=8,
        tool_version="0",
        created="2026-01-01T00:00:00+00:00",
        algorithms={name: name.split("-")[0].upper() for name in variants},
    )
    every = prompts()
    tokenizer = (builtin_path() / "target" / "tokenizer.json").read_text(encoding="utf-8")
    store.create(manifest, every, {}, tokenizer)
    for name in ("baseline", *variants):
        data = server(name)
        state = ServerState(name, True, server_info=data["server_info"], model_info=data["model_info"])
        store.write_server(state)
        lines = [line for record in _records(name, every) for line in _lines(record)]
        path = folder / "records" / f"{name}.jsonl"
        path.write_text("".join(lines), encoding="utf-8")
    return store


def _lines(record: Record) -> tuple[str, ...]:
    """As RunStore.append writes it, without a flush to the disk for each of 1500 lines."""
    fields = {name: getattr(record, name) for name in Record.__slots__}
    return (json.dumps(fields, ensure_ascii=False) + "\n",)


def _records(name: str, every: tuple[RecordedPrompt, ...]) -> list[Record]:
    data = server(name)
    plain = every[: len(data["plain"])]
    found: list[Record] = []

    def add(stage: str, chosen: tuple[RecordedPrompt, ...], part: str, turn: int = 0) -> None:
        found.extend(
            Record(stage, p.id, turn, answer=body) for p, body in zip(chosen, data.get(part, ()), strict=False)
        )

    add(PLAIN, plain, "plain")
    add(TOGETHER, plain, "conc")
    add(HIT, plain, "again", turn=1)
    add(LOGPROBS, plain, "lp")
    if name == "baseline":
        add(AGAIN, plain, "conc")
    for part in (*PARAMETERS, "cap"):
        chosen = tuple(p for p in every if p.id.startswith(f"{part}-"))
        add(PLAIN, chosen, part)
        if name == "baseline":
            add(AGAIN, chosen, part)
    if name == "baseline":
        for scored in ("baseline", *HONEST, *LOSSY):
            for prompt, answer, body in zip(
                plain, answers(scored, "plain"), server(scored)["score_by_base"], strict=True
            ):
                digest = output_digest(prompt.ids, answer.output_ids)
                found.append(Record(SCORE, prompt.id, output=digest, answer=body))
    return found
