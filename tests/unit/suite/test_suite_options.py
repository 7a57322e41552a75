"""Options: command line over pyproject.toml over defaults, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from lossless.errors import UsageError
from lossless.suite.options import OPTIONS, Options, parse_pair

ROOT = Path("project")


def merge(given: dict[str, Any] | None = None, table: dict[str, Any] | None = None) -> Options:
    return Options.merge(given or {}, table or {}, root=ROOT)


def test_defaults() -> None:
    options = merge()
    assert (options.profile, options.resume, options.strict, options.epsilon) == ("tiny", "auto", False, None)
    assert options.golden == ROOT / "golden"
    assert options.runs == ROOT / ".lossless" / "runs"


def test_command_line_over_table_over_default() -> None:
    table = {"profile": "from-table", "epsilon": 1, "strict": True, "max-new-tokens": 7}
    options = merge({"profile": "given", "epsilon": None, "variant_url": {}}, table)
    assert (options.profile, options.epsilon, options.strict, options.max_new_tokens) == ("given", 1, True, 7)


def test_folders_are_relative_to_the_project(tmp_path: Path) -> None:
    options = merge({"golden": "mine"}, {"runs": str(tmp_path)})
    assert options.golden == ROOT / "mine"
    assert options.runs == tmp_path


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"profil": "x"}, "unknown key 'profil', did you mean 'profile'?"),
        ({"zzz": 1}, "unknown key 'zzz' Allowed: profile"),
        ({"epsilon": "0.1"}, "epsilon = '0.1' must be a float"),
        ({"epsilon": True}, "epsilon = True must be a float"),
        ({"strict": 1}, "strict = 1 must be a flag"),
        ({"max_new_tokens": 2.5}, "max_new_tokens = 2.5 must be a int"),
        ({"variant_url": "a=b"}, "variant_url = 'a=b' must be a pairs"),
        ({"profile": 3}, "profile = 3 must be a str"),
    ],
)
def test_what_a_table_may_not_say(table: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        merge(table=table)
    assert says in str(caught.value)


@pytest.mark.parametrize("epsilon", [0, -1, 10, float("nan"), float("inf")])
def test_epsilon_is_a_small_positive_number(epsilon: float) -> None:
    with pytest.raises(UsageError, match="must be above 0 and below 10 nats"):
        merge({"epsilon": epsilon})


@pytest.mark.parametrize("cap", [0, -5])
def test_a_cap_lets_at_least_one_token_through(cap: int) -> None:
    with pytest.raises(UsageError, match="must be at least 1"):
        merge({"max_new_tokens": cap})


def test_pairs() -> None:
    assert parse_pair("nextn=http://127.0.0.1:30001/a=b") == ("nextn", "http://127.0.0.1:30001/a=b")
    for text in ("nextn", "=http://x", "nextn=127.0.0.1:30001", ""):
        with pytest.raises(UsageError, match="expected NAME=URL"):
            parse_pair(text)


def test_every_option_has_a_field_and_a_flag_of_its_own() -> None:
    assert [o.name for o in OPTIONS] == list(Options.__dataclass_fields__)
    flags = [o.flag for o in OPTIONS]
    assert len(set(flags)) == len(flags)
    assert all(f.startswith("--lossless-") and "_" not in f for f in flags)
    assert all(o.help for o in OPTIONS)
