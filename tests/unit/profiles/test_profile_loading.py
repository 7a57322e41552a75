"""Reading profile files: what is accepted, and what an error tells."""

import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossless.errors import UsageError
from lossless.profiles import FlagValue, Profile, load_profile, shipped_names, shipped_profiles
from lossless.prompts import LongContext

MINIMAL = """
description = "d"
kind = "sglang"
target = "org/model"
[variants.nextn]
algorithm = "nextn"
"""


def write(folder: Path, text: str, name: str = "mine.toml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def error_of(folder: Path, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_profile(write(folder, text))
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_minimal_profile_gets_the_documented_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOSSLESS_SGLANG_PYTHON", raising=False)
    profile = load_profile(write(tmp_path, MINIMAL))
    assert profile.name == "mine"
    assert profile.command == (sys.executable, "-m", "sglang.launch_server")
    assert (profile.concurrency, profile.start_deadline_s, profile.parallel_servers, profile.tp_size) == (8, 600, 1, 1)
    assert profile.prompts == "standard"
    assert profile.tokenizer_source == "org/model"
    assert profile.server_names == ("baseline", "nextn")
    assert profile.variants["nextn"].algorithm == "NEXTN"
    assert profile.draft_of("nextn") == "org/model"
    assert profile.draft_of("baseline") is None


def test_the_python_with_sglang_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOSSLESS_SGLANG_PYTHON", "/opt/sg/bin/python")
    assert load_profile(write(tmp_path, MINIMAL)).command[0] == "/opt/sg/bin/python"


def test_server_flags_and_env_lie_over_the_profiles(tmp_path: Path) -> None:
    text = MINIMAL.replace("[variants.nextn]", '[args]\na = 1\nb = [1, 2]\n[env]\nX = "1"\n[variants.nextn]')
    text += 'args = { a = false, c = true }\nenv = { X = "2", Y = "3" }\n'
    profile = load_profile(write(tmp_path, text))
    assert profile.flags_of("baseline") == {"a": 1, "b": (1, 2)}
    assert profile.flags_of("nextn") == {"a": False, "b": (1, 2), "c": True}
    assert profile.env_of("nextn") == {"X": "2", "Y": "3"}


def test_relative_paths_belong_to_the_files_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "draft").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    text = MINIMAL.replace('"org/model"', '"./models/t"') + 'draft = "models/draft"\n'
    text = 'prompts = "p/my.json"\n' + text
    path = write(tmp_path, text)
    monkeypatch.chdir(tmp_path / "elsewhere")
    profile = load_profile(os.path.relpath(path))
    assert profile.target == str(tmp_path / "models" / "t")
    assert profile.variants["nextn"].draft == str(tmp_path / "models" / "draft")
    assert profile.prompts == str(tmp_path / "p" / "my.json")


def test_environment_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = MINIMAL.replace('"org/model"', '"${MY_MODELS}/t"') + 'draft = "${MY_DRAFT:-org/draft}"\n'
    monkeypatch.setenv("MY_MODELS", "/m")
    monkeypatch.delenv("MY_DRAFT", raising=False)
    profile = load_profile(write(tmp_path, text))
    assert (profile.target, profile.variants["nextn"].draft) == ("/m/t", "org/draft")


@pytest.mark.parametrize("value", [None, ""])
def test_an_unset_variable_is_named_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("MY_MODELS", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_MODELS", value)
    message = error_of(tmp_path, MINIMAL + 'draft = "${MY_MODELS}/d"\n')
    assert "mine.toml: variants.nextn.draft: the environment variable MY_MODELS is not set" in message
    assert "export MY_MODELS=" in message


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("concurency = 3\n{}", ["mine.toml: concurency: unknown key", "concurrency", "Did you mean 'concurrency'?"]),
        (
            '{}algoritm = "X"\n',
            ["variants.nextn.algoritm: unknown key; allowed here: algorithm, draft, args, env, url"],
        ),
        ("{}[baseline]\narg = {{}}\n", ["baseline.arg: unknown key", "Did you mean 'args'?"]),
        ("{}[epsilon]\nmax = 1.0\n", ["epsilon.max: unknown key; allowed here: k, minimum, cap"]),
        ("concurrency = 0\n{}", ["mine.toml: concurrency", ">= 1"]),
        ('concurrency = "3"\n{}', ["mine.toml: concurrency", "`int`", "`str`"]),
        ("{}[args]\nx = {{ y = 1 }}\n", ["mine.toml: args"]),
        ("{}args = 3\n", ["mine.toml: variants.nextn.args", "`object`"]),
        ("{}[args]\n--page-size = 1\n", ["args.--page-size", "Did you mean 'page-size'?"]),
        ("{}[args]\npage_size = 1\n", ["args.page_size", "Did you mean 'page-size'?"]),
        ("{}[args]\nport = 1\n", ["args.port: not allowed", "free port"]),
        ('{}[args]\napi-key = "k-very-secret"\n', ["args.api-key: not allowed", "never holds a key"]),
        ('{}[args]\nmodel-path = "x"\n', ["args.model-path", "`target`"]),
        ('{}args = {{ speculative-algorithm = "X" }}\n', ["variants.nextn.args.speculative-algorithm", "algorithm"]),
        ('{}[env]\nCUDA_VISIBLE_DEVICES = "1"\n', ["env.CUDA_VISIBLE_DEVICES: not allowed"]),
        ('{}url = "http://h:1"\n', ["variants.nextn.url", "only kind 'attach'"]),
        ('{}[variants.baseline]\nalgorithm = "NEXTN"\n', ["variants.baseline", "not 'baseline'"]),
        ('{}[variants."../x"]\nalgorithm = "NEXTN"\n', ["variants.../x", "lower-case"]),
        ('{}[variants.d]\nalgorithm = "DFLASH"\n', ["variants.d.draft: missing: DFLASH needs a draft model"]),
        ("{}[variants.d]\n", ["variants.d.algorithm: missing"]),
        ("{}[epsilon]\nminimum = 2.0\ncap = 1.0\n", ["epsilon", "above cap"]),
        ("{}[epsilon]\nk = -1.0\n", ["epsilon.k"]),
        ("name = 'A/../b'\n{}", ["mine.toml: name"]),
        ("command = []\n{}", ["mine.toml: command"]),
        ('api_key_env = "sk-not a name"\n{}', ["api_key_env: must be the name"]),
        ("{}[long]\nlengths = [100]\n", ["mine.toml: long.lengths[0]", ">= 256"]),
        ("{}[long]\nlengths = [512, 512]\n", ["long.lengths: has a value twice: [512, 512]"]),
        ("{}[long]\ndepths = [1.5]\n", ["long.depths[0]", "<= 1.0"]),
        ("{}[long]\ndepths = []\n", ["long.depths", "length >= 1"]),
        ("{}[long]\ndepth = 1\n", ["long.depth: unknown key; allowed here: lengths, depths, max_new_tokens"]),
        ("{}[variants.nextn]\n", ["not valid TOML", "mine.toml"]),
    ],
)
def test_errors_name_file_key_and_what_is_allowed(tmp_path: Path, change: str, expected: list[str]) -> None:
    message = error_of(tmp_path, change.format(MINIMAL))
    for piece in expected:
        assert piece in message


def test_long_prompts(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINIMAL + "[long]\nlengths = [1024, 512]\n", encoding="utf-8")
    assert load_profile(str(path)).long == LongContext((1024, 512), (0.1, 0.5, 0.9), 128)
    path.write_text(MINIMAL + "[long]\nlengths = []\n", encoding="utf-8")
    assert load_profile(str(path)).long.haystacks == ()
    path.write_text(MINIMAL, encoding="utf-8")
    assert load_profile(str(path)).long.lengths == (8192, 32768, 131072)


def test_a_key_in_the_wrong_place_is_not_repeated(tmp_path: Path) -> None:
    assert "sk-abc" not in error_of(tmp_path, 'api_key_env = "sk-abc-def"\n' + MINIMAL)
    assert "k-very-secret" not in error_of(tmp_path, MINIMAL + '[args]\napi-key = "k-very-secret"\n')


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('kind = "sglang"', 'kind = "sglong"', "mine.toml: kind"),
        ('kind = "sglang"', 'kind = "attach"', "baseline.url: missing"),
        ('target = "org/model"', "", "target: missing"),
        ('target = "org/model"', 'target = "auto"', "'auto' is for kind 'attach' only"),
        ('[variants.nextn]\nalgorithm = "nextn"', "", "at least one variant"),
    ],
)
def test_impossible_profiles(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert expected in error_of(tmp_path, MINIMAL.replace(old, new))


@pytest.mark.parametrize("url", ["127.0.0.1:3000", "ftp://h", "http://u:secretpw@h:1", "http://h:1/?x=1"])
def test_bad_addresses(tmp_path: Path, url: str) -> None:
    text = f"""
        description = "d"
        kind = "attach"
        baseline.url = "{url}"
        [variants.x]
        url = "http://127.0.0.1:1"
    """
    message = error_of(tmp_path, text)
    assert "baseline.url" in message
    assert "secretpw" not in message


def test_an_attach_profile_needs_no_target(tmp_path: Path) -> None:
    text = 'description = "d"\nkind = "attach"\nbaseline.url = "http://h:1/"\nvariants.x.url = "https://h:2/base/"\n'
    profile = load_profile(write(tmp_path, text))
    assert profile.target == "auto"
    assert (profile.baseline.url, profile.variants["x"].url) == ("http://h:1", "https://h:2/base")
    assert profile.variants["x"].algorithm is None


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(UsageError) as caught:
        load_profile("tinny")
    assert "shipped: " in caught.value.message
    assert "tiny-bfloat16" in caught.value.message
    assert "Did you mean 'tiny'?" in caught.value.message


def test_a_missing_file_is_told_from_an_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no profile file"):
        load_profile(str(tmp_path / "no.toml"))


def test_an_unknown_server_name() -> None:
    with pytest.raises(UsageError, match=r"has: baseline, nextn, dflash\. Did you mean 'nextn'"):
        load_profile("tiny").server("nexten")


SHIPPED = ("qwen3.8-27b-int4-32gb", "qwen3.8-27b-int4-32gb-128k", "template-attach", "template-launch",
           "tiny", "tiny-bfloat16", "tiny-sglang-cpu", "tiny-sglang-gpu")  # fmt: skip


def test_all_shipped_profiles_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOSSLESS_SGLANG_CPU_SITE", raising=False)
    assert shipped_names() == SHIPPED
    assert tuple(profile.name for profile in shipped_profiles()) == SHIPPED
    assert all(profile.description for profile in shipped_profiles())


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Profile:
    monkeypatch.setenv("LOSSLESS_SGLANG_CPU_SITE", "/cpu/site")
    return load_profile(request.param)


@pytest.mark.parametrize("shipped", SHIPPED, indirect=True)
def test_every_shipped_profile_loads_and_has_no_machine_path(shipped: Profile) -> None:
    assert shipped.source is not None
    text = shipped.source.read_text(encoding="utf-8")
    assert re.findall(r'"/[^"]*"', text) in ([], ['"/opt/sglang/bin/python"']), "only a template shows a made-up path"
    assert "${" not in repr((shipped.target, shipped.env, shipped.variants))


@pytest.mark.parametrize("shipped", [n for n in SHIPPED if "32gb" in n], indirect=True)
def test_card_profiles_give_all_servers_the_same_numbers(shipped: Profile) -> None:
    """Only the speculative flags may differ between the servers, or they are no pair."""
    for name in shipped.variants:
        own = {k for k, v in shipped.flags_of(name).items() if shipped.flags_of("baseline").get(k) != v}
        assert own
        assert all(flag.startswith("speculative-") for flag in own)
    flags = shipped.flags_of("dflash")
    # A speculative request takes five state slots (seen in the log of 0.5.19).
    assert isinstance(flags["max-mamba-cache-size"], int)
    assert flags["max-mamba-cache-size"] == 5 * shipped.concurrency
    assert flags["max-running-requests"] == shipped.concurrency


def test_the_default_profile_is_quick_and_exact() -> None:
    tiny = load_profile("tiny")
    assert (tiny.kind, tiny.target, tiny.dtype, tiny.parallel_servers) == ("reference", "builtin:tiny", "float32", 3)
    assert {v.algorithm for v in tiny.variants.values()} == {"NEXTN", "DFLASH"}


scalars = st.booleans() | st.integers(-(2**31), 2**31) | st.floats(allow_nan=False, allow_infinity=False)


def toml_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.from_regex(r"x[a-z0-9]{0,5}(-[a-z0-9]{1,5}){0,2}", fullmatch=True), scalars, max_size=5))
def test_flags_come_through_as_written(tmp_path_factory: pytest.TempPathFactory, flags: dict[str, FlagValue]) -> None:
    table = "".join(f"{key} = {toml_of(value)}\n" for key, value in flags.items())
    loaded = load_profile(write(tmp_path_factory.mktemp("p"), f"{MINIMAL}[args]\n{table}")).args
    assert loaded == flags
    assert [type(v) for v in loaded.values()] == [type(v) for v in flags.values()]
