"""Which class stands behind a profile's server."""

from collections.abc import Sequence
from pathlib import Path

from lossless.errors import UsageError
from lossless.profiles.models import check_models
from lossless.profiles.profile import Profile
from lossless.servers.attached import AttachedServer
from lossless.servers.base import Server
from lossless.servers.failure import Explain
from lossless.servers.launched import LaunchedServer


def make_server(
    profile: Profile,
    name: str,
    *,
    log_dir: Path,
    gpus: Sequence[str] = (),
    fault: str | None = None,
    explain: Explain | None = None,
) -> Server:
    """A server of the profile, not started yet.

    ``gpus`` are the cards for its ``CUDA_VISIBLE_DEVICES`` (nothing is set when empty). ``fault`` (``NAME[:RATE]``)
    plants a fault in the reference engine. ``explain`` turns the log of a failed server into plain words.

    Raises:
        UsageError: no such server, a model folder is missing, or a fault is asked of a server that has none.
    """
    profile.server(name)
    if fault is not None and profile.kind != "reference":
        raise UsageError(f"fault {fault!r}: only the reference engine has faults to plant, not kind {profile.kind!r}")
    if profile.kind == "attach":
        return AttachedServer(profile, name)
    check_models(profile, name)
    return LaunchedServer(profile, name, log_dir=log_dir, gpus=gpus, fault=fault, explain=explain)
