"""Runs of the suite's recorder on servers of the embedded engine, with a baseline that is recorded once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.detection.plan import CHUNK

from lossless.analysis import Analysis, analyze
from lossless.profiles import load_profile
from lossless.protocol.client import Client
from lossless.record.model import model_facts
from lossless.record.recorder import Recorder, RecordingClient, RecordingServer
from lossless.record.store import Manifest, RecordedPrompt, RunStore, ServerState
from lossless.reference.background import background
from lossless.reference.builtin import builtin_path
from lossless.servers import make_server

BASELINE = "baseline"
CONCURRENCY = 4


class ThreadServer:
    """A reference server on a thread of this process."""

    settings: Mapping[str, str] | None = None

    def __init__(self, name: str, options: Sequence[str]) -> None:
        self.name, self.options, self.url = name, options, ""
        self._running = ExitStack()

    def start(self, _on_progress: Callable[[str], None]) -> None:
        self.url = self._running.enter_context(background(self.options))

    def check(self) -> None:
        return

    def stop(self) -> None:
        self._running.close()


class ColdRecorder(Recorder):
    """Without the warm-up: there are no kernels to compile here, and it would be a fifth of the work."""

    def _warm_up(self, *_: object) -> None:
        return


class Quiet:
    """Tells nobody."""

    def starting(self, server: str, line: str) -> None: ...

    def stage(self, server: str, stage: str, total: int, done: int) -> None: ...

    def advance(self, server: str, stage: str, tokens: int) -> None: ...

    def finished(self, state: ServerState) -> None: ...


@dataclass
class Servers:
    """How the servers of one run are made. ``options`` by server name; ``fault`` is planted in ``faulty``, in a process
    of its own if asked for."""

    options: Mapping[str, Sequence[str]]
    logs: Path
    timeout_s: float = 120.0
    fault: str | None = None
    faulty: str | None = None
    process: bool = False
    warm_up: bool = False
    clients: list[Client] = field(default_factory=list)

    def make(self, name: str, _cards: tuple[str, ...]) -> RecordingServer:
        fault = self.fault if name == self.faulty else None
        if fault is not None and self.process:
            profile = load_profile("tiny-bfloat16")
            return make_server(profile, name, log_dir=self.logs, fault=fault)
        options = [*self.options[name], *(["--fault", fault] if fault else [])]
        return ThreadServer(name, options)

    def connect(self, _name: str, server: Any) -> RecordingClient:
        client = Client(server.url, timeout_s=self.timeout_s, check=server.check)
        self.clients.append(client)
        return client


@dataclass(frozen=True)
class Workshop:
    """Where runs are recorded. ``folder`` holds them; the baseline's answers are copied from run to run.
    ``extra`` are more options for the baseline."""

    folder: Path
    dtype: str = "bfloat16"
    extra: tuple[str, ...] = ()

    def baseline_options(self) -> tuple[str, ...]:
        return ("--dtype", self.dtype, *CHUNK, *self.extra)

    def record(
        self,
        name: str,
        prompts: tuple[RecordedPrompt, ...],
        variants: Mapping[str, Sequence[str]],
        *,
        algorithms: Mapping[str, str] | None = None,
        seeded_from: RunStore | None = None,
        servers: Servers | None = None,
        epsilon: float | None = None,
        allow: tuple[str, ...] = (),
        fault: str | None = None,
    ) -> Analysis:
        """Record ``variants`` (options by name), then the baseline, and analyze."""
        store = RunStore(self.folder / name)
        target = builtin_path() / "target"
        manifest = Manifest(
            key=name,
            profile="detection",
            kind="reference",
            target="builtin:tiny",
            dtype=self.dtype,
            variants=tuple(variants),
            prompt_set="detection",
            prompt_digest="",
            tokenizer_digest="",
            model_digest=None,
            eos_ids=model_facts(target).eos_ids,
            concurrency=CONCURRENCY,
            tool_version="benchmark",
            created="",
            fault=fault,
            epsilon=epsilon,
            allow_differences=allow,
            algorithms=dict(algorithms or {}),
        )
        store.create(manifest, prompts, {}, (target / "tokenizer.json").read_text(encoding="utf-8"))
        if seeded_from is not None:
            seed(store, seeded_from)
        made = servers or Servers({}, store.path / "logs")
        made = replace(made, options={**variants, BASELINE: self.baseline_options(), **made.options}, clients=[])
        recorder = (Recorder if made.warm_up else ColdRecorder)(store, made.make, made.connect, Quiet())
        try:
            for server in (*variants, BASELINE):
                recorder.record(server)
        finally:
            for client in made.clients:
                client.close()
        return analyze(store)


def seed(store: RunStore, source: RunStore) -> None:
    """Copy what the baseline answered to these very requests in another run: it is repeatable, and honest. What it
    answered with logprobs comes along, so the noise floor is that of the core prompts in each run."""
    state = source.server(BASELINE)
    if state is None:
        return
    prompts = store.prompts
    asked = {p.id: p for p in source.prompts}
    same = {p.id for p in prompts if p.id in asked and (asked[p.id].ids, asked[p.id].sampling) == (p.ids, p.sampling)}
    for record in source.answers(BASELINE).values():
        if record.prompt in same:
            store.append(BASELINE, record)
    store.write_server(state)


def union(groups: Iterable[tuple[RecordedPrompt, ...]]) -> tuple[RecordedPrompt, ...]:
    """Every prompt once, as the first group has it."""
    found: dict[str, RecordedPrompt] = {}
    for group in groups:
        for prompt in group:
            found.setdefault(prompt.id, prompt)
    return tuple(found.values())
