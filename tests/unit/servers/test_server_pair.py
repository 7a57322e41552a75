"""When two servers are a pair. The facts are those of SGLang 0.5.19 on a GPU (long lists and states shortened)."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lossless.servers import (
    PairProblem,
    ServerFacts,
    algorithm_of,
    compare_pair,
    config_problems,
    pair_problems,
)
from lossless.servers.pair_arguments import EXPECTED, IGNORED, MATTER, SETTINGS_MATTER

RECORDED: dict[str, dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "data" / "sglang-0.5.19-info.json").read_text(encoding="utf-8")
)


def facts(name: str = "baseline", **change: Any) -> ServerFacts:
    """A recorded server (the variants are stored as what differs from the baseline), with changed arguments."""
    base = RECORDED["baseline"]
    return ServerFacts({**base["server_info"], **RECORDED[name]["server_info"], **change}, base["model_info"])


def test_algorithms_as_sglang_resolves_them() -> None:
    assert algorithm_of(facts()) is None
    assert algorithm_of(facts("nextn")) == "EAGLE"
    assert algorithm_of(facts("dflash")) == "DFLASH"
    assert algorithm_of(ServerFacts({"speculative_algorithm": "none"})) is None
    assert algorithm_of(ServerFacts({})) is None


@pytest.mark.parametrize("variant", ["nextn", "dflash"])
def test_a_real_pair_has_notes_but_no_problems(variant: str) -> None:
    found = compare_pair(facts(), facts(variant))
    assert found.problems == ()
    names = {note.argument for note in found.notes}
    assert {"speculative_algorithm", "speculative_num_draft_tokens", "cuda_graph_config"} <= names
    assert not names & {"port", "startup_time", "internal_states"}
    assert all(note.why for note in found.notes)


@pytest.mark.parametrize("variant", ["nextn", "dflash"])
def test_real_servers_play_their_parts(variant: str) -> None:
    assert config_problems(facts(), speculative=False) == ()
    assert config_problems(facts(variant), speculative=True, algorithm=variant.upper()) == ()


@pytest.mark.parametrize("name", sorted(SETTINGS_MATTER))
def test_each_setting_that_matters_is_a_problem_when_it_differs(name: str) -> None:
    variant = replace(facts("nextn"), settings={name: "something else"})
    (problem,) = pair_problems(replace(facts(), settings={}), variant)
    assert problem == PairProblem(name, None, "something else", MATTER[name])


@pytest.mark.parametrize("argument", sorted(set(MATTER) - SETTINGS_MATTER))
def test_each_argument_that_matters_is_a_problem_when_it_differs(argument: str) -> None:
    variant = facts("nextn")
    there = argument in variant.server_info or argument not in variant.model_info
    source = variant.server_info if there else variant.model_info
    changed = {**source, argument: "something else"}
    variant = replace(variant, server_info=changed) if there else replace(variant, model_info=changed)
    (problem,) = pair_problems(facts(), variant)
    assert problem == PairProblem(argument, facts().get(argument), "something else", MATTER[argument])
    assert argument in str(problem)
    assert "something else" in str(problem)
    allowed = compare_pair(facts(), variant, allow_differences=[argument])
    assert allowed.problems == ()
    assert any(note.argument == argument and "allowed by the profile" in note.why for note in allowed.notes)


@pytest.mark.parametrize("argument", [*sorted(EXPECTED), "speculative_anything", "an_argument_of_the_future"])
def test_other_differences_are_notes(argument: str) -> None:
    found = compare_pair(facts(), facts("nextn", **{argument: "something else"}))
    assert found.problems == ()
    assert argument in {note.argument for note in found.notes}


def test_the_tables_do_not_overlap() -> None:
    assert not set(MATTER) & set(EXPECTED)
    assert not (set(MATTER) | set(EXPECTED)) & IGNORED


def test_keys_are_never_compared() -> None:
    found = compare_pair(facts(api_key="a"), facts("nextn", api_key="b", admin_api_key="c"))
    assert not {"api_key", "admin_api_key"} & {note.argument for note in (*found.notes, *found.problems)}


def test_the_cpu_servers_are_a_pair_only_where_the_profile_allows_it() -> None:
    base = facts(attention_backend="torch_native")
    variant = facts(
        "nextn", attention_backend=None, prefill_attention_backend="intel_amx", decode_attention_backend="intel_amx"
    )
    names = ["attention_backend", "prefill_attention_backend", "decode_attention_backend"]
    assert sorted(p.argument for p in pair_problems(base, variant)) == sorted(names)
    assert pair_problems(base, variant, allow_differences=names) == ()


def test_environment_settings_of_launched_servers() -> None:
    base = replace(facts(), settings={"SGLANG_MAMBA_CONV_DTYPE": "float32", "SGLANG_LOG_MS": "1"})
    (problem,) = pair_problems(base, replace(facts("nextn"), settings={}))
    assert (problem.argument, problem.baseline_value) == ("SGLANG_MAMBA_CONV_DTYPE", "float32")
    assert pair_problems(base, facts("nextn")) == (), "what is not known is not a difference"
    exposed = facts("nextn", internal_states=[{"env_vars": {"SGLANG_MAMBA_CONV_DTYPE": "bfloat16"}}])
    assert [p.variant_value for p in pair_problems(base, exposed)] == ["bfloat16"]


def test_an_argument_that_only_one_version_knows() -> None:
    old = facts()
    new = facts("nextn", version="0.5.23", enable_new_thing=True)
    found = compare_pair(old, new)
    assert [p.argument for p in found.problems] == ["version"]
    assert "enable_new_thing" in {n.argument for n in found.notes}


# -- one server


def arguments(problems: tuple[Any, ...]) -> list[str]:
    return [problem.argument for problem in problems]


@pytest.mark.parametrize("name", ["speculative_accept_threshold_single", "speculative_accept_threshold_acc"])
def test_thresholds_below_one(name: str) -> None:
    (problem,) = config_problems(facts("nextn", **{name: 0.9}), speculative=True)
    assert (problem.argument, problem.value, problem.expected) == (name, 0.9, "1.0")


def test_a_threshold_changed_while_the_server_runs_shows_in_the_internal_states() -> None:
    states = [{"speculative_accept_threshold_acc": 1.0}, {"speculative_accept_threshold_acc": 0.5}]
    (problem,) = config_problems(facts("nextn", internal_states=states), speculative=True)
    assert (problem.argument, problem.value) == ("speculative_accept_threshold_acc", 0.5)


def test_preferred_sampling_parameters_from_either_endpoint() -> None:
    params = {"temperature": 0.7}
    by_server = facts(preferred_sampling_params=params)
    by_model = ServerFacts({}, {"preferred_sampling_params": params})
    assert arguments(config_problems(by_server, speculative=False)) == ["preferred_sampling_params"]
    assert arguments(config_problems(by_model, speculative=False)) == ["preferred_sampling_params"]


def test_speculation_on_the_wrong_side() -> None:
    assert arguments(config_problems(facts("nextn"), speculative=False)) == ["speculative_algorithm"]
    assert arguments(config_problems(facts(), speculative=True)) == ["speculative_algorithm"]


@pytest.mark.parametrize(
    ("asked", "running", "good"),
    [
        ("NEXTN", "EAGLE", True),
        ("NEXTN", "FROZEN_KV_MTP", True),
        ("nextn", "NEXTN", True),
        ("NEXTN", "DFLASH", False),
        ("DFLASH", "DFLASH", True),
        ("DFLASH", "EAGLE", False),
        ("EAGLE3", "EAGLE3", True),
    ],
)
def test_the_algorithm_is_the_one_asked_for(asked: str, running: str, good: bool) -> None:
    found = config_problems(facts("nextn", speculative_algorithm=running), speculative=True, algorithm=asked)
    assert arguments(found) == ([] if good else ["speculative_algorithm"])


@pytest.mark.parametrize(
    ("value", "bad"), [("3", True), ("2.5", True), ("-1", False), ("0", False), ("", False), ("x", True)]
)
def test_simulated_acceptance_in_the_launch_environment(value: str, bad: bool) -> None:
    server = replace(facts("nextn"), settings={"SGLANG_SIMULATE_ACC_LEN": value})
    assert arguments(config_problems(server, speculative=True)) == (["SGLANG_SIMULATE_ACC_LEN"] if bad else [])


@pytest.mark.parametrize(("value", "bad"), [("1", True), ("true", True), ("false", False), ("0", False)])
def test_simulated_experts(value: str, bad: bool) -> None:
    server = replace(facts(), settings={"SGLANG_SIMULATE_UNIFORM_EXPERTS": value})
    assert bool(config_problems(server, speculative=False)) is bad


def test_simulated_acceptance_where_the_server_exposes_its_environment() -> None:
    states = [{"env_vars": {"SGLANG_SIMULATE_ACC_LEN": 3}}]
    found = config_problems(facts("nextn", internal_states=states), speculative=True)
    assert arguments(found) == ["SGLANG_SIMULATE_ACC_LEN"]
    assert "rejected tokens are emitted" in str(found[0])
