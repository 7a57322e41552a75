"""Runs of the embedded engine with a planted fault, recorded in this process: two servers on threads, no files but
the run's own."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lossless.analysis import Analysis, analyze
from lossless.prompts import PromptSet, Tokenizer, load_prompts
from lossless.protocol.client import Client
from lossless.record.recorder import Recorder
from lossless.record.store import Manifest, RunStore, ServerState
from lossless.reference.background import background
from lossless.reference.builtin import builtin_path
from lossless.suite.prepare import recorded_prompt

TARGET = builtin_path() / "target"
CHUNK = ("--chunked-prefill-size", "256")
VARIANTS = {
    "nextn": ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3"),
    "dflash": ("--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "builtin:tiny"),
}


class _Quiet:
    def starting(self, server: str, line: str) -> None: ...

    def stage(self, server: str, stage: str, total: int, done: int) -> None: ...

    def advance(self, server: str, stage: str, tokens: int) -> None: ...

    def finished(self, state: ServerState) -> None: ...


class _Running:
    """A server that runs already."""

    def __init__(self, name: str, url: str) -> None:
        self.name, self.url, self.settings = name, url, None

    def start(self, _on_progress: object) -> None: ...

    def check(self) -> None: ...

    def stop(self) -> None: ...


def _record(store: RunStore, name: str, url: str) -> None:
    with Client(url, timeout_s=60) as client:
        Recorder(store, lambda _n, _c: _Running(name, url), lambda _n, _s: client, _Quiet()).record(name)


class FaultRuns:
    """Makes runs that share one recording of the baseline; ``url`` is the baseline's."""

    def __init__(self, folder: Path, url: str, prompts: PromptSet, cap: int) -> None:
        self.folder, self.url = folder, url
        tokenizer = Tokenizer.from_folder(TARGET)
        self._prompts = tuple(recorded_prompt(p, tokenizer, cap) for p in prompts.prompts)
        self._tokenizer = tokenizer
        self._first = RunStore(folder / "baseline")
        self._lay_out(self._first, (), None, tuple(p.id for p in self._prompts))
        _record(self._first, "baseline", url)

    def _lay_out(self, store: RunStore, variants: tuple[str, ...], fault: str | None, prompts: tuple[str, ...]) -> None:
        manifest = Manifest(
            key="k" * 64,
            profile="tiny",
            kind="reference",
            target="builtin:tiny",
            dtype="float32",
            variants=variants,
            prompt_set="faults",
            prompt_digest="p",
            tokenizer_digest=self._tokenizer.digest,
            model_digest=None,
            eos_ids=(1,),
            concurrency=4,
            tool_version="0",
            created="2026-01-01T00:00:00+00:00",
            fault=fault,
            epsilon=0.001,  # a few short prompts are too few for a floor of their own
        )
        store.create(manifest, tuple(p for p in self._prompts if p.id in prompts), {}, self._tokenizer.content)

    def run(self, variant: str, fault: str, prompts: tuple[str, ...]) -> Analysis:
        """A run of some of the prompts on one variant with this fault, the baseline's answers kept from before."""
        store = RunStore(self.folder / f"{variant}-{fault.replace(':', '-')}")
        self._lay_out(store, (variant,), fault, prompts)
        for part in ("servers", "records"):
            shutil.copytree(self._first.path / part, store.path / part, dirs_exist_ok=True)
        with background([*CHUNK, *VARIANTS[variant], "--fault", fault]) as url:
            _record(store, variant, url)
        _record(store, "baseline", self.url)
        return analyze(store)


@contextmanager
def fault_runs(folder: Path, prompts: tuple[str, ...], *, cap: int) -> Iterator[FaultRuns]:
    """A maker of runs with these prompts of the standard set, ``cap`` tokens at most."""
    with background(CHUNK) as url:
        yield FaultRuns(folder, url, load_prompts("standard").select(prompts), cap)
