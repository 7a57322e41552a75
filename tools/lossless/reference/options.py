"""Command-line options of the reference server: SGLang's names where SGLang has them."""

import argparse
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from lossless.errors import UsageError
from lossless.reference.builtin import BUILTIN
from lossless.reference.ops import ROUNDINGS

ALGORITHMS = ("NEXTN", "EAGLE", "DFLASH")


@dataclass(frozen=True)
class ServerOptions:
    """Everything a reference server is started with. ``port`` 0 lets the system choose one (see the log)."""

    model_path: str = BUILTIN
    speculative_algorithm: str | None = None
    speculative_draft_model_path: str | None = None
    speculative_num_steps: int | None = None
    speculative_num_draft_tokens: int | None = None
    dtype: str = "float32"
    host: str = "127.0.0.1"
    port: int = 30000
    chunked_prefill_size: int = 8192
    max_running_requests: int = 8
    disable_radix_cache: bool = False
    fault: str | None = None
    seed: int = 0
    summation_order: int = 0
    logit_noise: float = 0.0
    parent_pid: int | None = None

    @property
    def nextn(self) -> bool:
        """Is the NEXTN head of the target checkpoint the draft? (SGLang runs NEXTN as EAGLE.)"""
        return self.speculative_algorithm in ("NEXTN", "EAGLE")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(message, hint="lossless serve --help")


def parser() -> argparse.ArgumentParser:
    """The argument parser."""
    p = _Parser(
        prog="lossless serve",
        description="Serve the embedded reference engine over SGLang's native HTTP protocol.",
    )
    add = p.add_argument
    add("--model-path", default=BUILTIN, metavar="DIR", help=f"target folder, or {BUILTIN} (the default)")
    add("--speculative-algorithm", choices=ALGORITHMS, help="draft with the checkpoint's MTP head, or with DFlash2")
    add("--speculative-draft-model-path", metavar="DIR", help=f"draft folder, or {BUILTIN}")
    add("--speculative-num-steps", type=int, metavar="N", help="drafts a verification for NEXTN (default 3)")
    add("--speculative-eagle-topk", type=int, metavar="N", help="only 1, a chain, exists here")
    add("--speculative-num-draft-tokens", type=int, metavar="N", help="tokens a verified block")
    add("--dtype", choices=tuple(ROUNDINGS), default="float32", help="rounding of activations (default float32)")
    add("--host", default="127.0.0.1", help="loopback address to listen on")
    add("--port", type=int, default=30000, help="port to listen on; 0 picks a free one")
    add("--chunked-prefill-size", type=int, default=8192, metavar="N", help="most prompt tokens a step; -1 for all")
    add("--max-running-requests", type=int, default=8, metavar="N", help="requests in flight; others wait")
    add("--disable-radix-cache", action="store_true", help="no prefix cache")
    add("--fault", metavar="NAME[:RATE]", help="plant a fault (an unknown name lists them all)")
    add("--seed", "--random-seed", dest="seed", type=int, default=0, metavar="N", help="decides where a fault strikes")
    add("--summation-order", type=int, default=0, metavar="N", help="hidden units in the N-th order; 0 as stored")
    add("--logit-noise", type=float, default=0.0, metavar="NATS", help="noise on the gap of any two logits, at most")
    add("--parent-pid", type=int, metavar="PID", help="exit when that process is gone")
    return p


def parse_options(argv: Sequence[str]) -> ServerOptions:
    """Options from a command line.

    Raises:
        UsageError: an unknown option or value, or options that do not fit together.
    """
    values = vars(parser().parse_args(list(argv)))
    top_k = values.pop("speculative_eagle_topk")
    if top_k not in (None, 1):
        raise UsageError(f"--speculative-eagle-topk {top_k}: this engine drafts chains, so only 1 is possible")
    return checked(ServerOptions(**values))


def checked(o: ServerOptions) -> ServerOptions:
    """Check that options fit together; returns them.

    Raises:
        UsageError: see the messages.
    """
    if not _is_loopback(o.host):
        raise UsageError(
            f"--host {o.host}: the reference server has no access control and listens on loopback addresses only",
            hint="use --host 127.0.0.1",
        )
    if not 0 <= o.port <= 65535:
        raise UsageError(f"--port {o.port}: a port is 0 to 65535")
    if o.max_running_requests < 1:
        raise UsageError(f"--max-running-requests {o.max_running_requests}: at least 1")
    if o.chunked_prefill_size < 1 and o.chunked_prefill_size != -1:
        raise UsageError(f"--chunked-prefill-size {o.chunked_prefill_size}: at least 1, or -1 for no chunks")
    if o.summation_order < 0 or (o.summation_order and o.speculative_draft_model_path is not None):
        raise UsageError(
            f"--summation-order {o.summation_order}: 0 or more, and only without a separate draft model, which would "
            "read hidden units in the stored order"
        )
    if not 0.0 <= o.logit_noise < float("inf"):
        raise UsageError(f"--logit-noise {o.logit_noise}: 0 or more, in nats")
    _check_speculation(o)
    return o


def _check_speculation(o: ServerOptions) -> None:
    if o.speculative_algorithm is None:
        for name in ("draft_model_path", "num_steps", "num_draft_tokens"):
            if getattr(o, f"speculative_{name}") is not None:
                option = f"--speculative-{name.replace('_', '-')}"
                raise UsageError(
                    f"{option} is given without --speculative-algorithm",
                    hint="add --speculative-algorithm NEXTN|DFLASH",
                )
        return
    steps, width = o.speculative_num_steps, o.speculative_num_draft_tokens
    if o.nextn:
        steps = 3 if steps is None else steps
        if not 1 <= steps <= 15:
            raise UsageError(f"--speculative-num-steps {steps}: 1 to 15")
        if width not in (None, steps + 1):
            raise UsageError(
                f"--speculative-num-draft-tokens {width}: a chain of {steps} steps verifies {steps + 1} tokens"
            )
    elif o.speculative_draft_model_path is None:
        raise UsageError(
            "DFLASH needs --speculative-draft-model-path", hint=f"add --speculative-draft-model-path {BUILTIN}"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
