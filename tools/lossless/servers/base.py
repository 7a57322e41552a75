"""What every server offers to the rest of the suite, however it came to run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self


def no_progress(_line: str) -> None:
    """The default progress callback: drop the line."""


class Server(Protocol):
    """One server of a pair; a context manager that starts on entry and stops on exit.

    ``name`` is ``baseline`` or the variant's name, ``kind`` the profile's kind. ``url`` is valid after :meth:`start`.
    ``settings`` holds the ``SGLANG_*`` environment variables that a launched server was given (None when attached):
    ``/server_info`` does not show them, and some change the answers. ``api_key`` is for the client.
    """

    name: str
    kind: str
    url: str
    log_path: Path | None
    api_key: str | None
    settings: Mapping[str, str] | None

    def start(self, on_progress: Callable[[str], None] = no_progress) -> None:
        """Block until the server answers; ``on_progress`` gets short lines such as ``loading weights``.

        Raises:
            ServerError: it ended, did not get ready before the deadline, or is no SGLang server.
            UsageError: the command or a model folder does not exist.
        """

    def check(self) -> None:
        """Raise ServerDied (with exit status and the log's last lines) if the server is gone; cheap."""

    def stop(self) -> None:
        """End the server and everything it started. May be called any number of times, from any thread."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...
