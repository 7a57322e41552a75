"""What ``/server_info`` and ``/model_info`` say: SGLang 0.5.19's names, filled in with this server's values."""

import json
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lossless.reference.builtin import model_folder
from lossless.reference.engine import Engine, Stats
from lossless.reference.options import ServerOptions
from lossless.reference.requests import Limits

MAX_TOTAL_TOKENS = 20_000
"""The token capacity shown to clients. The real bound is each request's own arrays and the prefix cache's blocks."""


@dataclass(frozen=True)
class Startup:
    """Seconds that starting took."""

    load_weight_s: float
    total_s: float


def package_version() -> str:
    """This package's version, ``0`` when it runs from a source tree that was never installed."""
    try:
        return version("sglang-lossless")
    except PackageNotFoundError:
        return "0"


@cache
def _recorded_arguments() -> dict[str, Any]:
    """Every argument a real 0.5.19 server shows, with the values of a recorded one where they mean nothing here."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("server_args.json").read_text("utf-8"))
    return loaded


def resolved_arguments(o: ServerOptions, limits: Limits) -> dict[str, Any]:
    """The flat resolved arguments of this server."""
    target = str(model_folder(o.model_path, "target"))
    args = dict(_recorded_arguments())
    args |= {
        "model_path": target,
        "tokenizer_path": target,
        "served_model_name": target,
        "host": o.host,
        "port": o.port,
        "dtype": o.dtype,
        "context_length": limits.context,
        "chunked_prefill_size": o.chunked_prefill_size,
        "max_running_requests": o.max_running_requests,
        "max_total_tokens": MAX_TOTAL_TOKENS,
        "disable_radix_cache": o.disable_radix_cache,
        "disable_overlap_schedule": True,  # each step sees all tokens before it, in penalties too
        "random_seed": o.seed,
    }
    if o.nextn:
        steps = o.speculative_num_steps or 3
        args |= _speculation(
            "EAGLE", str(model_folder(o.speculative_draft_model_path or o.model_path, "target")), steps
        )
        args["speculative_num_draft_tokens"] = steps + 1
    elif o.speculative_algorithm:
        assert o.speculative_draft_model_path is not None
        args |= _speculation("DFLASH", str(model_folder(o.speculative_draft_model_path, "dflash2")), 1)
        args["speculative_draft_attention_backend"] = "numpy"
    return args


def _speculation(algorithm: str, draft: str, steps: int) -> dict[str, Any]:
    return {
        "speculative_algorithm": algorithm,
        "speculative_draft_model_path": draft,
        "speculative_draft_model_revision": "main",
        "speculative_num_steps": steps,
        "speculative_eagle_topk": 1,
    }


def server_info(o: ServerOptions, limits: Limits, engine: Engine, startup: Startup) -> dict[str, Any]:
    """The body of ``/server_info``."""
    args = resolved_arguments(o, limits)
    if engine.models.drafter is not None:
        args["speculative_num_draft_tokens"] = engine.models.drafter.width
    times = {"load_weight": startup.load_weight_s, "kv_cache_allocation": 0.0, "scheduler_e2e": startup.total_s}
    return {
        **args,
        "launch_command": " ".join(sys.argv),
        "status": "ready",
        "max_total_num_tokens": MAX_TOTAL_TOKENS,
        "max_req_input_len": limits.max_input,
        "startup_time": {**times, "tokenizer_e2e": startup.total_s},
        "internal_states": [{**args, **_internal(engine.stats, o), "startup_time": times}],
        "version": f"reference-{package_version()}",
        "kv_events": None,
    }


def _internal(stats: Stats, o: ServerOptions) -> dict[str, Any]:
    out: dict[str, Any] = {
        "world_size": 1,
        "last_gen_throughput": stats.tokens / stats.busy_s if stats.busy_s else 0.0,
        "memory_usage": {"weight": 0.0, "kvcache": 0.0, "token_capacity": MAX_TOTAL_TOKENS, "token_capacity_swa": None},
        "effective_max_running_requests_per_dp": o.max_running_requests,
    }
    if stats.accept_length is not None:
        out["avg_spec_accept_length"] = stats.accept_length
    return out


def model_info(o: ServerOptions, engine: Engine) -> dict[str, Any]:
    """The body of ``/model_info``."""
    target = str(model_folder(o.model_path, "target"))
    files = engine.models.target.files
    return {
        "model_path": target,
        "served_model_name": target,
        "tokenizer_path": target,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "load_format": "auto",
        "reasoning_parser": None,
        "tool_call_parser": None,
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": files.model_type,
        "architectures": list(files.architectures),
    }
