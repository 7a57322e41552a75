"""Start the reference server in this process."""

import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType

import psutil
import uvicorn
from starlette.applications import Starlette

from lossless.errors import UsageError
from lossless.reference.app import make_app
from lossless.reference.blas import use_one_thread
from lossless.reference.builtin import model_folder
from lossless.reference.config import read_draft, read_target
from lossless.reference.dflash import Dflash
from lossless.reference.drafting import Drafter
from lossless.reference.engine import Engine
from lossless.reference.faults import make_fault
from lossless.reference.generation import Models
from lossless.reference.info import Startup
from lossless.reference.nextn import Nextn
from lossless.reference.numerics import LogitNoise, reordered
from lossless.reference.options import ServerOptions, checked, parse_options
from lossless.reference.prefix_cache import PrefixCache
from lossless.reference.requests import Limits
from lossless.reference.target import Target
from lossless.reference.text import Tokenizer
from lossless.reference.weights import Weights

log = logging.getLogger("lossless.reference")

CACHE_BLOCKS = 96
"""Prefix-cache bound, in blocks of 64 tokens; a block takes about 2 MB."""
PARENT_POLL_S = 0.5


def load_models(o: ServerOptions) -> Models:
    """Load the target, and the draft that the options ask for.

    Raises:
        UsageError: missing or unfit model folders.
    """
    folder = model_folder(o.model_path, "target")
    began = time.perf_counter()
    weights = Weights.load(folder)
    if o.summation_order:
        weights = reordered(weights, read_target(folder).config.hidden_size, o.summation_order)
    noise = LogitNoise(o.logit_noise, o.seed) if o.logit_noise else None
    target = Target.load(folder, o.dtype, weights, noise)
    _log_loaded("Target", began, weights)
    drafter = _load_drafter(o, target, weights)
    cache = None if o.disable_radix_cache else PrefixCache(CACHE_BLOCKS, drafter.lag if drafter else 0)
    chunk = o.chunked_prefill_size if o.chunked_prefill_size > 0 else target.config.max_position_embeddings
    return Models(target, drafter, Tokenizer(folder), cache, chunk)


def _load_drafter(o: ServerOptions, target: Target, weights: Weights) -> Drafter | None:
    if o.speculative_algorithm is None:
        return None
    if o.nextn:
        if o.speculative_draft_model_path not in (None, o.model_path):
            weights = Weights.load(model_folder(o.speculative_draft_model_path or "", "target"))
        return Nextn(target, weights, o.speculative_num_steps or 3)
    assert o.speculative_draft_model_path is not None
    folder = model_folder(o.speculative_draft_model_path, "dflash2")
    began = time.perf_counter()
    draft_weights = Weights.load(folder)
    draft = Dflash(target, read_draft(folder, target.config), draft_weights, o.speculative_num_draft_tokens)
    _log_loaded("DFlash2", began, draft_weights)
    return draft


def _log_loaded(kind: str, began: float, weights: Weights) -> None:
    elapsed, size = time.perf_counter() - began, weights.count * 4 / 2**30
    log.info("Load weight end. elapsed=%.2f s, type=%s, mem usage=%.2f GB.", elapsed, kind, size)


def limits_of(target: Target) -> Limits:
    """Request limits; the last input length SGLang accepts is 7 below the context."""
    context = target.config.max_position_embeddings
    return Limits(context, target.config.vocab_size, context - 6)


class Server(uvicorn.Server):
    """Leaves at once on SIGTERM and SIGINT, requests in flight or not."""

    def __init__(self, app: Starlette) -> None:
        super().__init__(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = True
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.force_exit:  # a broken connection is honest, the 500 that uvicorn would send is not
            for connection in list(self.server_state.connections):
                connection.transport.abort()
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        log.info("The server is fired up and ready to roll!")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 lets the system choose.

    Raises:
        UsageError: the port is taken, or not ours to take.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio switches Nagle's algorithm off only then: without it every answer on a kept
    # connection waits 40 ms for the client's delayed acknowledgment.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)  # now, so that of two servers started at once on one port the second notices
    except OSError as problem:
        listener.close()
        raise UsageError(
            f"cannot listen on {host}:{port}: {problem.strerror or problem}",
            hint="choose another --port, or 0 for a free one",
        ) from problem
    return listener


def _leave_with(parent: int) -> None:
    """Exit soon after the process ``parent`` is gone, so that a crashed test leaves no server behind."""
    try:
        watched = psutil.Process(parent)
    except psutil.NoSuchProcess:
        raise UsageError(f"--parent-pid {parent}: no such process") from None

    def watch() -> None:
        while True:
            try:
                if not watched.is_running() or watched.status() == psutil.STATUS_ZOMBIE:
                    break
            except psutil.NoSuchProcess:
                break
            time.sleep(PARENT_POLL_S)
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def build(o: ServerOptions) -> tuple[Starlette, Engine]:
    """Load everything and start the engine; the caller serves the application, and stops the engine when done.

    Raises:
        UsageError: an unknown fault, or missing or unfit model folders.
    """
    began = time.perf_counter()
    use_one_thread()
    fault = make_fault(o.fault, o.seed)
    models = load_models(o)
    loaded = time.perf_counter() - began
    limits = limits_of(models.target)
    engine = Engine(models, fault, o.max_running_requests)
    engine.start()
    log.info(
        "chunked_prefill_size=%d, max_running_requests=%d, context_len=%d, url=http://%s:%d",
        o.chunked_prefill_size, o.max_running_requests, limits.context, o.host, o.port,
    )  # fmt: skip
    return make_app(engine, o, limits, Startup(loaded, time.perf_counter() - began)), engine


def serve(options: ServerOptions | Sequence[str]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        options: a command line (without the program's name) or finished options.

    Raises:
        UsageError: bad options, missing model folders, or a port in use.
    """
    o = checked(options) if isinstance(options, ServerOptions) else parse_options(options)
    logging.basicConfig(format="[%(asctime)s] %(message)s", datefmt="%Y-%m-%d %H:%M:%S", level=logging.INFO)
    if o.parent_pid is not None:
        _leave_with(o.parent_pid)
    listener = listen(o.host, o.port)
    try:
        app, engine = build(replace(o, port=listener.getsockname()[1]))
        try:
            Server(app).run(sockets=[listener])
        finally:
            engine.stop()
    finally:
        listener.close()
