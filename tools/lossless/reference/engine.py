"""The engine thread: takes requests in, and moves each request in flight one step at a time, in turn.

One thread computes everything, so the weights, the prefix cache and the states need no locks; several requests are in
flight together all the same, and their steps interleave as they would in a batch.
"""

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lossless.reference.answers import answer
from lossless.reference.faults.base import Fault
from lossless.reference.generation import Generation, Models
from lossless.reference.requests import Request

Sink = Callable[[dict[str, Any], bool], None]
"""Called on the engine thread with an answer body and whether it is the last one of the request."""


@dataclass
class Stats:
    """Figures since the last flush. ``accepted`` counts accepted drafts, ``verified`` verify steps."""

    accepted: int = 0
    verified: int = 0
    tokens: int = 0
    busy_s: float = 0.0

    @property
    def accept_length(self) -> float | None:
        """Mean tokens a verify step put out, the bonus token included; None before the first one."""
        return self.accepted / self.verified + 1 if self.verified else None


@dataclass
class _Entry:
    request: Request
    sink: Sink
    generation: Generation | None = None
    aborted: bool = field(default=False)


class Engine:
    """Serves requests on one background thread.

    ``submit`` and the other public methods may be called from any thread.
    """

    def __init__(self, models: Models, fault: Fault, max_running: int) -> None:
        self.models, self.fault, self.max_running = models, fault, max_running
        self.stats = Stats()
        self._waiting: deque[_Entry] = deque()
        self._running: list[_Entry] = []
        self._wake = threading.Condition()
        self._flush_asked = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start computing."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current step; requests in flight are dropped."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()

    @property
    def alive(self) -> bool:
        """Is the thread running?"""
        return self._thread.is_alive()

    @property
    def pending(self) -> int:
        """Requests waiting or running."""
        return len(self._waiting) + len(self._running)

    def submit(self, request: Request, sink: Sink) -> None:
        """Queue one request.

        Raises:
            ValueError: a request of this id is in flight.
        """
        with self._wake:
            if any(entry.request.rid == request.rid for entry in (*self._waiting, *self._running)):
                raise ValueError(f"Duplicate request ID detected: {request.rid}")
            self._waiting.append(_Entry(request, sink))
            self._wake.notify_all()

    def abort(self, rid: str = "", *, everything: bool = False) -> None:
        """End requests at their next step: the ones whose id starts with ``rid`` (as SGLang does), or all."""
        with self._wake:
            for entry in (*self._waiting, *self._running):
                if everything or (rid and entry.request.rid.startswith(rid)):
                    entry.aborted = True

    def flush(self) -> bool:
        """Empty the prefix cache and reset the figures; False, and nothing done, while requests are pending."""
        with self._wake:
            if self._waiting or self._running:
                return False
            if self.models.cache is not None:
                self.models.cache.clear()
            self.stats = Stats()
            return True

    # -- the thread -------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        with np.errstate(all="ignore"):  # exp() overflows to inf on purpose in sigmoid and silu
            while True:
                with self._wake:
                    while not (self._stopping or self._waiting or self._running):
                        self._wake.wait()
                    if self._stopping:
                        return
                    while self._waiting and len(self._running) < self.max_running:
                        self._running.append(self._waiting.popleft())
                    turn = list(self._running)
                began = time.perf_counter()
                peers = [entry.generation for entry in turn if entry.generation is not None]
                for entry in turn:
                    if self._stopping:
                        return
                    self._advance(entry, peers)
                self.stats.busy_s += time.perf_counter() - began

    def _advance(self, entry: _Entry, peers: list[Generation]) -> None:
        try:
            if entry.generation is None:
                entry.generation = Generation(self.models, entry.request, self.fault)
                peers.append(entry.generation)
            g = entry.generation
            g.peers, g.abort_requested = peers, entry.aborted
            before = len(g.output)
            g.step()
            self.stats.tokens += len(g.output) - before
            last = g.finish is not None
            body = answer(g, final=last) if last or (entry.request.stream and len(g.output) > before) else None
        except Exception as problem:  # one broken request must not take the others down
            traceback.print_exc()
            message = f"Internal error: {type(problem).__name__}: {problem}"
            body, last = {"error": {"message": message, "code": 500}}, True
        if last:
            if entry.generation is not None:
                self.stats.accepted += entry.generation.tally.correct
                self.stats.verified += entry.generation.tally.steps
            with self._wake:
                self._running.remove(entry)
        if body is not None:
            entry.sink(body, last)
