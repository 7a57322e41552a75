"""A server that runs already: it is looked at, never started or stopped."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lossless.errors import ProtocolError, ServerDied, ServerError, UsageError
from lossless.profiles.profile import Profile
from lossless.protocol.client import Client
from lossless.servers.base import no_progress

_LOOK_S = 10.0
_IDENTITY = ("model_path", "weight_version")


class AttachedServer:
    """See :class:`lossless.servers.base.Server`. The address comes from the profile."""

    def __init__(self, profile: Profile, name: str) -> None:
        url = profile.server(name).url
        if url is None:
            raise UsageError(
                f"profile {profile.name!r} has no address for server {name!r}", hint=f"add `url` to {name}"
            )
        self.name = name
        self.kind = "attach"
        self.url = url
        self.log_path: Path | None = None
        self.api_key = _key_from(profile)
        self.settings: Mapping[str, str] | None = None
        self._identity: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, on_progress: Callable[[str], None] = no_progress) -> None:
        """See that it answers and is an SGLang server for text.

        Raises:
            ServerError: it cannot be reached, or refuses the key.
            ProtocolError: something else than SGLang answers there.
        """
        on_progress(f"looking at {self.url}")
        info = self._look()
        if info.get("is_generation") is False:
            raise ServerError(f"server {self.name!r} at {self.url} serves an embedding model ({info['model_path']})")
        self._identity = {key: info.get(key) for key in _IDENTITY}
        on_progress(f"attached to {info['model_path']}")

    def check(self) -> None:
        """See :meth:`Server.check`; also notices that another model answers now."""
        try:
            info = self._look()
        except ServerError as problem:
            raise ServerDied(f"server {self.name!r} is gone: {problem.message}", hint=problem.hint) from problem
        for key, before in (self._identity or {}).items():
            if info.get(key) != before:
                raise ServerDied(
                    f"server {self.name!r} at {self.url} was replaced: its {key} was {before!r}, now {info.get(key)!r}",
                    hint="run again, with servers that stay",
                )

    def stop(self) -> None:
        """Nothing: it is not ours."""

    def _look(self) -> dict[str, Any]:
        try:
            with Client(self.url, api_key=self.api_key, timeout_s=_LOOK_S) as client:
                info = client.model_info()
        except ProtocolError as problem:
            raise ProtocolError(
                f"server {self.name!r}: something answers at {self.url}, but not as SGLang does: {problem.message}",
                hint=problem.hint or "give the address of an SGLang server's HTTP port",
            ) from problem
        except ServerError as problem:
            raise ServerError(
                f"server {self.name!r} cannot be reached: {problem.message}", hint=problem.hint
            ) from problem
        if not isinstance(info.get("model_path"), str):
            raise ProtocolError(
                f"server {self.name!r}: something answers at {self.url}, but its /model_info has no model_path",
                hint="give the address of an SGLang server's HTTP port",
            )
        return info


def _key_from(profile: Profile) -> str | None:
    if profile.api_key_env is None:
        return None
    key = os.environ.get(profile.api_key_env)
    if not key:
        raise UsageError(
            f"profile {profile.name!r}: the environment variable {profile.api_key_env} (api_key_env) is not set",
            hint=f"export {profile.api_key_env}=...",
        )
    return key
