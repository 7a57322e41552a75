# ruff: noqa: ARG002  (a hook's arguments are there for the faults that need them)
"""Faults of the server around the engine."""

import os

from lossless.reference.faults.base import Fault, FaultSpec, register

DIES = "server dies"


class DieAtRequest(Fault):
    """The process is gone in the middle of a request, as after an assertion in the scheduler."""

    def arriving(self, number: int) -> str:
        if number >= self.rate:
            os._exit(1)
        return ""


class _Once(Fault):
    """Troubles the N-th request only."""

    trouble = ""

    def arriving(self, number: int) -> str:
        return self.trouble if number == self.rate else ""


class ErrorAtRequest(_Once):
    """HTTP 500."""

    trouble = "error"


class GarbageAtRequest(_Once):
    """HTTP 200 with half the JSON."""

    trouble = "garbage"


class HangAtRequest(_Once):
    """No answer, ever; the connection stays open."""

    trouble = "hang"


class Trickle(Fault):
    """Every answer comes in drips: 16 bytes every 50 ms."""

    def arriving(self, number: int) -> str:
        return "trickle"


NUMBER = "the number N of the request"
for spec in (
    FaultSpec(
        "die-at-request",
        DIES,
        "The process exits when the N-th /generate arrives.",
        DieAtRequest,
        rate=3,
        rate_means=NUMBER,
        needs="any",
    ),
    FaultSpec(
        "error-at-request",
        DIES,
        "The N-th /generate is answered with HTTP 500.",
        ErrorAtRequest,
        rate=3,
        rate_means=NUMBER,
        needs="any",
    ),
    FaultSpec(
        "garbage-at-request",
        DIES,
        "The N-th /generate is answered with half the JSON.",
        GarbageAtRequest,
        rate=3,
        rate_means=NUMBER,
        needs="any",
    ),
    FaultSpec(
        "hang-at-request",
        "ranks disagree",
        "The N-th /generate is never answered.",
        HangAtRequest,
        rate=3,
        rate_means=NUMBER,
        needs="any",
    ),
    FaultSpec(
        "trickle",
        "server dies",
        "Answers come in drips of 16 bytes every 50 ms.",
        Trickle,
        needs="any",
    ),
):
    register(spec)
