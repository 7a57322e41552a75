"""What ``/server_info`` says of a running server: resolved arguments, capacity, memory. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ResolvedFacts:
    """What ``/server_info`` says better than the log: resolved arguments, and memory in GB.

    ``running_requests`` is what one data-parallel worker really runs at once (after a cap by the state pool, say);
    ``accept_length`` is the average since the last flush, None before the first verify step.
    """

    version: str | None
    kv_pool_tokens: int | None
    max_input_tokens: int | None
    context_length: int | None
    running_requests: int | None
    mamba_slots: int | None
    attention_backend: str | None
    prefill_attention_backend: str | None
    decode_attention_backend: str | None
    draft_attention_backend: str | None
    linear_attention_backend: str | None
    kv_cache_dtype: str | None
    algorithm: str | None
    draft_tokens: int | None
    weights_gb: float | None
    kv_cache_gb: float | None
    graphs_gb: float | None
    accept_length: float | None


def resolved_facts(server_info: Mapping[str, Any]) -> ResolvedFacts:
    """Read the body of ``/server_info``. Fields that are missing or of another type become None."""
    states = server_info.get("internal_states")
    state: Mapping[str, Any] = {}
    if isinstance(states, Sequence) and not isinstance(states, str) and states and isinstance(states[0], Mapping):
        state = states[0]
    memory = state.get("memory_usage")
    memory = memory if isinstance(memory, Mapping) else {}
    graphs = memory.get("graph")
    if isinstance(graphs, Mapping):
        graphs = sum(value for value in graphs.values() if isinstance(value, int | float))
    info, whole, real, text = server_info, _as_int, _as_float, _as_text
    running = whole(state.get("effective_max_running_requests_per_dp"))
    return ResolvedFacts(
        version=text(info.get("version")),
        kv_pool_tokens=_first_of(whole(info.get("max_total_num_tokens")), whole(memory.get("token_capacity"))),
        max_input_tokens=whole(info.get("max_req_input_len")),
        context_length=whole(info.get("context_length")),
        running_requests=_first_of(running, whole(info.get("max_running_requests"))),
        mamba_slots=whole(info.get("max_mamba_cache_size")),
        attention_backend=text(info.get("attention_backend")),
        prefill_attention_backend=text(info.get("prefill_attention_backend")),
        decode_attention_backend=text(info.get("decode_attention_backend")),
        draft_attention_backend=text(info.get("speculative_draft_attention_backend")),
        linear_attention_backend=text(info.get("linear_attn_backend")),
        kv_cache_dtype=text(info.get("kv_cache_dtype")),
        algorithm=text(info.get("speculative_algorithm")),
        draft_tokens=whole(info.get("speculative_num_draft_tokens")),
        weights_gb=real(memory.get("weight")),
        kv_cache_gb=real(memory.get("kvcache")),
        graphs_gb=real(graphs),
        accept_length=real(state.get("avg_spec_accept_length")),
    )


def _as_int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _as_float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _first_of(value: int | None, other: int | None) -> int | None:
    return value if value is not None else other
