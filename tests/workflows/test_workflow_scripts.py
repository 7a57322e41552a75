"""The scripts the workflows call: what they accept, what they refuse, what they print."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from run_steps import REPOSITORY

SCRIPTS = REPOSITORY / ".github" / "scripts"
sys.path.insert(0, str(SCRIPTS))

import nightly_plan  # noqa: E402
import upgrade_check  # noqa: E402
import versions  # noqa: E402

NOW = datetime(2026, 11, 29, 2, tzinfo=UTC)
LISTING = "sglang (0.5.10)\nAvailable versions: 0.5.10, 0.5.9.post1, 0.5.9, 0.4.0\n  INSTALLED: 0.5.9\n"


def planned(**given: str) -> dict[str, Any]:
    found = nightly_plan.plan({"PROFILES": "tiny", "SGLANG": "none", **given}, now=NOW)
    return {k: json.loads(v) if v.startswith("{") else v for k, v in found.items()}


def test_newest_counts_in_numbers() -> None:
    assert versions.newest(LISTING) == "0.5.10"
    assert versions.newest("Available versions: 0.5.9, 0.5.9.post1, 0.5.10rc1") == "0.5.9.post1"


@pytest.mark.parametrize("listing", ["", "Available versions:", "Available versions: nonsense"])
def test_an_index_without_releases_is_an_error(listing: str) -> None:
    with pytest.raises(SystemExit, match="no releases"):
        versions.newest(listing)


@pytest.mark.parametrize("text", ["0.5.19", "0.5.20rc1", "1.0.post1", "0.5.20.dev3"])
def test_versions(text: str) -> None:
    assert versions.checked(text) == text


@pytest.mark.parametrize("text", ["", "-rf", "0.5; rm", "../x", "$(id)", "0.5\n0.6", "v0.5", "0." + "1" * 50])
def test_no_versions(text: str) -> None:
    with pytest.raises(SystemExit, match="no version"):
        versions.checked(text)


def test_one_job_a_profile() -> None:
    found = planned(PROFILES='["tiny", "profiles/my.toml"]')
    assert found["matrix"]["include"] == [
        {"profile": "tiny", "slug": "tiny", "index": "1", "shard": ""},
        {"profile": "profiles/my.toml", "slug": "my", "index": "1", "shard": ""},
    ]
    assert found["profiles"]["include"] == [
        {"profile": "tiny", "slug": "tiny"},
        {"profile": "profiles/my.toml", "slug": "my"},
    ]
    assert (found["sglang"], found["prompts"], found["night"]) == ("none", "standard", "2026-11-29")


def test_shards_share_a_profile() -> None:
    found = planned(PROFILES="tiny tiny-bfloat16", SHARDS="2", SGLANG="0.5.19", PROMPTS="quick")
    assert [(e["slug"], e["index"], e["shard"]) for e in found["matrix"]["include"]] == [
        ("tiny", "1", "1/2"),
        ("tiny", "2", "2/2"),
        ("tiny-bfloat16", "1", "1/2"),
        ("tiny-bfloat16", "2", "2/2"),
    ]
    assert len(found["profiles"]["include"]) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"PROFILES": ""}, "expected names"),
        ({"PROFILES": "../../etc/passwd"}, "expected names"),
        ({"PROFILES": "-x"}, "expected names"),
        ({"PROFILES": "a;b"}, "expected names"),
        ({"PROFILES": "a--b"}, "expected names"),
        ({"PROFILES": "[1]"}, "expected names"),
        ({"PROFILES": "a/x.toml b/x.toml"}, "two have the same name"),
        ({"SHARDS": "0"}, "from 1 to 32"),
        ({"SHARDS": "33"}, "from 1 to 32"),
        ({"SHARDS": "1 --x"}, "from 1 to 32"),
        ({"PROMPTS": "my.toml"}, "expected one of"),
        ({"SGLANG": "main"}, "no version"),
    ],
)
def test_bad_inputs_end_the_plan(given: dict[str, str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        planned(**given)


def test_no_value_can_forge_a_second_output() -> None:
    with pytest.raises(SystemExit):
        planned(PROFILES="tiny\nsglang=evil")  # a line feed separates words; the second is no name
    assert all("\n" not in v for v in nightly_plan.plan({"PROFILES": "a b", "SGLANG": "none"}, now=NOW).values())


# -------------------------------------------------------------------- upgrades
@pytest.fixture
def goldens(tmp_path: Path) -> Path:
    folder = tmp_path / "golden" / "gpu"
    folder.mkdir(parents=True)
    for name, version in (("a", "0.5.9"), ("b", "0.5.10"), ("c", "reference-0.1.0")):
        (folder / f"{name}.json").write_text(json.dumps({"provenance": {"version": version}}), encoding="utf-8")
    (folder / "_acceptance-nextn.json").write_text("{}", encoding="utf-8")
    (tmp_path / ".github").mkdir()
    return tmp_path


def test_the_newest_golden_is_the_old_version(goldens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade_check, "newest", lambda: "0.5.11")
    assert upgrade_check.check({"PROFILE": "gpu"}, goldens) == {
        "profile": "gpu",
        "old": "0.5.10",
        "new": "0.5.11",
        "needed": "true",
        "branch": "lossless/sglang-0.5.11-gpu",
    }
    monkeypatch.setattr(upgrade_check, "newest", lambda: "0.5.10")
    assert upgrade_check.check({"PROFILE": "gpu"}, goldens)["needed"] == "false"
    monkeypatch.setattr(upgrade_check, "newest", lambda: "0.5.9")
    assert upgrade_check.check({"PROFILE": "gpu"}, goldens)["needed"] == "false"
    assert upgrade_check.check({"PROFILE": "gpu", "TO": "0.5.9"}, goldens)["needed"] == "true", "asked for by name"


def test_a_verified_version_is_remembered(goldens: Path) -> None:
    upgrade_check.mark(goldens, "gpu", "0.5.11")
    upgrade_check.mark(goldens, "other", "0.6.0")
    found = upgrade_check.check({"PROFILE": "gpu", "TO": "0.5.11"}, goldens)
    assert (found["old"], found["needed"]) == ("0.5.11", "false")


@pytest.mark.parametrize("given", [{"PROFILE": "../x"}, {"PROFILE": "none"}, {"PROFILE": "gpu", "TO": "x y"}])
def test_bad_upgrades(goldens: Path, given: dict[str, str]) -> None:
    with pytest.raises(SystemExit):
        upgrade_check.check(given, goldens)


def test_the_projects_own_goldens_have_a_release() -> None:
    assert upgrade_check.verified(REPOSITORY, "tiny-sglang-gpu") >= {"0.5.19"}


# ---------------------------------------------------------------- environments
FAKE = """#!/usr/bin/env bash
printf '%s\\n' "$*" >>"$CALLS"
if [[ $1 == -m && $2 == venv ]]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi
[[ -z ${FAIL:-} || $* != *install* ]]
"""


def environment(tmp_path: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    fake = tmp_path / "python3"
    fake.write_text(FAKE, encoding="utf-8")
    fake.chmod(0o755)
    return subprocess.run(
        ["bash", str(SCRIPTS / "sglang_env.sh"), *args],
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(fake), "CALLS": str(tmp_path / "calls"), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_environment_is_built_once(tmp_path: Path) -> None:
    state = tmp_path / "state"
    for _ in range(2):
        done = environment(tmp_path, "0.5.19", str(state))
        assert (done.returncode, done.stdout) == (0, f"{state}/sglang-0.5.19/bin/python\n")
    assert (tmp_path / "calls").read_text(encoding="utf-8").splitlines() == [
        f"-m venv {state}/sglang-0.5.19",
        "-m pip install -q sglang==0.5.19",
    ]


def test_a_half_built_environment_is_built_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert environment(tmp_path, "0.5.19", str(state), FAIL="1").returncode == 1
    assert environment(tmp_path, "0.5.19", str(state)).returncode == 0
    assert len((tmp_path / "calls").read_text(encoding="utf-8").splitlines()) == 4


@pytest.mark.parametrize("version", ["0.5.19; id", "../../x", "-e", ""])
def test_no_other_text_becomes_a_path(tmp_path: Path, version: str) -> None:
    done = environment(tmp_path, version, str(tmp_path / "state"))
    assert done.returncode != 0
    assert not (tmp_path / "state").exists()


def test_a_given_python_is_taken_as_it_is(tmp_path: Path) -> None:
    done = environment(tmp_path, "0.5.19", str(tmp_path / "state"), LOSSLESS_SGLANG_PYTHON="/opt/python")
    assert (done.returncode, done.stdout) == (0, "/opt/python\n")
    assert not (tmp_path / "state").exists()
