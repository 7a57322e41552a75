"""Where runs live, which one to resume, and which are there."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from lossless.errors import UsageError
from lossless.record.store import RunStore

DEFAULT_ROOT = Path(".lossless") / "runs"


def new_run_path(root: Path, profile: str, key: str) -> Path:
    """A folder name that sorts by time and says what it holds. Nothing is created."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
    return root / f"{stamp}-{profile}-{key[:8]}"


def stored_runs(root: Path) -> Iterator[RunStore]:
    """Every run under ``root``, newest first."""
    if not root.is_dir():
        return
    for path in sorted(root.iterdir(), reverse=True):
        if (path / "run.json").is_file():
            yield RunStore(path)


def resumable(root: Path, key: str) -> RunStore | None:
    """The newest run with this key if it is unfinished; a finished one is never continued silently."""
    for store in stored_runs(root):
        try:
            if store.manifest.key != key:
                continue
            return None if store.complete else store
        except UsageError:
            continue  # a damaged folder is no candidate
    return None


def find_run(root: Path, name: str) -> RunStore:
    """A run by path, by folder name, by an unambiguous start of it, or ``latest``.

    Raises:
        UsageError: no such run, or more than one.
    """
    if Path(name).is_dir():
        return RunStore.open(name)
    stores = list(stored_runs(root))
    if name == "latest" and stores:
        return RunStore.open(stores[0].path)
    matches = [s for s in stores if s.path.name.startswith(name)]
    if len(matches) == 1:
        return RunStore.open(matches[0].path)
    if matches:
        raise UsageError(f"run {name!r} could be any of {', '.join(s.path.name for s in matches)}")
    known = ", ".join(s.path.name for s in stores[:5]) or "none"
    raise UsageError(f"no run {name!r} under {root}; newest: {known}", hint="lossless runs")
