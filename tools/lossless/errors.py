"""The exceptions users can meet, and the process exit status each one stands for.

    LosslessError
    ├── UsageError        bad input: the caller has to change something
    └── ServerError       a server could not be started, died or answered nonsense
        ├── ServerDied
        └── ProtocolError

Every message says what happened, the value, what would have been allowed, and the next command.
"""

EXIT_PROVEN = 0
EXIT_DIVERGENT = 1
EXIT_USAGE = 2
EXIT_INCONCLUSIVE = 3


class LosslessError(Exception):
    """Base of everything this package raises on purpose.

    ``hint`` is the next thing to do, kept apart so that every adapter can print it on its own line.
    """

    exit_code = EXIT_INCONCLUSIVE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.hint}" if self.hint else self.message


class UsageError(LosslessError):
    """Bad input: an option, a profile, a prompt file, a model folder."""

    exit_code = EXIT_USAGE


class ServerError(LosslessError):
    """A server is missing, unreachable, dead, or does not speak the protocol. Never a pass."""


class ServerDied(ServerError):
    """The process behind a server ended, or its connection broke, while it was needed."""


class ProtocolError(ServerError):
    """A server answered, but not with what the protocol promises (status, shape, misaligned fields)."""
