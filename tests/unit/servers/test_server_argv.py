"""Command lines and environments, from profiles alone."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lossless
from lossless.errors import UsageError
from lossless.profiles import FlagValue, Profile, Variant, load_profile
from lossless.reference import builtin_path
from lossless.servers import server_argv, server_env
from lossless.servers.argv import flag_words, public_settings

TINY = f"{builtin_path()}{os.sep}"


@pytest.fixture
def tiny() -> Profile:
    return load_profile("tiny")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Profile:
    monkeypatch.setenv("LOSSLESS_SGLANG_PYTHON", "/opt/sg/bin/python")
    return load_profile("tiny-sglang-gpu")


def test_the_reference_baseline(tiny: Profile) -> None:
    assert server_argv(tiny, "baseline", 4321) == [
        *[sys.executable, "-m", "lossless.reference", "--model-path", "builtin:tiny", "--dtype", "float32"],
        *["--host", "127.0.0.1", "--port", "4321", "--chunked-prefill-size", "256"],
    ]


def test_the_reference_variants(tiny: Profile) -> None:
    nextn, dflash = (server_argv(tiny, name, 1)[11:] for name in ("nextn", "dflash"))
    assert nextn == [
        *["--speculative-algorithm", "NEXTN", "--speculative-draft-model-path", "builtin:tiny"],
        *["--chunked-prefill-size", "256"],
        *["--speculative-num-steps", "3", "--speculative-num-draft-tokens", "4"],
    ]
    assert dflash == [
        *["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "builtin:tiny"],
        *["--chunked-prefill-size", "256"],
        *["--speculative-num-draft-tokens", "8"],
    ]


def test_sglang_with_the_flags_that_worked_on_a_gpu(gpu: Profile) -> None:
    assert server_argv(gpu, "dflash", 31000) == [
        *["/opt/sg/bin/python", "-m", "sglang.launch_server", "--model-path", TINY + "target"],
        *["--host", "127.0.0.1", "--port", "31000"],
        *["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", TINY + "dflash2"],
        *["--attention-backend", "triton", "--sampling-backend", "pytorch", "--grammar-backend", "none"],
        *["--linear-attn-prefill-backend", "triton", "--mem-fraction-static", "0.15", "--max-total-tokens", "20000"],
        *["--max-running-requests", "8", "--max-mamba-cache-size", "64", "--cuda-graph-max-bs-decode", "8"],
        *["--cuda-graph-backend-prefill", "disabled", "--random-seed", "1", "--speculative-num-draft-tokens", "8"],
    ]


def test_optional_fields(gpu: Profile) -> None:
    profile = replace(gpu, tokenizer="org/tok", tp_size=2, dtype="bfloat16")
    argv = server_argv(profile, "baseline", 1)
    for flag, value in (("--tokenizer-path", "org/tok"), ("--tp-size", "2"), ("--dtype", "bfloat16")):
        assert argv[argv.index(flag) + 1] == value


def test_a_draftless_algorithm(gpu: Profile) -> None:
    profile = replace(gpu, variants={"ngram": Variant(name="ngram", algorithm="NGRAM")})
    argv = server_argv(profile, "ngram", 1)
    assert "NGRAM" in argv
    assert "--speculative-draft-model-path" not in argv


def test_a_draft_that_the_shipped_model_does_not_have(gpu: Profile) -> None:
    profile = replace(gpu, variants={"e": Variant(name="e", algorithm="EAGLE3", draft="builtin:tiny")})
    with pytest.raises(UsageError, match="no draft for EAGLE3"):
        server_argv(profile, "e", 1)


def test_a_variant_can_drop_a_flag_of_the_profile(gpu: Profile) -> None:
    assert "--random-seed" in server_argv(gpu, "nextn", 1)
    dropped = replace(gpu.variants["nextn"], args={"random-seed": False})
    assert "--random-seed" not in server_argv(replace(gpu, variants={"nextn": dropped}), "nextn", 1)


def test_no_command_line_for_attached_or_unknown_servers(tiny: Profile) -> None:
    with pytest.raises(UsageError, match="attaches to running servers"):
        server_argv(load_profile("template-attach"), "nextn", 1)
    with pytest.raises(UsageError, match="Did you mean 'dflash'"):
        server_argv(tiny, "dflsh", 1)


NAMES = st.from_regex(r"[a-z][a-z0-9]{0,6}(-[a-z0-9]{1,6}){0,2}", fullmatch=True)
ITEMS = st.integers() | st.floats(allow_nan=False) | st.text(min_size=1, max_size=8)
VALUES = st.booleans() | ITEMS | st.lists(ITEMS, max_size=3).map(tuple)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_every_flag_is_there_once_and_values_are_not_changed(flags: dict[str, FlagValue]) -> None:
    words = flag_words(flags)
    assert all(isinstance(word, str) for word in words)
    rest = iter(words)
    for flag, value in flags.items():
        if value is False or value == ():
            continue
        word = next(rest)
        if isinstance(value, tuple):
            assert word == f"--{flag}"
            assert [next(rest) for _ in value] == [str(item) for item in value]
        elif value is True:
            assert word == f"--{flag}"
        elif str(value).startswith("-"):
            assert word == f"--{flag}={value}"
        else:
            assert (word, next(rest)) == (f"--{flag}", str(value))
    assert list(rest) == []


def test_cards_are_set_for_the_server_only(tiny: Profile) -> None:
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    assert server_env(tiny, "nextn", gpus=["2", "GPU-ab"], base={})["CUDA_VISIBLE_DEVICES"] == "2,GPU-ab"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


def test_without_leased_cards_the_callers_setting_is_kept(tiny: Profile) -> None:
    assert server_env(tiny, "nextn", base={"CUDA_VISIBLE_DEVICES": "5"})["CUDA_VISIBLE_DEVICES"] == "5"
    assert "CUDA_VISIBLE_DEVICES" not in server_env(tiny, "nextn", base={})


def test_the_reference_server_finds_this_package(tiny: Profile) -> None:
    folder = str(Path(lossless.__file__).resolve().parent.parent)
    assert server_env(tiny, "baseline", base={"PYTHONPATH": "/x"})["PYTHONPATH"] == f"{folder}{os.pathsep}/x"


def test_a_profiles_environment_wins(gpu: Profile) -> None:
    profile = replace(gpu, env={"A": "1", "PYTHONPATH": "/site"})
    env = server_env(profile, "nextn", base={"A": "0", "B": "0", "PYTHONPATH": "/x"})
    assert (env["A"], env["B"], env["PYTHONPATH"]) == ("1", "0", "/site")


def test_public_settings_show_no_keys() -> None:
    env = {"SGLANG_B": "1", "SGLANG_A": "2", "SGLANG_API_KEY": "topsecret", "HOME": "/h"}
    assert public_settings(env) == {"SGLANG_A": "2", "SGLANG_B": "1"}
