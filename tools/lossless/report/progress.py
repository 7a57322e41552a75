"""What a person sees while a run is recorded: bars on a terminal, one line a stage elsewhere."""

import threading
import time
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from lossless.record.store import ServerState


class RecordingProgress:
    """Progress of all servers of one run. Thread-safe: two servers may be recorded side by side."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._lock = threading.Lock()
        self._tasks: dict[str, TaskID] = {}
        self._tokens: dict[str, int] = {}
        self._began: dict[str, float] = {}
        self._quiet = quiet
        self._bars = (
            Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[note]}"),
                console=self._console,
                transient=True,
            )
            if self._console.is_terminal and not quiet
            else None
        )

    @property
    def on_terminal(self) -> bool:
        """Whether bars are drawn; otherwise each stage is one line."""
        return self._bars is not None

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def starting(self, server: str, line: str) -> None:
        with self._lock:
            if self._bars is not None:
                self._bars.update(self._task(server), description=f"{server}: starting", note=line[:60])
            elif not self._quiet:
                self._console.print(f"lossless: {server}: {line}", markup=False)

    def stage(self, server: str, stage: str, total: int, done: int) -> None:
        with self._lock:
            self._tokens[server] = 0
            self._began[server] = time.monotonic()
            if self._bars is not None:
                self._bars.reset(self._task(server), total=total, completed=done, description=f"{server}: {stage}")
            elif not self._quiet:
                left = f", {done} kept from before" if done else ""
                self._console.print(f"lossless: {server}: {stage}, {total} requests{left}", markup=False)

    def advance(self, server: str, stage: str, tokens: int) -> None:  # noqa: ARG002
        with self._lock:
            self._tokens[server] = self._tokens.get(server, 0) + tokens
            if self._bars is not None:
                seconds = time.monotonic() - self._began.get(server, time.monotonic())
                rate = f"{self._tokens[server] / seconds:.0f} tokens/s" if seconds > 0 else ""
                self._bars.update(self._task(server), advance=1, note=rate)

    def finished(self, state: ServerState) -> None:
        with self._lock:
            if self._bars is not None and state.name in self._tasks:
                self._bars.remove_task(self._tasks.pop(state.name))
            if self._quiet:
                return
            if state.problem:
                self._console.print(f"lossless: {state.name}: NOT COMPLETE: {state.problem}", markup=False)
            else:
                took = f"start {state.start_s:.1f} s, generation {state.generate_s:.1f} s"
                took += f", re-scoring {state.score_s:.1f} s" if state.score_s else ""
                self._console.print(f"lossless: {state.name}: recorded ({took})", markup=False)

    def _task(self, server: str) -> TaskID:
        assert self._bars is not None
        if server not in self._tasks:
            self._tasks[server] = self._bars.add_task(server, total=None, note="")
        return self._tasks[server]
