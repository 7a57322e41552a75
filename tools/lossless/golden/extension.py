"""The syrupy extension: where goldens live, how they are compared, and that they are never deleted.

The rules of ``--snapshot-update``, so that the diff after an upgrade of SGLang is small and readable:

- A golden that still holds (same tokens, text and finish reason, or a near-tie in today's baseline's eyes) is not
  written: not a byte of it changes, and its provenance keeps naming the version that wrote it.
- A golden that no longer holds is written whole, with the provenance of today.
- Nothing is deleted, and nothing is written by halves: a crash leaves each golden as it was or as it should be.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from syrupy.data import SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

if TYPE_CHECKING:
    from syrupy.data import SnapshotCollection
    from syrupy.location import PyTestLocation
    from syrupy.types import SerializableData, SerializedData, SnapshotIndex

Matches = Callable[[str, str], bool]
"""(text about to be written, text on disk) -> whether the one on disk still holds"""


class GoldenExtension(SingleFileSnapshotExtension):
    """``golden/<profile>/<name>.json``, compared by the verdict core.

    Syrupy finds the class by its import path under xdist, so what a session adds to it (folder and comparison) sits
    on the class: set by the plugin when the session starts, never by a test. Discovery is off: syrupy would call a
    golden whose test crashed unused, and delete it on update.
    """

    _write_mode = WriteMode.TEXT
    file_extension = "json"
    folder: ClassVar[Path] = Path("golden")
    compare: ClassVar[Matches | None] = None
    explain: ClassVar[Callable[[str, str], Iterator[str]] | None] = None

    def serialize(self, data: Any, **_: Any) -> str:
        return str(data) if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=2) + "\n"

    @classmethod
    def dirname(cls, *, test_location: "PyTestLocation") -> str:  # noqa: ARG003
        return str(cls.folder)

    @classmethod
    def get_file_basename(cls, *, test_location: "PyTestLocation", index: "SnapshotIndex") -> str:  # noqa: ARG003
        return str(index)

    @classmethod
    def get_snapshot_name(cls, *, test_location: "PyTestLocation", index: "SnapshotIndex" = 0) -> str:  # noqa: ARG003
        return test_location.snapshot_name

    @classmethod
    def matches_test_location(cls, *, test_location: "PyTestLocation", snapshot_location: str) -> bool:  # noqa: ARG003
        return True

    def discover_snapshots(self, **_: Any) -> SnapshotCollections:
        return SnapshotCollections()

    def delete_snapshots(self, **_: Any) -> None:
        raise RuntimeError("golden snapshots are never deleted by a test run; remove the file by hand")

    def read_snapshot_data_from_location(self, **location: Any) -> "SerializableData | None":
        """As syrupy; a file that is no text reads as empty, which is damage and never holds."""
        try:
            return super().read_snapshot_data_from_location(**location)
        except UnicodeDecodeError:
            return ""

    @classmethod
    def write_snapshot_collection(cls, *, snapshot_collection: "SnapshotCollection", **_: Any) -> None:
        """Write the file beside its place first: whoever reads it, after a crash too, sees the old or the new one."""
        path = Path(snapshot_collection.location)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_text(str(next(iter(snapshot_collection)).data), encoding="utf-8", newline="\n")
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def matches(self, *, serialized_data: "SerializedData", snapshot_data: "SerializedData") -> bool:
        compare = type(self).compare
        if compare is None:
            return bool(serialized_data == snapshot_data)
        return compare(str(serialized_data), str(snapshot_data))

    def diff_lines(self, serialized_data: "SerializedData", snapshot_data: "SerializedData") -> Iterator[str]:
        explain = type(self).explain
        if explain is not None:
            yield from explain(str(serialized_data), str(snapshot_data))
        else:
            yield from super().diff_lines(serialized_data, snapshot_data)
