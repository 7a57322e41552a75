"""Reads the golden folder as it is in a folder, or as it was in a git revision."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lossless.errors import UsageError

GIT_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class GoldenSide:
    """All golden files of one side, by ``profile/name.json``. ``profile`` is set where the side is the folder of one
    profile."""

    name: str
    files: Mapping[str, bytes]
    profile: str | None = None


def read_side(text: str, golden: Path) -> GoldenSide:
    """A folder (the golden folder, or one profile's), else a git revision of the folder ``golden``.

    Raises:
        UsageError: neither, or nothing is in it.
    """
    side = _folder(Path(text)) if Path(text).is_dir() else _revision(text, golden.absolute())
    if not side.files:
        raise UsageError(f"there are no goldens in {text!r} ({golden.name}/<profile>/<prompt>.json)")
    return side


def _folder(folder: Path) -> GoldenSide:
    files = {f"{p.parent.name}/{p.name}": p.read_bytes() for p in sorted(folder.glob("*/*.json"))}
    if files:
        return GoldenSide(str(folder), files)
    profile = folder.resolve().name
    own = {f"{profile}/{p.name}": p.read_bytes() for p in sorted(folder.glob("*.json"))}
    return GoldenSide(str(folder), own, profile if own else None)


def _revision(revision: str, golden: Path) -> GoldenSide:
    where = golden.parent
    if not where.is_dir():
        raise UsageError(f"there is no folder {where}", hint="give the golden folder with --golden DIR")
    known = _git(where, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", check=False)
    commit = known.decode().strip()
    if not commit:
        raise UsageError(
            f"{revision!r} is neither a folder nor a git revision of the repository at {where}",
            hint="lossless golden diff HEAD compares the last commit with the working tree",
        )
    blobs: dict[str, str] = {}
    for entry in _git(where, "ls-tree", "-r", "-z", commit, "--", golden.name).split(b"\0"):
        facts, _, path = entry.decode("utf-8", "surrogateescape").partition("\t")
        inside = PurePosixPath(path)
        if facts.startswith("100") and len(inside.parts) == 3 and inside.suffix == ".json":
            blobs[f"{inside.parts[1]}/{inside.name}"] = facts.split()[2]
    return GoldenSide(revision, dict(zip(blobs, _contents(where, list(blobs.values())), strict=True)))


def _contents(where: Path, blobs: Sequence[str]) -> list[bytes]:
    """The files behind object ids, in one process: each is ``<id> blob <size>``, a line feed, the bytes, a line feed
    (https://git-scm.com/docs/git-cat-file)."""
    if not blobs:
        return []
    out, found = _git(where, "cat-file", "--batch", stdin="".join(f"{b}\n" for b in blobs).encode()), []
    at = 0
    for _ in blobs:
        end = out.index(b"\n", at)
        size = int(out[at:end].split()[2])
        found.append(out[end + 1 : end + 1 + size])
        at = end + 1 + size + 1
    return found


def _git(where: Path, *args: str, stdin: bytes = b"", check: bool = True) -> bytes:
    try:
        done = subprocess.run(
            ["git", "-C", str(where), *args], input=stdin, capture_output=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as problem:
        raise UsageError(f"git could not be run: {problem}", hint="compare two folders instead") from None
    if done.returncode and check:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise UsageError(f"git {args[0]} failed in {where}: {said}", hint="run it inside the repository")
    return done.stdout
