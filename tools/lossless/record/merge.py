"""Joins the runs of all shards of one prompt set into one run folder.

The shards' folders are copied as they are, under ``shards/I``: a shard keeps its own noise floor, controls and logs.
Servers of different shards must be the same in version, model, arguments and speculation; their cards need not be.
"""

import hashlib
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from lossless.errors import UsageError
from lossless.record.store import RunStore, ServerState, Shard
from lossless.record.survival import joined
from lossless.servers.pair import ServerFacts, compare_pair

COPIED = ("run.json", "prompts.json", "goldens.json", "tokenizer.json", "servers", "records", "logs")
SAME = (
    "profile",
    "kind",
    "dtype",
    "variants",
    "prompt_set",
    "prompt_digest",
    "tokenizer_digest",
    "model_digest",
    "eos_ids",
    "concurrency",
    "tool_version",
    "fault",
    "epsilon",
    "epsilon_bounds",
    "allow_differences",
    "algorithms",
)
"""What the manifests of all shards must agree on. Their target may be another path if the model's digest is known."""
PATHS = frozenset({"model_path", "tokenizer_path"})
BASELINE = "baseline"


def merge_runs(stores: Sequence[RunStore], path: Path) -> RunStore:
    """A new run at ``path`` that holds every shard.

    Raises:
        UsageError: a shard is missing or given twice, two do not belong together (the message has both values), or
            there is something at ``path`` already.
    """
    shards = _in_order(stores)
    if problems := [*_different_manifests(shards), *_different_prompts(shards), *_different_servers(shards)]:
        raise UsageError("these runs are no shards of one run:\n  " + "\n  ".join(problems))
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{str(path)!r} exists already", hint="name a new folder with -o")
    for number, store in enumerate(shards, start=1):
        _copy(store, path / "shards" / str(number))
    first = shards[0]
    manifest = first.manifest
    keys = "".join(store.manifest.key for store in shards)
    prompts = {p.id: p for store in shards for p in store.prompts}
    merged = RunStore(path)
    for name in (*manifest.variants, BASELINE):
        states = [store.server(name) for store in shards]
        merged.write_server(_joint_state(name, states, _labels(shards)))
    tokenizer = first.path / "tokenizer.json"
    merged.create(
        replace(
            manifest,
            key=hashlib.sha256(f"merged {keys}".encode()).hexdigest(),
            created=max(store.manifest.created for store in shards),
            shard=None,
            merged=len(shards),
        ),
        tuple(prompts[id_] for id_ in _shard(first).prompts),
        first.goldens,
        tokenizer.read_text(encoding="utf-8") if tokenizer.is_file() else None,
    )
    return merged


def _shard(store: RunStore) -> Shard:
    shard = store.manifest.shard
    if shard is None:
        raise UsageError(
            f"run {store.path.name} is no shard: it was recorded without --lossless-shard",
            hint="pytest -m lossless --lossless-shard 1/2",
        )
    return shard


def _labels(stores: Sequence[RunStore]) -> list[str]:
    return [f"shard {_shard(store)}" for store in stores]


def _in_order(stores: Sequence[RunStore]) -> list[RunStore]:
    """The stores by shard number, after checking that each shard is there once."""
    totals = {_shard(store).total for store in stores}
    if not stores:
        raise UsageError("there is nothing to merge", hint="name the runs of all shards")
    if len(totals) > 1:
        each = ", ".join(f"{store.path.name} is {_shard(store)}" for store in stores)
        raise UsageError(f"these runs divide the prompt set differently: {each}")
    total = totals.pop()
    seen = Counter(_shard(store).index for store in stores)
    if twice := sorted(k for k, count in seen.items() if count > 1):
        names = [s.path.name for s in stores if _shard(s).index == twice[0]]
        raise UsageError(f"shard {twice[0]}/{total} was given {len(names)} times: {', '.join(names)}")
    if missing := [f"{k}/{total}" for k in range(1, total + 1) if k not in seen]:
        raise UsageError(
            f"{'shard' if len(missing) == 1 else 'shards'} {', '.join(missing)} missing: the whole prompt set is "
            "proven only by all of them",
            hint=f"pytest -m lossless --lossless-shard {missing[0]}",
        )
    return sorted(stores, key=lambda store: _shard(store).index)


def _different_manifests(shards: Sequence[RunStore]) -> Iterator[str]:
    """One line a field that two shards do not share, with both values."""
    first, labels = shards[0].manifest, _labels(shards)
    for store, label in zip(shards[1:], labels[1:], strict=True):
        other = store.manifest
        names = SAME if _same_model(shards) else (*SAME, "target")
        for name in names:
            ours, theirs = getattr(first, name), getattr(other, name)
            if ours != theirs:
                yield f"{name}: {labels[0]} has {ours!r}, {label} has {theirs!r}"
        ours, theirs = shards[0].goldens, store.goldens
        for id_ in [k for k in {**ours, **theirs} if ours.get(k) != theirs.get(k)][:1]:
            yield f"golden {id_}: {labels[0]} and {label} were recorded with different snapshots"


def _different_prompts(shards: Sequence[RunStore]) -> Iterator[str]:
    """Every prompt of the set belongs to exactly one shard."""
    whole = _shard(shards[0]).prompts
    homes: dict[str, str] = {}
    for store, label in zip(shards, _labels(shards), strict=True):
        if _shard(store).prompts != whole:
            yield f"prompts: {label} and shard {_shard(shards[0])} name different sets"
        for prompt in store.prompts:
            if prompt.id in homes:
                yield f"prompt {prompt.id}: it is in {homes[prompt.id]} and in {label}"
            elif prompt.id not in whole:
                yield f"prompt {prompt.id} of {label} is not in the set"
            homes[prompt.id] = label
    if left := [id_ for id_ in whole if id_ not in homes]:
        yield f"prompts: no shard has {', '.join(left[:5])}{' …' if len(left) > 5 else ''}"


def _different_servers(shards: Sequence[RunStore]) -> Iterator[str]:
    """One line an argument in which a server of one shard is not the server of the first shard that has it."""
    ignored = PATHS if _same_model(shards) else frozenset()
    labels = _labels(shards)
    for name in (BASELINE, *shards[0].manifest.variants):
        known = [(label, state) for label, s in zip(labels, shards, strict=True) if (state := _answering(s, name))]
        for label, state in known[1:]:
            reference, ours, theirs = known[0][0], _facts(known[0][1]), _facts(state)
            for p in compare_pair(ours, theirs).problems:
                if p.argument not in ignored:
                    yield (
                        f"{name}, {p.argument}: {reference} has {p.baseline_value!r}, {label} has "
                        f"{p.variant_value!r} ({p.why})"
                    )
            speculation = {k for f in (ours, theirs) for k in f.server_info if k.startswith("speculative_")}
            for key in sorted(speculation):
                if ours.get(key) != theirs.get(key) and not (ignored and key.endswith("_path")):
                    yield f"{name}, {key}: {reference} has {ours.get(key)!r}, {label} has {theirs.get(key)!r}"


def _same_model(shards: Sequence[RunStore]) -> bool:
    """Whether the target's digest shows that all shards ran one model, wherever its files lie."""
    digests = {store.manifest.model_digest for store in shards}
    return len(digests) == 1 and None not in digests


def _answering(store: RunStore, name: str) -> ServerState | None:
    state = store.server(name)
    return state if state is not None and state.server_info else None


def _facts(state: ServerState) -> ServerFacts:
    return ServerFacts(state.server_info, state.model_info, state.settings)


def _joint_state(name: str, states: Sequence[ServerState | None], labels: Sequence[str]) -> ServerState:
    """How recording a server ended in all shards together; seconds are summed over them."""
    found = [state for state in states if state is not None]
    problems = [
        f"{label}: {state.problem if state is not None else 'it was never started'}"
        for label, state in zip(labels, states, strict=True)
        if state is None or state.problem is not None
    ]
    stages: Counter[str] = Counter()
    for state in found:
        stages.update(state.stage_s)
    known = next((state for state in found if state.server_info), ServerState(name, False))
    return replace(
        known,
        complete=len(found) == len(states) and all(state.complete for state in found),
        problem="; ".join(problems) or None,
        start_s=sum(state.start_s for state in found),
        generate_s=sum(state.generate_s for state in found),
        score_s=sum(state.score_s for state in found),
        stage_s={stage: round(seconds, 3) for stage, seconds in stages.items()},
        survival=joined([state.survival for state in found if state.survival is not None]),
        attempt="",
    )


def _copy(store: RunStore, target: Path) -> None:
    """The files of a run; a link is left out, since a run folder may come from somebody else."""

    def links(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if (Path(folder) / name).is_symlink()]

    target.mkdir(parents=True)
    for name in COPIED:
        source = store.path / name
        if source.is_symlink():
            continue
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=links)
        elif source.is_file():
            shutil.copyfile(source, target / name)
