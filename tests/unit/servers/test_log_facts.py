"""What is read from a server's log: exact figures of logs recorded from SGLang 0.5.19, and lines of field reports."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lossless.servers.log_facts import (
    GraphCapture,
    KernelBackends,
    LoadedWeights,
    LogFacts,
    MambaCache,
    MambaCap,
    parse_log,
)
from lossless.servers.resolved_facts import resolved_facts

DATA = Path(__file__).parent / "data"
TARGET = "Qwen3_5ForConditionalGeneration"
TRITON = KernelBackends("triton", "triton", "triton")
GDN = KernelBackends("TritonGDNKernel", "TritonGDNKernel", "TritonGDNKernel")


def read(name: str) -> LogFacts:
    return parse_log((DATA / "logs" / f"sglang-0.5.19-{name}.txt").read_text("utf-8"))


RECORDED: dict[str, dict[str, Any]] = {
    "baseline": {
        "weights": (LoadedWeights(TARGET, 0.22, 0.12, 137.15),),
        "kv_pool_sizes": (20000,),
        "available_gb": 136.44,
        "memory_after_pools_gb": 136.76,
        "mamba_cache": MambaCache(64, 0.0, 0.10, 0.0, 0.0),
        "captures": (GraphCapture("target decode", 136.66, 19.66, 0.22),),
        "capture_progress": (4, 4),
        "startup_seconds": 48.32,
    },
    "nextn": {
        "weights": (
            LoadedWeights(TARGET, 0.04, 0.13, 137.37),
            LoadedWeights("Qwen3_5ForCausalLMMTP", 0.0, 0.02, 137.37),
        ),
        "kv_pool_sizes": (20000, 20000),
        "available_gb": 136.15,
        "memory_after_pools_gb": 136.99,
        "mamba_cache": MambaCache(64, 0.0, 0.10, 0.05, 0.0),
        "captures": (
            GraphCapture("target verify", 136.66, 24.05, 0.50),
            GraphCapture("draft decode", 136.16, 1.96, 0.06),
            GraphCapture("draft extend", 136.10, 2.60, -0.06),
        ),
        "capture_progress": (8, 8),
        "startup_seconds": 55.95,
    },
    "dflash": {
        "weights": (LoadedWeights(TARGET, 0.53, 0.13, 138.55), LoadedWeights("DFlash2DraftModel", 0.0, 0.01, 138.33)),
        "kv_pool_sizes": (20000, 20000),
        "available_gb": 135.87,
        "memory_after_pools_gb": 137.11,
        "mamba_cache": MambaCache(64, 0.0, 0.10, 0.11, 0.0),
        "draft_attention_backend": "triton",
        "draft_block_size": 8,
        "captures": (
            GraphCapture("target verify", 136.67, 23.10, 0.26),
            GraphCapture("draft verify", 136.41, 9.15, 0.54),
        ),
        "startup_seconds": 60.10,
    },
    "nextn-simulated-acceptance": {
        "weights": (
            LoadedWeights(TARGET, 0.04, 0.16, 134.37),
            LoadedWeights("Qwen3_5ForCausalLMMTP", 0.0, 0.02, 134.37),
        ),
        "available_gb": 133.99,
        "memory_after_pools_gb": 134.16,
        "mamba_cache": MambaCache(64, 0.0, 0.10, 0.05, 0.0),
        "accept_lengths": (3.0,) * 8,
        "startup_seconds": 27.65,
    },
    "dflash-simulated-acceptance": {
        "weights": (LoadedWeights(TARGET, 0.04, 0.11, 134.86), LoadedWeights("DFlash2DraftModel", 0.0, 0.01, 134.86)),
        "available_gb": 133.99,
        "memory_after_pools_gb": 134.58,
        "mamba_cache": MambaCache(64, 0.0, 0.10, 0.11, 0.0),
        "draft_block_size": 8,
        "accept_lengths": (3.0,) * 8,
        "startup_seconds": 27.80,
    },
}


@pytest.mark.parametrize("name", RECORDED)
def test_the_figures_of_recorded_servers(name: str) -> None:
    facts = read(name)
    common = {
        "kv_pool_tokens": 20000,
        "chunked_prefill_size": 8192,
        "max_running_requests": 8,
        "context_len": 4096,
        "attention_backend": "triton",
        "linear_attention": TRITON,
        "gdn_kernels": GDN,
        "mamba_cap": None,
        "version": None,
        "ready": True,
    }
    for field, value in (common | RECORDED[name]).items():
        assert getattr(facts, field) == value, field
    assert all(capture.finished for capture in facts.captures)


@pytest.mark.parametrize("name", RECORDED)
def test_an_orderly_end_is_no_failure(name: str) -> None:
    # All five end with SIGTERM, after which SGLang itself says that a subprocess crashed.
    text = (DATA / "logs" / f"sglang-0.5.19-{name}.txt").read_text("utf-8")
    assert "crashed with exit code -15" in text
    assert read(name).fatal_lines == ()


def test_accept_lengths_and_throughput() -> None:
    nextn, dflash, baseline = read("nextn"), read("dflash"), read("baseline")
    assert nextn.accept_lengths[:3] == (2.90, 3.15, 2.77)
    assert len(nextn.accept_lengths) == len(nextn.gen_throughputs) == 65
    assert nextn.mean_accept_length == pytest.approx(3.119846, abs=1e-6)
    assert len(dflash.accept_lengths) == 37
    assert dflash.accept_lengths[:3] == (5.53, 4.40, 5.70)
    assert dflash.mean_accept_length == pytest.approx(5.513243, abs=1e-6)
    assert dflash.mean_gen_throughput == pytest.approx(802.717027, abs=1e-6)
    assert baseline.accept_lengths == ()
    assert baseline.mean_accept_length is None
    assert baseline.gen_throughputs[:2] == (1.83, 66.64)


def test_a_server_on_the_cpu() -> None:
    facts = read("cpu")
    assert facts.target == LoadedWeights(TARGET, 0.10, 0.10, 21.16)
    assert facts.drafts == ()
    assert facts.draft_memory_gb is None
    assert (facts.kv_pool_tokens, facts.chunked_prefill_size, facts.max_running_requests) == (4096, 2048, 4)
    assert (facts.context_len, facts.available_gb, facts.memory_after_pools_gb) == (4096, 20.85, 20.88)
    assert facts.attention_backend == "torch_native"
    assert facts.captures == ()
    assert facts.gen_throughputs == (0.45, 81.56, 59.24, 30.46, 43.64, 50.81)
    assert facts.ready
    # A missing optional package is not fatal; what ended the server is.
    assert facts.fatal_lines[0].endswith("TokenizerManager hit an exception: Traceback (most recent call last):")
    assert facts.fatal_lines[1] == "TypeError: object of type 'NoneType' has no len()"
    assert len(facts.fatal_lines) == 2


FIELD_REPORT = """\
Load weight end. type=Qwen3_5ForConditionalGeneration, mem usage=17.67 GB
Load weight end. type=Qwen3_5ForCausalLMMTP,          mem usage=5.53 GB
Mamba Cache is allocated. ssm_state size: 0.98GB, intermediate_ssm_state_cache size: 1.12GB
KV Cache is allocated. #tokens: 14161
Memory pool end. avail mem=4.17 GB
max_running_requests is capped to 1 by the mamba state cache
  (max_mamba_cache_size=6, 5 state slots per request)
"""


def test_the_lines_of_a_field_report() -> None:
    facts = parse_log(FIELD_REPORT)
    assert facts.weights == (
        LoadedWeights("Qwen3_5ForConditionalGeneration", 17.67),
        LoadedWeights("Qwen3_5ForCausalLMMTP", 5.53),
    )
    assert facts.draft_memory_gb == 5.53
    assert facts.mamba_cache == MambaCache(None, 0.0, 0.98, 1.12, 0.0)
    assert facts.mamba_cache.total_gb == pytest.approx(2.10)
    assert facts.kv_pool_tokens == 14161  # no summary line: the first pool
    assert facts.memory_after_pools_gb == 4.17
    assert facts.mamba_cap == MambaCap(1, 6, 5)
    assert not facts.ready


def test_the_cap_as_the_server_writes_it() -> None:
    # mem_cache/kv_cache_configurator.py, 0.5.17 to 0.5.23
    line = (
        "[2026-01-02 14:18:18] max_running_requests is capped to 1 by the mamba state cache (max_mamba_cache_size=8, "
        "5 state slots per request). To raise it: increase --mamba-full-memory-ratio or --max-mamba-cache-size, or "
        "halve the state size with --mamba-ssm-dtype bfloat16."
    )
    assert parse_log(line).mamba_cap == MambaCap(1, 8, 5)


def test_one_rank_is_read_of_several() -> None:
    log = "".join(
        f"[2026-01-02 10:00:0{at} TP{rank}] Load weight end. elapsed=1.{at} s, type={kind}, avail mem=9.00 GB, "
        f"mem usage={memory} GB.\n"
        for at, (rank, kind, memory) in enumerate(
            [(1, "Target", "8.90"), (0, "Target", "8.80"), (0, "Draft", "1.20"), (1, "Draft", "1.30")]
        )
    )
    facts = parse_log(log)
    assert [(w.type_name, w.memory_gb) for w in facts.weights] == [("Target", 8.90), ("Draft", 1.30)]


def test_a_quantized_target_names_its_quantization_in_between() -> None:
    line = "Load weight end. elapsed=9.10 s, type=X, quant=compressed-tensors, avail mem=13.00 GB, mem usage=17.65 GB."
    assert parse_log(line).target == LoadedWeights("X", 17.65, 9.10, 13.00)


def test_a_capture_that_did_not_end() -> None:
    log = (
        "Capture target decode CUDA graph begin. backend=full, bs=[1, 2], avail mem=2.10 GB\n"
        "Capture target decode CUDA graph end. elapsed=3.00 s, mem usage=0.36 GB, avail mem=1.74 GB.\n"
        "Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[2048, 1024], avail mem=1.74 GB\n"
        "Capturing num tokens (num_tokens=2048 avail_mem=1.70 GB):   0%|          | 0/2 [00:00<?, ?it/s]\r"
        "Capturing num tokens (num_tokens=1024 avail_mem=0.20 GB):  50%|##### | 1/2 [00:18<00:18, 18.50s/it]\n"
    )
    facts = parse_log(log)
    assert facts.captures == (
        GraphCapture("target decode", 2.10, 3.0, 0.36),
        GraphCapture("target prefill", 1.74),
    )
    assert [capture.finished for capture in facts.captures] == [True, False]
    assert facts.capture_progress == (1, 2)


def test_block_accept_lengths_are_something_else() -> None:
    line = (
        "Decode batch, #running-req: 1, accept len: 2.50, accept rate: 0.50, block accept len: 7.00, "
        "gen throughput (token/s): 9.5, #queue-req: 0"
    )
    facts = parse_log(line)
    assert facts.accept_lengths == (2.5,)
    assert facts.gen_throughputs == (9.5,)


def test_a_request_that_was_refused_is_not_fatal() -> None:
    ready = "[2026-01-02 10:00:00] The server is fired up and ready to roll!\n"
    refused = "Traceback (most recent call last):\nTypeError: can only concatenate str\n"
    assert parse_log(refused + ready + refused).fatal_lines == ()
    died = "[2026-01-02 10:00:01] Scheduler hit an exception: Traceback (most recent call last):\nAssertionError\n"
    facts = parse_log(ready + refused + died)
    assert facts.fatal_lines == (died.splitlines()[0], "AssertionError")


def test_the_log_of_the_reference_engine() -> None:
    facts = parse_log(
        "[2026-01-02 15:28:36] Load weight end. elapsed=0.13 s, type=Target, mem usage=0.04 GB.\n"
        "[2026-01-02 15:28:36] chunked_prefill_size=256, max_running_requests=8, context_len=4096, url=http://x\n"
        "[2026-01-02 15:28:36] The server is fired up and ready to roll!\n"
    )
    assert facts.target == LoadedWeights("Target", 0.04, 0.13)
    assert (facts.chunked_prefill_size, facts.max_running_requests, facts.context_len) == (256, 8, 4096)
    assert facts.kv_pool_tokens is None
    assert facts.ready


@pytest.mark.parametrize("log", ["", "\n\r\n", "Load weight end. Committed real weights in 3 s", "mem usage=x GB"])
def test_nothing_is_found_in_nothing(log: str) -> None:
    assert parse_log(log) == LogFacts()


def test_the_version_where_the_log_has_it() -> None:
    assert parse_log("sglang==0.5.17\nx").version == "0.5.17"
    assert parse_log('body: {"version": "0.5.19", "x": 1}').version == "0.5.19"


def info(server: str) -> dict[str, Any]:
    data = json.loads((DATA / "sglang-0.5.19-info.json").read_text("utf-8"))
    found: dict[str, Any] = data["baseline"]["server_info"] | data[server]["server_info"]
    return found


def test_resolved_facts_of_a_recorded_server() -> None:
    facts = resolved_facts(info("nextn"))
    assert (facts.version, facts.algorithm, facts.draft_tokens) == ("0.5.19", "EAGLE", 4)
    assert (facts.kv_pool_tokens, facts.max_input_tokens, facts.running_requests, facts.mamba_slots) == (
        20000,
        4090,
        8,
        64,
    )
    assert (facts.attention_backend, facts.linear_attention_backend) == ("triton", "triton")
    assert facts.prefill_attention_backend is None
    assert (facts.weights_gb, facts.kv_cache_gb) == (0.035, 0.038)
    assert facts.graphs_gb == pytest.approx(0.504 + 0.061 - 0.057)
    assert facts.accept_length == pytest.approx(2.758333, abs=1e-6)
    assert resolved_facts(info("baseline")).accept_length is None
    assert resolved_facts(info("dflash")).draft_attention_backend == "triton"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"internal_states": []},
        {"internal_states": "none", "max_total_num_tokens": "many", "version": 5},
        {"internal_states": [{"memory_usage": None, "avg_spec_accept_length": True}]},
        {"internal_states": [None]},
    ],
)
def test_resolved_facts_of_another_shape_are_unknown(body: dict[str, Any]) -> None:
    facts = resolved_facts(body)
    assert all(getattr(facts, name) is None for name in facts.__slots__)


def test_a_capped_server_runs_fewer_than_it_was_told() -> None:
    body = {"max_running_requests": 8, "internal_states": [{"effective_max_running_requests_per_dp": 1}]}
    assert resolved_facts(body).running_requests == 1
    assert resolved_facts({"internal_states": [{"memory_usage": {"token_capacity": 14161}}]}).kv_pool_tokens == 14161


def test_the_excerpts_name_no_machine() -> None:
    for path in (*(DATA / "logs").iterdir(), *(DATA / "failures").iterdir()):
        assert not re.search(r"/(?:root|home|work|tmp)/", path.read_text("utf-8")), path.name
