"""A builder of small run folders, for the tests of everything that reads them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lossless.analysis import Analysis, analyze
from lossless.prompts import Tokenizer
from lossless.protocol import Sampling
from lossless.record.plan import AGAIN, PLAIN, SCORE
from lossless.record.store import Golden, Manifest, Record, RecordedPrompt, RunStore, ServerState, output_digest
from lossless.reference.builtin import builtin_path

EOS = 1
TARGET = builtin_path() / "target"
INFO = {"version": "0.5.19", "model_path": "/models/tiny", "dtype": "bfloat16", "speculative_algorithm": None}
SPECULATES = {"speculative_algorithm": "EAGLE", "speculative_accept_threshold_single": 1.0}


class SmallRun:
    """One run folder under construction: a baseline and the variant ``nextn`` unless told otherwise.

    Prompts are of group ``json``, which belongs to no stage of its own. Texts are encoded with the tiny model's own
    tokenizer; a text said by a server ends with EOS.
    """

    def __init__(
        self,
        folder: Path,
        prompts: Mapping[str, Sampling],
        *,
        groups: Mapping[str, str] | None = None,
        goldens: Mapping[str, Golden] | None = None,
        **manifest: Any,
    ) -> None:
        self.tokenizer = Tokenizer.from_folder(TARGET)
        self.store = RunStore(folder)
        fields: dict[str, Any] = {
            "key": "k" * 64,
            "profile": "small",
            "kind": "sglang",
            "target": "tiny",
            "dtype": "bfloat16",
            "variants": ("nextn",),
            "prompt_set": "standard",
            "prompt_digest": "p",
            "tokenizer_digest": self.tokenizer.digest,
            "model_digest": None,
            "eos_ids": (EOS,),
            "concurrency": 4,
            "tool_version": "0",
            "created": "2026-01-01T00:00:00+00:00",
            "epsilon": 0.125,
            **manifest,
        }
        self.prompts = {
            name: RecordedPrompt(
                name,
                category=name.partition("-")[0],
                group=(groups or {}).get(name, "json"),
                ids=self.tokenizer.encode_text(f"Question {name}:"),
                sampling=sampling,
                text=f"Question {name}:",
            )
            for name, sampling in prompts.items()
        }
        self.store.create(
            Manifest(**fields),
            tuple(self.prompts.values()),
            dict(goldens or {}),
            (TARGET / "tokenizer.json").read_text(encoding="utf-8"),
        )
        self.server("baseline")
        for name in fields["variants"]:
            self.server(name)

    def ids(self, text: str) -> tuple[int, ...]:
        return (*self.tokenizer.encode_text(text), EOS)

    def server(self, name: str, *, complete: bool = True, problem: str | None = None, **info: Any) -> None:
        """How recording a server ended, and what it says of itself."""
        facts = {**INFO, **({} if name == "baseline" else SPECULATES), **info}
        self.store.write_server(ServerState(name, complete, problem, server_info=facts))

    def body(self, ids: tuple[int, ...], prompt: str, **change: Any) -> dict[str, Any]:
        """A /generate answer with these ids; ``change`` replaces ``text`` or fields of meta_info."""
        stopped = bool(ids) and ids[-1] == EOS
        shown = ids[:-1] if stopped else ids
        text = change.pop("text", self.tokenizer.decode(shown))
        meta = {
            "finish_reason": {"type": "stop", "matched": EOS} if stopped else {"type": "length", "length": len(ids)},
            "prompt_tokens": len(self.prompts[prompt].ids),
            "completion_tokens": len(ids),
            "cached_tokens": 0,
            **change,
        }
        return {"text": text, "output_ids": list(ids), "meta_info": meta}

    def says(
        self, server: str, prompt: str, said: str | tuple[int, ...], stage: str = PLAIN, turn: int = 0, **change: Any
    ) -> tuple[int, ...]:
        """Record an answer (of the baseline's plain stage: twice, as its second run); returns the ids."""
        ids = self.ids(said) if isinstance(said, str) else said
        if server != "baseline" and len(ids) > 1:
            change = {"spec_verify_ct": max(1, len(ids) // 3), **change}
        body = self.body(ids, prompt, **change)
        for name in (stage, AGAIN) if (server, stage) == ("baseline", PLAIN) else (stage,):
            self.store.append(server, Record(name, prompt, turn, wall_s=0.5, answer=body))
        return ids

    def fails(self, server: str, prompt: str, error: str, stage: str = PLAIN, turn: int = 0) -> None:
        self.store.append(server, Record(stage, prompt, turn, error=error))

    def scored(
        self,
        prompt: str,
        ids: tuple[int, ...],
        regrets: Mapping[int, float] | None = None,
        others: Mapping[int, int] | None = None,
    ) -> None:
        """The baseline re-scores an output: ``regrets`` in nats by position, ``others`` the rival token there."""
        entries: list[Any] = [[None, self.prompts[prompt].ids[-1], None]]
        top: list[Any] = [None]
        for t, token in enumerate(ids):
            regret = (regrets or {}).get(t, 0.0)
            rival = -1.0 if t in (others or {}) or regret else -3.0
            entries.append([-1.0 - regret, token, None])
            rows = [[-1.0 - regret, token, None], [rival, (others or {}).get(t, 4000), None]]
            top.append(sorted(rows, key=lambda row: -row[0]))
        self.store.append("baseline", self.score_record(prompt, ids, entries, top))

    def score_record(self, prompt: str, ids: tuple[int, ...], entries: list[Any], top: list[Any]) -> Record:
        length = len(self.prompts[prompt].ids)
        meta = {
            "finish_reason": {"type": "length", "length": 0},
            "prompt_tokens": length + len(ids),
            "completion_tokens": 0,
            "input_token_logprobs": entries,
            "input_top_logprobs": top,
        }
        digest = output_digest(self.prompts[prompt].ids, ids)
        return Record(SCORE, prompt, output=digest, answer={"text": "", "output_ids": [], "meta_info": meta})

    def analysis(self, **options: Any) -> Analysis:
        return analyze(self.store, **options)


MakeRun = Callable[..., SmallRun]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """``make_run({"list-0": Sampling(96)}, groups=…, goldens=…, **manifest fields)``."""

    def make(prompts: Mapping[str, Sampling] | None = None, *, folder: str = "run", **more: Any) -> SmallRun:
        return SmallRun(tmp_path / folder, prompts or {"list-0": Sampling(96)}, **more)

    return make
