"""What each server allocated and resolved, from its log and /server_info: for a reader, and for warnings."""

from collections.abc import Mapping
from dataclasses import dataclass

from lossless.record.store import RunStore, ServerState
from lossless.servers.capacity import draft_memory_problem, slots_problem
from lossless.servers.log_facts import LogFacts, parse_log
from lossless.servers.resolved_facts import resolved_facts


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """One server's figures: memory in GB (None where neither log nor server says), pool and slots as counts.

    ``warnings`` are things that do not touch the answers but that an operator wants to know.
    """

    name: str
    version: str | None
    start_s: float
    target_gb: float | None
    draft_gb: float | None
    kv_pool_tokens: int | None
    context_length: int | None
    running_requests: int | None
    mamba_slots: int | None
    available_gb: float | None
    attention_backend: str | None
    linear_attention_backend: str | None
    warnings: tuple[str, ...] = ()

    def describe(self) -> str:
        """One line; what is not known is left out."""
        parts = [
            None if self.target_gb is None else f"weights {self.target_gb:.2f} GB",
            None if self.draft_gb is None else f"draft {self.draft_gb:.2f} GB",
            None if self.kv_pool_tokens is None else f"KV pool {self.kv_pool_tokens} tokens",
            None if self.running_requests is None else f"{self.running_requests} requests at once",
            None if self.mamba_slots is None else f"{self.mamba_slots} state slots",
            None if self.available_gb is None else f"{self.available_gb:.1f} GB left",
            self.attention_backend,
            f"start {self.start_s:.1f} s",
        ]
        return ", ".join(p for p in parts if p)


def figures(store: RunStore, state: ServerState, *, concurrency: int, draft_bytes: int | None) -> ServerFigures:
    """Figures of one recorded server. The log may be gone; then the server's own word is all there is."""
    path = store.log_path(state.name)
    log = parse_log(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else LogFacts()
    info: Mapping[str, object] = state.server_info
    resolved = resolved_facts(info)
    problems = (
        None if draft_bytes is None else draft_memory_problem(log, draft_bytes),
        slots_problem(log.mamba_cap, concurrency),
    )
    return ServerFigures(
        name=state.name,
        version=resolved.version,
        start_s=state.start_s,
        target_gb=log.target.memory_gb if log.target else resolved.weights_gb,
        draft_gb=log.draft_memory_gb,
        kv_pool_tokens=log.kv_pool_tokens or resolved.kv_pool_tokens,
        context_length=log.context_len or resolved.context_length,
        running_requests=resolved.running_requests or log.max_running_requests,
        mamba_slots=resolved.mamba_slots,
        available_gb=log.available_gb,
        attention_backend=resolved.attention_backend or log.attention_backend,
        linear_attention_backend=resolved.linear_attention_backend,
        warnings=tuple(p for p in problems if p),
    )
