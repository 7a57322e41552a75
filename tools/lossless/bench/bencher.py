"""Measures servers that are up into one folder's bench.json."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import lossless
from lossless.analysis.facts import figures
from lossless.bench.context import context_tasks
from lossless.bench.file import Bench, BenchFile, Facts, ServerBench
from lossless.bench.machine import describe_machine
from lossless.bench.measure import BenchProgress, measure, room_of
from lossless.bench.plan import Plan, Settings, make_plan
from lossless.bench.tables import tables
from lossless.errors import ServerError
from lossless.profiles import Profile, profile_digest
from lossless.prompts import Tokenizer
from lossless.protocol.stream import StreamingClient
from lossless.record.store import RecordedPrompt, RunStore, ServerState
from lossless.servers.resolved_facts import resolved_facts

ARGUMENTS = (
    "quantization", "kv_cache_dtype", "attention_backend", "tp_size", "page_size", "chunked_prefill_size",
    "context_length", "mem_fraction_static", "max_running_requests", "max_mamba_cache_size", "mamba_ssm_dtype",
    "cuda_graph_backend_prefill", "disable_cuda_graph", "disable_overlap_schedule", "disable_radix_cache",
    "enable_deterministic_inference", "speculative_num_steps", "speculative_eagle_topk",
    "speculative_num_draft_tokens", "speculative_draft_model_path",
)  # fmt: skip
"""Arguments of a server that a reader of its speed wants to know."""

_UNSAID = (None, False, "auto", "None", "")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
GREEDY_ONLY = "the embedded engine decodes greedily, so temperatures are left out"
NOT_ON_CPU = "temperatures are left out on a processor, where a sampled request ends SGLang's DFLASH server"


def default_settings(profile: Profile) -> Settings:
    """What is measured unless said otherwise. The embedded engine computes one request after the other on one
    processor: many streams and long prompts would only take long there."""
    return Settings(streams=(1, 2), lengths=(256, 512)) if profile.kind == "reference" else Settings()


def plan_for(
    profile: Profile, tokenizer: Tokenizer, prompts: Sequence[RecordedPrompt], settings: Settings | None = None
) -> Plan:
    """The plan over recorded prompts, with the long prompts made by this tokenizer; ``settings`` None: the default.

    Raises:
        UsageError: see `make_plan` and `context_tasks`.
    """
    settings = settings or default_settings(profile)
    context = context_tasks(tokenizer, settings.lengths, profile.max_new_tokens) if settings.prefill else ()
    return make_plan(prompts, context, settings)


def bench_key(profile: Profile, plan: Plan, fault: str | None = None) -> str:
    """What decides the figures; equal keys may be resumed. SHA-256 (hex)."""
    urls = [str(profile.baseline.url), *(f"{v.name}={v.url}" for v in profile.variants.values())]
    content = [profile_digest(profile), urls, plan.key, asdict(plan.settings), fault]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Running:
    """A server that is up (`lossless.servers.Server`), the cards it got, and how long it took to start (seconds)."""

    name: str
    url: str
    api_key: str | None
    check: Callable[[], None]
    cards: Sequence[str] = ()
    start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Bencher:
    """Measures the servers of one profile after one plan.

    Servers on the same card or processor would disturb one another, so callers measure one at a time, while the others
    are idle; servers on different cards may be measured at once. ``key`` is the digest of plan and profile: figures
    under another key are thrown away. ``vocab_size`` bounds the ids that are sent.
    """

    folder: Path
    profile: Profile
    plan: Plan
    key: str
    progress: BenchProgress
    vocab_size: int | None = None

    def missing(self, name: str) -> bool:
        """Whether a server is still to be measured."""
        bench = self._fitting(BenchFile(self.folder).read())
        return name not in bench.servers or not bench.servers[name].complete

    def measure(self, server: Running) -> ServerBench:
        """Measure one server and keep what was found, also when it dies on the way: that is its ``problem``, not an
        exception. Interrupts pass through, and nothing is kept of a half-measured server."""
        began = time.monotonic()
        found = ServerBench(server.name, False, start_s=server.start_s)
        samples = []
        try:
            with StreamingClient(
                server.url,
                api_key=server.api_key,
                timeout_s=self.profile.request_timeout_s,
                vocab_size=self.vocab_size,
                check=server.check,
            ) as client:
                info = client.server_info()
                found = replace(found, facts=self._facts(server, info))
                unsampled = _unsampled(info)
                if unsampled is not None and any(r.stage == "temperature" for r in self.plan.rounds):
                    found = replace(found, notes=(unsampled,))
                for sample in measure(
                    server.name,
                    self.plan,
                    client,
                    server.check,
                    self.progress,
                    room_of(info),
                    sampled=unsampled is None,
                ):
                    samples.append(sample)
            found = replace(found, complete=True)
        except ServerError as problem:
            found = replace(found, problem=str(problem))
        found = replace(found, samples=tuple(samples), seconds=round(time.monotonic() - began, 3))
        self.keep(found)
        words = f"{len(samples)} requests in {found.seconds:.1f} s"
        if found.problem is not None:
            words = f"NOT COMPLETE: {found.problem}"
        self.progress.starting(server.name, f"bench: {words}")
        return found

    def keep(self, server: ServerBench) -> Bench:
        """Put one server's measurements into bench.json, and make the tables anew."""

        def add(old: Bench | None) -> Bench:
            bench = self._fitting(old)
            bench = replace(bench, servers={**bench.servers, server.name: server})
            return replace(bench, tables=tables(bench))

        return BenchFile(self.folder).change(add)

    def read(self) -> Bench:
        """What is measured so far."""
        return self._fitting(BenchFile(self.folder).read())

    def _fitting(self, old: Bench | None) -> Bench:
        """``old`` if it was measured after this plan, else a new one without servers."""
        if old is not None and old.key == self.key:
            return old
        speed = {(a.task.category, a.task.id) for r in self.plan.rounds if r.stage == "speed" for a in r.asks}
        lengths = {a.task.length for r in self.plan.rounds for a in r.asks if a.task.length is not None}
        return Bench(
            key=self.key,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            tool_version=lossless.__version__,
            profile=self.profile.name,
            kind=self.profile.kind,
            settings=self.plan.settings,
            tasks={name: tuple(sorted(i for c, i in speed if c == name)) for name in self.plan.categories},
            lengths=tuple(sorted(lengths)),
            names=self.profile.server_names,
        )

    def _facts(self, server: Running, info: Mapping[str, Any]) -> Facts:
        state = ServerState(server.name, True, start_s=server.start_s, server_info=dict(info))
        known = figures(RunStore(self.folder), state, concurrency=1, draft_bytes=None)
        local = self.profile.kind != "attach" or urlsplit(server.url).hostname in _LOOPBACK
        on_gpu = self.profile.kind != "reference" and info.get("device") != "cpu"
        reference = str(known.version).startswith("reference-")
        return Facts(
            version=known.version,
            model=_short(info.get("model_path")),
            dtype=_text(info.get("dtype")),
            algorithm=resolved_facts(info).algorithm,
            machine=describe_machine(on_gpu=on_gpu and not reference, cards=server.cards) if local else None,
            target_gb=known.target_gb,
            draft_gb=known.draft_gb,
            kv_pool_tokens=known.kv_pool_tokens,
            context_length=known.context_length,
            running_requests=known.running_requests,
            arguments={k: _short(info[k]) or "" for k in ARGUMENTS if k in info and info[k] not in _UNSAID},
        )


def _unsampled(info: Mapping[str, Any]) -> str | None:
    """Why a server is sent no sampled request."""
    if str(info.get("version")).startswith("reference-"):
        return GREEDY_ONLY
    return NOT_ON_CPU if info.get("device") == "cpu" else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _short(value: object) -> str | None:
    """A path's last two parts: enough to know a model by, without the folders of a machine."""
    if value is None:
        return None
    text = str(value)
    return "/".join(Path(text).parts[-2:]) if text.startswith("/") else text
