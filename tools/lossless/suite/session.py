"""A suite session: chooses the run folder, records what is missing, and hands out the analysis.

Under pytest-xdist every worker has a session of its own on the same folder. Whoever comes first records a server; the
others wait for its lock and read the result, so that all workers judge the same answers.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from filelock import FileLock, Timeout

from lossless.analysis import Analysis, analyze
from lossless.profiles import BASELINE
from lossless.protocol.client import Client
from lossless.record.recorder import Progress, Recorder, RecordingClient, RecordingServer
from lossless.record.runs import find_run, new_run_path, resumable
from lossless.record.store import RunStore, ServerState
from lossless.report.evidence import evidence
from lossless.servers import Server, make_server
from lossless.servers.diagnosis import explain
from lossless.suite.cards import lease, lock_folder, visible_cards
from lossless.suite.options import Options
from lossless.suite.prepare import Prepared, manifest, open_tokenizer, prepare, recorded_prompt


class SuiteSession:
    """One session on one run folder.

    ``attempt`` is the same in all workers of one command: a server that failed is tried once a command, not once a
    worker.
    """

    def __init__(self, options: Options, *, attempt: str, run: Path | None = None) -> None:
        self.options = options
        self.attempt = attempt
        self._run = run
        self._servers: list[Server] = []
        self._stopping = threading.Event()

    @cached_property
    def prepared(self) -> Prepared:
        return prepare(self.options)

    @cached_property
    def store(self) -> RunStore:
        """The run folder: given, resumed, or new (then not created yet)."""
        if self._run is not None:
            return RunStore(self._run)
        if self.options.resume not in ("auto", "never"):
            return find_run(self.options.runs, self.options.resume)
        if self.options.resume == "auto":
            found = resumable(self.options.runs, self.prepared.key)
            if found is not None and not _in_use(found):
                return found
        return RunStore(new_run_path(self.options.runs, self.prepared.profile.name, self.prepared.key))

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Mark the run folder as in use, so that another command does not resume it. Held by one process a command."""
        self.store.path.mkdir(parents=True, exist_ok=True)
        with FileLock(self.store.path / ".in-use", thread_local=False):
            yield

    # ---------------------------------------------------------------- recording
    def record(self, progress: Progress) -> Analysis:
        """Record whatever is missing, then analyze. Servers never outlive this call.

        Raises:
            UsageError: bad input. A server's failure is no exception here: it makes verdicts inconclusive.
        """
        store = self.store
        if self.options.resume in ("auto", "never") or not store.exists:
            self._create(store)
            recorder = Recorder(store, self._make, self._connect, progress, self._lease(progress), self.attempt)
            try:
                self._record_all(recorder, store)
            except BaseException:
                self.stop()
                raise
        return self.analysis

    @property
    def analysis(self) -> Analysis:
        """The analysis of what the run folder holds now."""
        return analyze(self.store, epsilon=self.options.epsilon)

    def write_evidence(self) -> Path:
        """Put the verdicts as JSON into the run folder."""
        return self.store.write_evidence(evidence(self.analysis))

    def stop(self) -> None:
        """Stop every server this session started, from any thread."""
        self._stopping.set()
        for server in self._servers:
            server.stop()

    def _create(self, store: RunStore) -> None:
        store.path.mkdir(parents=True, exist_ok=True)
        with FileLock(store.path / ".create", thread_local=False):
            if store.exists:
                return
            prepared = self.prepared
            tokenizer, folder = open_tokenizer(prepared.profile, self._served_model())
            target = folder if prepared.profile.tokenizer is None else None
            cap = prepared.profile.max_new_tokens
            prompts = tuple(recorded_prompt(p, tokenizer, cap) for p in prepared.prompts.prompts)
            goldens = {k: g.golden for k, g in prepared.goldens.items()}
            store.create(manifest(prepared, tokenizer, target), prompts, goldens, tokenizer.content)

    def _served_model(self) -> str | None:
        profile = self.prepared.profile
        if profile.kind != "attach" or profile.tokenizer_source != "auto":
            return None
        with make_server(profile, BASELINE, log_dir=self.store.path) as server, self._client(server) as client:
            info = client.model_info()
            return info.get("tokenizer_path") or info.get("model_path")

    def _record_all(self, recorder: Recorder, store: RunStore) -> None:
        """With room for one server: variants first, the baseline last, since it re-scores what they said. With more
        room the baseline runs beside them and waits before it re-scores."""
        variants, (_, room) = list(self.prepared.profile.variants), self._places
        if room < 2:
            for name in (*variants, BASELINE):
                self._record_one(recorder, store, name)
            return

        def variants_recorded() -> None:
            for name in variants:
                self._record_one(recorder, store, name)

        beside = replace(recorder, before_scoring=variants_recorded)
        with ThreadPoolExecutor(room, thread_name_prefix="lossless-record") as pool:
            futures = [pool.submit(self._record_one, beside, store, name) for name in (BASELINE, *variants)]
            try:
                for future in futures:
                    future.result()
            except BaseException:  # Ctrl-C too: end the servers, or the other threads go on to their end
                self.stop()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _record_one(self, recorder: Recorder, store: RunStore, name: str) -> ServerState:
        locks = store.path / "locks"
        locks.mkdir(exist_ok=True)
        with FileLock(locks / f"{name}.lock", thread_local=False):
            return recorder.record(name)

    # ------------------------------------------------------------------ servers
    @cached_property
    def _places(self) -> tuple[tuple[str, ...], int]:
        """The cards (or, without cards, the places of this run), and how many servers fit side by side."""
        profile = self.prepared.profile
        cards = visible_cards(self.options.gpus) if profile.kind == "sglang" else ()
        if cards:
            return cards, max(1, len(cards) // profile.tp_size)
        count = len(profile.variants) + 1 if profile.kind == "attach" else profile.parallel_servers
        return tuple(f"place-{k}" for k in range(count)), count

    def _lease(self, progress: Progress) -> Callable[[str], contextlib.AbstractContextManager[tuple[str, ...]]]:
        places, _ = self._places
        with_cards = not places[0].startswith("place-")
        folder = lock_folder() if with_cards else self.store.path / "locks"
        count = self.prepared.profile.tp_size if with_cards else 1

        @contextlib.contextmanager
        def held(name: str) -> Iterator[tuple[str, ...]]:
            folder.mkdir(parents=True, exist_ok=True)
            with lease(folder, places, count, lambda line: progress.starting(name, line)) as taken:
                yield taken if with_cards else ()

        return held

    def _make(self, name: str, gpus: tuple[str, ...]) -> RecordingServer:
        fault = None if name == BASELINE else self.options.fault
        server = make_server(
            self.prepared.profile,
            name,
            log_dir=self.store.path / "logs",
            gpus=gpus,
            fault=fault,
            explain=explain,
        )
        self._servers.append(server)
        if self._stopping.is_set():
            raise KeyboardInterrupt
        return server

    def _connect(self, _name: str, server: RecordingServer) -> RecordingClient:
        return self._client(server)  # type: ignore[arg-type]

    def _client(self, server: Server) -> Client:
        vocab = None
        if self.store.exists:
            tokenizer = self.analysis.tokenizer
            vocab = tokenizer.vocab_size if tokenizer else None
        return Client(
            server.url,
            api_key=server.api_key,
            timeout_s=self.prepared.profile.request_timeout_s,
            vocab_size=vocab,
            check=server.check,
        )


def _in_use(store: RunStore) -> bool:
    try:
        with FileLock(store.path / ".in-use", timeout=0, thread_local=False):
            return False
    except Timeout:
        return True
