"""Whether what a server allocated is enough: the KV pool, the draft's memory, the state slots."""

import pytest

from lossless.servers.capacity import GIB, draft_memory_problem, pool_problem, slots_problem
from lossless.servers.log_facts import LoadedWeights, LogFacts, MambaCap


def facts(*draft_gb: float | None, pool: int | None = 14161) -> LogFacts:
    drafts = tuple(LoadedWeights("Qwen3_5ForCausalLMMTP", gb) for gb in draft_gb)
    return LogFacts(weights=(LoadedWeights("Target", 17.67), *drafts), kv_pool_tokens=pool)


def test_the_pool_of_the_field_report_is_too_small_for_32k() -> None:
    problem = pool_problem(14161, 32768, 30000, 512)
    assert problem is not None
    assert problem.startswith("the KV pool holds 14161 tokens: a prompt of 30000 tokens with 512 new ones is refused")
    assert "mem-fraction-static" in problem
    assert pool_problem(45423, 32768, 30000, 512) is None


def test_the_context_length_can_be_the_bound() -> None:
    problem = pool_problem(137709, 32768, 32000, 1000)
    assert problem is not None
    assert problem.startswith("the context length is 32768 tokens")
    assert "Raise context-length" in problem


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert pool_problem(None, None, 10**6, 10**6) is None
    assert pool_problem(20000, None, 100, 100) is None
    assert pool_problem(20000, None, 20000, 1) is not None


def test_the_draft_of_the_field_report_takes_several_times_its_files() -> None:
    problem = draft_memory_problem(facts(5.53), int(0.85 * GIB))
    assert problem is not None
    assert "(Qwen3_5ForCausalLMMTP) took 5.53 GB for 0.85 GB of weights" in problem
    assert "14161 tokens" in problem


@pytest.mark.parametrize(
    ("loaded", "files"),
    [
        (0.79, 0.85),  # the same head, patched
        (3.69, 3.85),  # DFlash2
        (0.53, 0.005),  # noise of a shared card
        (1.90, 0.95),  # less than 1 GB too much
        (9.00, 5.00),  # less than twice
        (None, 0.85),
    ],
)
def test_a_draft_of_its_own_size_is_in_order(loaded: float | None, files: float) -> None:
    assert draft_memory_problem(facts(loaded), int(files * GIB)) is None


def test_drafts_add_up_and_need_known_sizes() -> None:
    assert draft_memory_problem(facts(2.0, 2.0), GIB) is not None
    assert draft_memory_problem(facts(2.0, None), GIB) is None
    assert draft_memory_problem(facts(), GIB) is None
    assert draft_memory_problem(facts(5.53), 0) is None
    without = draft_memory_problem(facts(5.53, pool=None), GIB)
    assert without is not None
    assert "KV pool is left" not in without


def test_a_capped_server_runs_requests_one_after_the_other() -> None:
    cap = MambaCap(running_requests=1, slots=8, slots_per_request=5)
    problem = slots_problem(cap, 2)
    assert problem is not None
    assert problem.startswith("the server runs 1 of 2 requests at once: 8 state slots, 5 for each request.")
    assert "max-mamba-cache-size = 10" in problem
    assert slots_problem(cap, 1) is None
    assert slots_problem(None, 8) is None
