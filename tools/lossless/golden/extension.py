"""The syrupy extension: where goldens live, how they are compared, and that they are never deleted."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from syrupy.data import SnapshotCollections
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

if TYPE_CHECKING:
    from syrupy.location import PyTestLocation
    from syrupy.types import SerializedData, SnapshotIndex

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
