"""One run's folder on disk: what was asked, what came back, and enough to judge it again without a server.

    run.json            what was run: profile, prompt set, versions; written once
    prompts.json        prompts with token ids and sampling parameters
    goldens.json        golden outputs the baseline had to re-score
    tokenizer.json      the target's tokenizer
    servers/NAME.json   what a server says of itself, and how recording it ended
    records/NAME.jsonl  one line an answer, appended as it arrives
    logs/NAME.log       the server's log
    evidence.json       verdicts, written by the analysis
    shards/I/           of a merged run: the run of shard I, whose records count as this run's

A line that a crash cut short is ignored when the folder is read again.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lossless.errors import LosslessError, UsageError
from lossless.protocol import Answer, Sampling
from lossless.record.survival import Survival

SCHEMA = 1
T = TypeVar("T")
_SAFE = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class RecordedPrompt:
    """One prompt as it was sent: token ids and sampling parameters (``max_new_tokens`` in tokens).

    ``expect`` is text that a right answer contains; ``depth`` (0 to 1) is where a prompt that was built to a length
    hides it, None for all other prompts.
    """

    id: str
    category: str
    group: str
    ids: tuple[int, ...]
    sampling: Sampling
    text: str
    same_as: str | None = None
    expect: str | None = None
    depth: float | None = None


@dataclass(frozen=True, slots=True)
class Shard:
    """Which shard of its prompt set a run recorded: ``index`` of ``total``, from 1. ``prompts`` are the ids of the
    whole set, in its order."""

    index: int
    total: int
    prompts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.index}/{self.total}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was run. ``key`` is the digest of everything that decides the answers; equal keys may be resumed.
    ``draft_bytes`` holds the size of each variant's draft weights, where they are local files. ``prompt_digest`` is
    the whole set's, also of a ``shard``; ``merged`` is how many shards were joined into this run."""

    key: str
    profile: str
    kind: str
    target: str
    dtype: str
    variants: tuple[str, ...]
    prompt_set: str
    prompt_digest: str
    tokenizer_digest: str
    model_digest: str | None
    eos_ids: tuple[int, ...]
    concurrency: int
    tool_version: str
    created: str
    fault: str | None = None
    epsilon: float | None = None
    epsilon_bounds: dict[str, float] = field(default_factory=dict)
    allow_differences: tuple[str, ...] = ()
    algorithms: dict[str, str] = field(default_factory=dict)
    draft_bytes: dict[str, int] = field(default_factory=dict)
    shard: Shard | None = None
    merged: int = 0
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Golden:
    """A golden output: what the baseline said when the snapshot was taken."""

    ids: tuple[int, ...]
    text: str
    finish_type: str
    finish_matched: int | str | None = None


@dataclass(frozen=True, slots=True)
class ServerState:
    """What is known of one recorded server. ``problem`` is why recording stopped early, in words.

    ``start_s``, ``generate_s``, ``score_s`` and ``stage_s`` are wall seconds. ``survival`` is what the stress test
    found, where there was one.
    """

    name: str
    complete: bool
    problem: str | None = None
    start_s: float = 0.0
    generate_s: float = 0.0
    score_s: float = 0.0
    stage_s: dict[str, float] = field(default_factory=dict)
    server_info: dict[str, Any] = field(default_factory=dict)
    model_info: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] | None = None
    attempt: str = ""
    survival: Survival | None = None

    def ended_in(self, attempt: str) -> bool:
        """Whether this is how recording ended in the given attempt (not merely began)."""
        return bool(attempt) and self.attempt == attempt and (self.complete or self.problem is not None)


@dataclass(frozen=True, slots=True)
class Record:
    """One line of records/NAME.jsonl. ``output`` is the digest of the re-scored output, for stage ``score``.

    Either ``answer`` (raw JSON) or ``error`` is set. ``wall_s`` is the client's wall time in seconds.
    """

    stage: str
    prompt: str
    turn: int = 0
    output: str | None = None
    wall_s: float = 0.0
    answer: dict[str, Any] | None = None
    error: str | None = None

    @property
    def key(self) -> tuple[str, str, int, str | None]:
        return (self.stage, self.prompt, self.turn, self.output)

    def parsed(self) -> Answer | None:
        """The answer, or None where the request failed or the answer makes no sense."""
        if self.answer is None:
            return None
        try:
            return Answer.from_json(self.answer)
        except LosslessError:
            return None


def output_digest(prompt_ids: tuple[int, ...], output_ids: tuple[int, ...]) -> str:
    """What identifies a re-scored output."""
    text = f"{','.join(map(str, prompt_ids))}|{','.join(map(str, output_ids))}"
    return hashlib.sha256(text.encode()).hexdigest()[:20]


class RunStore:
    """Reads and writes one run folder. Safe for several processes as long as one process records one server."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"RunStore({self.path.name!r})"

    @classmethod
    def open(cls, path: str | Path) -> "RunStore":
        """An existing run.

        Raises:
            UsageError: there is no run of this format at ``path``.
        """
        folder = Path(path)
        if not (folder / "run.json").is_file():
            raise UsageError(
                f"{str(path)!r} is not a recorded run (it has no run.json)",
                hint="lossless runs lists the recorded runs",
            )
        store = cls(folder)
        if store.manifest.schema != SCHEMA:
            raise UsageError(f"{str(path)!r} has evidence format {store.manifest.schema}, this version reads {SCHEMA}")
        return store

    # ------------------------------------------------------------- written once
    def create(
        self,
        manifest: Manifest,
        prompts: tuple[RecordedPrompt, ...],
        goldens: dict[str, Golden],
        tokenizer_json: str | None,
    ) -> None:
        """Lay out a new run. run.json comes last: without it the folder is no run."""
        for folder in ("servers", "records", "logs"):
            (self.path / folder).mkdir(parents=True, exist_ok=True)
        self._write("prompts.json", [asdict(p) for p in prompts])
        self._write("goldens.json", {k: asdict(g) for k, g in goldens.items()})
        if tokenizer_json is not None:
            (self.path / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
        self._write("run.json", asdict(manifest))

    @property
    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    @property
    def manifest(self) -> Manifest:
        return read_json(self.path / "run.json", Manifest)

    @property
    def prompts(self) -> tuple[RecordedPrompt, ...]:
        return read_json(self.path / "prompts.json", tuple[RecordedPrompt, ...])

    @property
    def goldens(self) -> dict[str, Golden]:
        return read_json(self.path / "goldens.json", dict[str, Golden])

    @property
    def shards(self) -> tuple["RunStore", ...]:
        """The runs that were joined into this one, in order; none of any other run."""
        return tuple(RunStore(self.path / "shards" / str(k + 1)) for k in range(self.manifest.merged))

    # ------------------------------------------------------------------ servers
    def server(self, name: str) -> ServerState | None:
        """How recording a server ended, or None if it never began."""
        if not (self.path / "servers" / f"{_checked(name)}.json").is_file():
            return None
        return read_json(self.path / "servers" / f"{name}.json", ServerState)

    def write_server(self, state: ServerState) -> None:
        self._write(f"servers/{_checked(state.name)}.json", asdict(state))

    def forget(self, name: str) -> None:
        """Drop what was recorded of a server (it turned out to be another server than before)."""
        for path in (self._records_path(name), self.path / "servers" / f"{_checked(name)}.json"):
            path.unlink(missing_ok=True)

    def log_path(self, name: str) -> Path:
        return self.path / "logs" / f"{_checked(name)}.log"

    @property
    def complete(self) -> bool:
        """Whether every server was recorded to its end without a problem."""
        states = [self.server(name) for name in (*self.manifest.variants, "baseline")]
        return all(state is not None and state.complete and state.problem is None for state in states)

    # ------------------------------------------------------------------ records
    def append(self, name: str, record: Record) -> None:
        """Add one line, on disk before this returns (a crash loses at most the line being written)."""
        path = self._records_path(name)
        line = json.dumps(asdict(record), ensure_ascii=False, separators=(",", ":")) + "\n"
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def drop_stages(self, name: str, names: frozenset[str]) -> None:
        """Forget some stages of a server: they will be run again from their start. Damaged lines go too."""
        kept = [r for r in self.records(name) if r.stage not in names]
        path = self._records_path(name)
        text = "".join(json.dumps(asdict(r), ensure_ascii=False, separators=(",", ":")) + "\n" for r in kept)
        _replace(path, text)

    def records(self, name: str) -> Iterator[Record]:
        """Everything recorded of a server, oldest first; a line cut short by a crash is skipped."""
        if self.exists:
            for shard in self.shards:
                yield from shard.records(name)
        path = self._records_path(name)
        if not path.is_file():
            return
        decoder = msgspec.json.Decoder(Record)
        with path.open("rb") as file:
            for line in file:
                try:
                    yield decoder.decode(line)
                except msgspec.DecodeError:
                    continue

    def answers(self, name: str) -> dict[tuple[str, str, int, str | None], Record]:
        """The latest record of each request; an answer is never replaced by a later error."""
        found: dict[tuple[str, str, int, str | None], Record] = {}
        for record in self.records(name):
            if record.answer is not None or record.key not in found:
                found[record.key] = record
        return found

    # ----------------------------------------------------------------- plumbing
    def _records_path(self, name: str) -> Path:
        return self.path / "records" / f"{_checked(name)}.jsonl"

    def _write(self, name: str, value: Any) -> None:
        _replace(self.path / name, json.dumps(value, ensure_ascii=False, indent=1) + "\n")

    def write_evidence(self, value: Any) -> Path:
        """Keep the analysis beside what it was made from."""
        self._write("evidence.json", value)
        return self.path / "evidence.json"


def read_json(path: Path, kind: type[T]) -> T:
    """Decode one JSON file of a run.

    Raises:
        UsageError: it is missing, or not what it should be.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise UsageError(f"the run has no {path.name} ({path})") from None
    except msgspec.DecodeError as problem:
        raise UsageError(f"{path} is damaged: {problem}") from None


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new content, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _checked(name: str) -> str:
    if not _SAFE.fullmatch(name) or name.startswith("."):
        raise UsageError(f"server name {name!r} cannot be a file name; allowed are letters, digits, '.', '_' and '-'")
    return name
