"""A suite session: chooses the run folder, records what is missing, and hands out the analysis.

Under pytest-xdist every worker has a session of its own on the same folder. Whoever comes first records a server; the
others wait for its lock and read the result, so that all workers judge the same answers.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import cast

from filelock import FileLock, Timeout

from lossless.analysis import Analysis, analyze
from lossless.bench.bencher import Bencher, Running, bench_key, plan_for
from lossless.errors import UsageError
from lossless.profiles import BASELINE
from lossless.protocol.client import Client
from lossless.record.recorder import Progress, Recorder, RecordingClient, RecordingServer
from lossless.record.runs import find_run, new_run_path, resumable
from lossless.record.store import RunStore, ServerState
from lossless.report.evidence import evidence
from lossless.servers import Server, make_server
from lossless.servers.diagnosis import explain
from lossless.suite.cards import POLL_S, lease, lock_folder, visible_cards
from lossless.suite.options import RESUME_WORDS, Options
from lossless.suite.prepare import Prepared, manifest, open_tokenizer, prepare, recorded_prompt

IN_USE = ".in-use"


class SuiteSession:
    """One session on one run folder.

    ``attempt`` is the same in all workers of one command: a server that failed is tried once a command, not once a
    worker.
    """

    def __init__(self, options: Options, *, attempt: str, run: Path | None = None) -> None:
        self.options = options
        self.attempt = attempt
        self._run = run
        self._held: FileLock | None = None
        self.notices: list[str] = []
        self._servers: list[Server] = []
        self._stopping = threading.Event()

    @cached_property
    def prepared(self) -> Prepared:
        return prepare(self.options)

    @cached_property
    def store(self) -> RunStore:
        """The run folder: given, resumed, or new (then not created yet). A run that is resumed is held at once; one
        that another command holds is not resumed, and ``notices`` says so."""
        if self._run is not None:
            return RunStore(self._run)
        if self.options.resume not in RESUME_WORDS:
            return find_run(self.options.runs, self.options.resume)
        if self.options.resume == "auto":
            found = resumable(self.options.runs, self.prepared.key)
            if found is not None:
                if self._take(found.path):
                    return found
                self.notices.append(
                    f"run {found.path.name} is unfinished and another command is recording it: starting a new run"
                )
        return RunStore(new_run_path(self.options.runs, self.prepared.profile.name, self.prepared.key))

    def hold(self) -> None:
        """Mark the run folder as in use until :meth:`release` or the end of this process, so that another command does
        not resume it. For the one process that controls a command, never for its workers.

        Raises:
            UsageError: another command took the folder first.
        """
        if self._run is not None or self.options.resume not in RESUME_WORDS or self._held is not None:
            return
        path = self.store.path
        if self._held is None and not self._take(path):
            raise UsageError(f"run folder {path} was taken by another command", hint="run the same command again")

    def release(self) -> None:
        """Give the run folder back; no harm if it is not held."""
        if self._held is not None:
            self._held.release()
            self._held = None

    def _take(self, path: Path) -> bool:
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / IN_USE, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        self._held = lock
        return True

    # ---------------------------------------------------------------- recording
    def record(self, progress: Progress) -> Analysis:
        """Record whatever is missing, then analyze. Servers never outlive this call.

        Raises:
            UsageError: bad input. A server's failure is no exception here: it makes verdicts inconclusive.
        """
        store = self.store
        if self.options.resume in RESUME_WORDS or not store.exists:
            self._create(store)
            recorder = Recorder(store, self._make, self._connect, progress, self._lease(progress), self.attempt)
            if self.options.bench:
                recorder = self._benching(recorder, progress)
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
            tokenizer, folder = open_tokenizer(prepared.profile, self.served_model())
            target = folder if prepared.profile.tokenizer is None else None
            cap = prepared.profile.max_new_tokens
            prompts = tuple(recorded_prompt(p, tokenizer, cap) for p in prepared.prompts.prompts)
            goldens = {k: g.golden for k, g in prepared.goldens.items()}
            store.create(manifest(prepared, tokenizer, target), prompts, goldens, tokenizer.content)

    def served_model(self) -> str | None:
        """What a running baseline names as its tokenizer or model; None where the profile says it."""
        profile = self.prepared.profile
        if profile.kind != "attach" or profile.tokenizer_source != "auto":
            return None
        with make_server(profile, BASELINE, log_dir=self.store.path) as server, self._client(server) as client:
            info = client.model_info()
            return info.get("tokenizer_path") or info.get("model_path")

    def _record_all(self, recorder: Recorder, store: RunStore) -> None:
        """With room for one server: variants first, the baseline last, since it re-scores what they said. With more
        room the baseline runs beside them, once they have started, and waits before it re-scores."""
        variants, (_, room) = list(self.prepared.profile.variants), self._places
        if room < 2:
            for name in (*variants, BASELINE):
                self._record_one(recorder, store, name)
            return

        def variants_recorded() -> None:
            for name in variants:
                self._record_one(recorder, store, name)

        beside = replace(recorder, before_scoring=variants_recorded, lease=self._baseline_last(recorder))
        with ThreadPoolExecutor(room, thread_name_prefix="lossless-record") as pool:
            futures = [pool.submit(self._record_one, beside, store, name) for name in (*variants, BASELINE)]
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
            state = recorder.record(name)
            (locks / f"{name}.ended").write_text(self.attempt, encoding="utf-8")
            return state

    def _baseline_last(self, recorder: Recorder) -> Callable[[str], contextlib.AbstractContextManager[tuple[str, ...]]]:
        """Leases in which the baseline takes its card when every variant has one, or has ended. It waits for them with
        its own card in hand, so two commands on the same cards would otherwise wait for each other for ever."""
        locks = self.store.path / "locks"
        variants = tuple(self.prepared.profile.variants)

        def settled(name: str) -> bool:
            ended = locks / f"{name}.ended"
            if ended.is_file() and ended.read_text(encoding="utf-8") == self.attempt:
                return True
            try:
                with FileLock(locks / f"{name}.leased", timeout=0, thread_local=False):
                    return False
            except Timeout:
                return True

        @contextlib.contextmanager
        def held(name: str) -> Iterator[tuple[str, ...]]:
            if name == BASELINE:
                told: list[str] = []
                while waiting := [variant for variant in variants if not settled(variant)]:
                    if self._stopping.is_set():
                        raise KeyboardInterrupt
                    if waiting != told:
                        recorder.progress.starting(name, f"waiting for {', '.join(waiting)} to start first")
                        told = waiting
                    time.sleep(POLL_S)
                with recorder.lease(name) as taken:
                    yield taken
                return
            with recorder.lease(name) as taken, FileLock(locks / f"{name}.leased", thread_local=False):
                yield taken

        return held

    def _benching(self, recorder: Recorder, progress: Progress) -> Recorder:
        """The recorder, with each server measured after its verdict stages (``_places``: alone on its device)."""
        profile = self.prepared.profile
        tokenizer, _ = open_tokenizer(profile, self.served_model())
        plan = plan_for(profile, tokenizer, self.store.prompts)
        key = bench_key(profile, plan, self.options.fault)
        bencher = Bencher(self.store.path, profile, plan, key, progress, tokenizer.vocab_size)

        def measure(server: RecordingServer, cards: tuple[str, ...], start_s: float) -> None:
            running = cast(Server, server)
            bencher.measure(Running(server.name, running.url, running.api_key, server.check, cards, start_s))

        return replace(recorder, unmeasured=bencher.missing, measure=measure)

    # ------------------------------------------------------------------ servers
    @property
    def room(self) -> int:
        """How many servers fit side by side."""
        return self._places[1]

    @contextlib.contextmanager
    def running(self, name: str, progress: Progress) -> Iterator[tuple[Server, tuple[str, ...], float]]:
        """A server of the profile while the block runs: the server, the cards it got, and seconds to start it.

        Raises:
            ServerError: it did not start.
        """
        with self._lease(progress)(name) as cards:
            server = cast(Server, self._make(name, cards))
            try:
                began = time.monotonic()
                server.start(lambda line: progress.starting(name, line))
                yield server, cards, time.monotonic() - began
            finally:
                server.stop()

    @cached_property
    def _places(self) -> tuple[tuple[str, ...], int]:
        """The cards (or, without cards, the places of this run), and how many servers fit side by side."""
        profile = self.prepared.profile
        # The embedded engine needs no card, but cards given by name are leased for it too.
        leasing = profile.kind == "sglang" or (profile.kind == "reference" and self.options.gpus is not None)
        cards = visible_cards(self.options.gpus) if leasing else ()
        if cards:
            apart = profile.kind != "reference" or not self.options.bench  # the embedded engine computes on no card
            return cards, max(1, len(cards) // profile.tp_size) if apart else 1
        count = len(profile.variants) + 1 if profile.kind == "attach" else profile.parallel_servers
        if self.options.bench:  # what one server does would slow the one that is measured on the same device
            count = 1
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


def in_use(path: Path) -> bool:
    """Whether a command that is running now records into this run folder."""
    if not (path / IN_USE).exists():
        return False
    try:
        with FileLock(path / IN_USE, timeout=0, thread_local=False):
            return False
    except Timeout:
        return True
