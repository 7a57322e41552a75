"""``bench.json``: everything that was measured, and the tables made of it."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
from filelock import FileLock

from lossless.bench.plan import Settings
from lossless.bench.sample import Sample
from lossless.errors import UsageError

NAME = "bench.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server is: from its ``/server_info`` and its log. Memory in GB, None where neither says.

    ``machine`` names the card (or the processor); ``arguments`` are the resolved arguments that matter for speed.
    """

    version: str | None = None
    model: str | None = None
    dtype: str | None = None
    algorithm: str | None = None
    machine: str | None = None
    target_gb: float | None = None
    draft_gb: float | None = None
    kv_pool_tokens: int | None = None
    context_length: int | None = None
    running_requests: int | None = None
    arguments: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerBench:
    """One server's measurements. ``problem`` is why they ended early; ``seconds`` is what measuring took."""

    name: str
    complete: bool
    problem: str | None = None
    seconds: float = 0.0
    start_s: float = 0.0
    facts: Facts = field(default_factory=Facts)
    notes: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people: every row has as many cells as there are columns."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Bench:
    """The content of bench.json. ``tasks`` holds the prompts' ids by category, ``lengths`` the prompt lengths aimed at,
    ``names`` the servers in the order of the tables, the baseline first."""

    key: str
    created: str
    tool_version: str
    profile: str
    kind: str
    settings: Settings
    tasks: dict[str, tuple[str, ...]]
    lengths: tuple[int, ...]
    names: tuple[str, ...]
    servers: dict[str, ServerBench] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    schema: int = SCHEMA

    @property
    def complete(self) -> bool:
        """Whether every server was measured to its end."""
        return all(name in self.servers and self.servers[name].complete for name in self.names)


class BenchFile:
    """bench.json in one folder. Several processes may each add a server: each change is made under a lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def path(self) -> Path:
        return self.folder / NAME

    def read(self) -> Bench | None:
        """What the file holds; None where there is no file.

        Raises:
            UsageError: it is damaged, or of another schema.
        """
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=Bench)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as problem:
            raise UsageError(f"{self.path} is damaged: {problem}", hint="move it away, and measure again") from None
        if found.schema != SCHEMA:
            raise UsageError(f"{self.path} has schema {found.schema}, this version reads {SCHEMA}")
        return found

    def change(self, how: Callable[[Bench | None], Bench]) -> Bench:
        """Replace the content by what ``how`` makes of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f".{NAME}.lock", thread_local=False):
            new = how(self.read())
            temporary = self.path.with_name(f".{NAME}.new")
            temporary.write_text(json.dumps(asdict(new), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            temporary.replace(self.path)
        return new
