"""What an upgrade changed around the answers: accept length, speed, memory, arguments. Report only: no verdict."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lossless.analysis.analysis import Analysis
from lossless.golden.acceptance import GoldenAcceptance
from lossless.servers.pair import ServerFacts
from lossless.servers.pair_arguments import IGNORED, MATTER

SPEED_MOVED = 0.2
"""A relative change of decode speed from which on a category counts as moved. Each speed is one measurement, one
request at a time, and the same version measured twice differs by several percent: a smaller change says nothing."""

NOISE = IGNORED | {
    "version",  # shown above all
    "base_gpu_id",
    "host",
    "grpc_port",
    "gated_launch_port",
    "smg_http_sidecar_port",
    "random_seed",  # drawn at each start; greedy decoding draws nothing
    "forward_pass_metrics_ipc_name",
    "forward_pass_metrics_worker_id",
    "weight_cache_socket",
    "max_total_num_tokens",  # a figure, shown as the KV pool
    "max_req_input_len",
}
"""Entries of ``/server_info`` that differ from start to start, or are shown elsewhere."""

FIGURES = (
    ("kv_pool_tokens", "KV pool", "tokens"),
    ("target_gb", "weights", "GB"),
    ("draft_gb", "draft", "GB"),
    ("available_gb", "memory left", "GB"),
    ("context_length", "context", "tokens"),
    ("running_requests", "requests at once", ""),
    ("mamba_slots", "state slots", ""),
    ("start_s", "start-up", "s"),
)


@dataclass(frozen=True, slots=True)
class AcceptChange:
    """Accept length (tokens a verify step) of a category; None where nothing was measured. ``band`` is what counts as
    unchanged (the golden band around the old value). ``moved``: ``fell``, ``rose``, ``gone``, ``new`` or empty."""

    variant: str
    category: str
    old: float | None
    new: float | None
    band: tuple[float, float] | None
    moved: str


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """Decode speed of a category in tokens a second. ``moved`` is ``slower``, ``faster`` or empty."""

    server: str
    category: str
    old: float | None
    new: float | None

    @property
    def ratio(self) -> float | None:
        return self.new / self.old if self.old and self.new else None

    @property
    def moved(self) -> str:
        ratio = self.ratio
        if ratio is None or abs(ratio - 1) < SPEED_MOVED:
            return ""
        return "slower" if ratio < 1 else "faster"


@dataclass(frozen=True, slots=True)
class FigureChange:
    """One figure of one server; ``unit`` may be empty. None where it is not known."""

    server: str
    name: str
    unit: str
    old: float | None
    new: float | None


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """A resolved argument with another value than before, on these servers. ``why`` says why it matters for the
    numbers, None where it is not known to."""

    name: str
    old: Any
    new: Any
    servers: tuple[str, ...]
    why: str | None


def accept_lengths(old: Analysis, new: Analysis) -> tuple[AcceptChange, ...]:
    """Every category of every variant that both runs have, ``all`` last."""
    found = []
    for variant in _both(new.manifest.variants, old.manifest.variants):
        before, after = old.acceptance(variant), new.acceptance(variant)
        for category in _both_or_one(before, after):
            was, now = (side.get(category) for side in (before, after))
            a, b = (side.accept_length if side else None for side in (was, now))
            band = GoldenAcceptance(a, was.verify_steps).band if a is not None and was is not None else None
            found.append(AcceptChange(variant, category, a, b, band, _moved(a, b, band)))
    return tuple(found)


def _moved(old: float | None, new: float | None, band: tuple[float, float] | None) -> str:
    if old is None or new is None or band is None:
        return "" if old is None and new is None else "new" if old is None else "gone"
    if band[0] <= new <= band[1]:
        return ""
    return "fell" if new < band[0] else "rose"


def speeds(old: Analysis, new: Analysis) -> tuple[SpeedChange, ...]:
    """Every category of every server that both runs have, ``all`` last."""
    found = []
    for server in _both(new.servers, old.servers):
        before, after = old.speed(server), new.speed(server)
        for category in _both_or_one(before, after):
            a, b = (side[category].tokens_per_s if category in side else None for side in (before, after))
            found.append(SpeedChange(server, category, a, b))
    return tuple(found)


def server_figures(old: Analysis, new: Analysis) -> tuple[FigureChange, ...]:
    """Memory, pools and start-up time of each server, where either run knows them."""
    before, after = ({f.name: f for f in a.server_figures()} for a in (old, new))
    found = []
    for server in _both_or_one(after, before):
        for field, name, unit in FIGURES:
            a, b = (getattr(side[server], field) if server in side else None for side in (before, after))
            if a is not None or b is not None:
                found.append(FigureChange(server, name, unit, a, b))
    return tuple(found)


def server_arguments(old: Analysis, new: Analysis) -> tuple[ArgumentChange, ...]:
    """Resolved arguments and ``SGLANG_*`` settings whose value changed. Nested values are compared entry by entry,
    as ``cuda_graph_config.decode.max_bs``. Arguments that only one version knows are in :func:`argument_names`."""
    changes: dict[tuple[str, str, str], tuple[Any, Any, list[str]]] = {}
    for server in _both(new.servers, old.servers):
        before, after = (_facts(a, server) for a in (old, new))
        for name in [n for n in before if n in after]:
            if before[name] != after[name]:
                key = (name, _key(before[name]), _key(after[name]))
                changes.setdefault(key, (before[name], after[name], []))[2].append(server)
    found = [
        ArgumentChange(name, a, b, tuple(servers), MATTER.get(name.partition(".")[0]))
        for (name, _, _), (a, b, servers) in changes.items()
    ]
    return tuple(sorted(found, key=lambda c: (c.why is None, c.name)))


def argument_names(old: Analysis, new: Analysis) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the arguments that only the new version shows, and of those that only the old one does."""
    before, after = ({n for s in a.servers for n in _facts(a, s)} for a in (old, new))
    if not before or not after:
        return (), ()
    return tuple(sorted(after - before)), tuple(sorted(before - after))


def _facts(analysis: Analysis, server: str) -> dict[str, Any]:
    recorded = analysis.servers[server]
    facts = ServerFacts(recorded.info, recorded.model, recorded.settings)
    found = dict(_flat({**recorded.model, **recorded.info}))
    if recorded.info:
        found |= {f"environment {name}": value for name, value in (facts.environment or {}).items()}
    return found


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if not prefix and (name in NOISE or name.startswith("_")):  # notes of its own that SGLang shows by accident
            continue
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _both(first: Iterable[str], second: Iterable[str]) -> list[str]:
    other = set(second)
    return [name for name in first if name in other]


def _both_or_one(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    names = dict.fromkeys((*first, *second))
    names.pop("all", None)
    return [*names, *(["all"] if "all" in first or "all" in second else [])]


def finite(value: float | None) -> float | None:
    """A number for JSON: none stays none, and so does what is not one."""
    return value if value is not None and math.isfinite(value) else None
