"""Shell completion: what it offers, and that it never disturbs the shell."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from lossless.commands import completion
from lossless.commands.completion import (
    complete_profile,
    complete_prompt,
    complete_prompt_set,
    complete_run,
    complete_variant,
)
from lossless.protocol import Sampling

ALL = (complete_run, complete_profile, complete_prompt_set, complete_prompt, complete_variant)


class Typed:
    """What typer hands to a completion: the values so far, and words that were left over."""

    def __init__(self, *args: str, **params: Any) -> None:
        self.args, self.params = list(args), params


def offered(complete: Any, incomplete: str = "", *args: str, **params: Any) -> list[str]:
    return list(complete(Typed(*args, **params), incomplete))


@pytest.fixture
def runs(make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs under ``runs``, and the current folder beside them."""
    for name in ("20260101T000000-a", "20260102T000000-b"):
        make_run({"list-0": Sampling(8), "code-0": Sampling(8)}, folder=f"runs/{name}", variants=("dflash", "nextn"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def test_runs_are_offered_newest_first(runs: Path) -> None:
    assert offered(complete_run, root=runs) == ["latest", "20260102T000000-b", "20260101T000000-a"]
    assert offered(complete_run, "20260101", root=str(runs)) == ["20260101T000000-a"]
    assert offered(complete_run, "./", root=runs) == ["./runs/"]


def test_prompts_and_variants_are_those_of_the_run(runs: Path) -> None:
    assert offered(complete_prompt, root=runs, run="latest") == ["list-0", "code-0"]
    assert offered(complete_prompt, "c", root=runs, run="latest") == ["code-0"]
    assert offered(complete_variant, root=runs, run="20260101") == ["dflash", "nextn"]


def test_a_run_that_was_typed_before_an_open_option_is_used(runs: Path) -> None:
    assert offered(complete_variant, "n", "--variant", "latest", root=runs) == ["nextn"]


def test_without_a_run_the_profile_and_the_standard_set_are_used() -> None:
    assert offered(complete_variant, profile="tiny") == ["nextn", "dflash"]
    assert offered(complete_variant) == []
    assert "arithmetic-00" in offered(complete_prompt, "arith")


def test_shipped_names_and_files_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").touch()
    (tmp_path / "mine.jsonl").touch()
    assert offered(complete_profile, "tiny-b") == ["tiny-bfloat16"]
    assert offered(complete_profile, "m") == ["mine.toml"]
    assert offered(complete_profile, "./m") == ["./mine.toml"]
    assert offered(complete_profile, f"{tmp_path}/") == [f"{tmp_path}/mine.toml"]
    assert offered(complete_prompt_set, "q") == ["quick"]
    assert offered(complete_prompt_set, "mine") == ["mine.toml", "mine.jsonl"]


@pytest.mark.parametrize("complete", ALL, ids=lambda c: c.__name__)
def test_a_completion_never_raises_and_prints_nothing(
    complete: Any, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "run.json").write_text("{", encoding="utf-8")
    for params in ({"root": "/nowhere\0", "run": "\0"}, {"root": tmp_path, "run": "x"}, {"profile": "no.toml"}):
        for incomplete in ("", "~no-such-user/", "/\0", "\udcff"):
            assert isinstance(offered(complete, incomplete, **params), list)
    assert capfd.readouterr() == ("", "")


def test_whatever_goes_wrong_there_is_no_offer(capfd: pytest.CaptureFixture[str]) -> None:
    def broken(_ctx: typer.Context, _incomplete: str) -> list[str]:
        print("a warning of some library")
        raise RuntimeError("broken")

    assert offered(completion._quiet(broken)) == []
    assert capfd.readouterr() == ("", "")


def shell(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own. typer shall take the shell from the words, not from the parent process,
    which may be no shell at all."""
    env = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", **env}
    return subprocess.run(
        [sys.executable, "-m", "lossless", *words],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_shell_gets_the_names() -> None:
    done = shell(COMP_WORDS="lossless profiles show tiny-s", COMP_CWORD="3", _LOSSLESS_COMPLETE="complete_bash")
    assert (done.returncode, done.stdout.split()) == (0, ["tiny-sglang-cpu", "tiny-sglang-gpu"]), done.stderr


def test_the_script_for_the_shell_is_printed() -> None:
    done = shell("--show-completion", "bash")
    assert done.returncode == 0, done.stderr
    assert "_LOSSLESS_COMPLETE=complete_bash" in done.stdout
    assert "complete -o default -F _lossless_completion lossless" in done.stdout


@pytest.mark.slow
def test_it_can_be_installed(tmp_path: Path) -> None:
    done = shell("--install-completion", "bash", HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "_LOSSLESS_COMPLETE" in (tmp_path / ".bash_completions" / "lossless.sh").read_text(encoding="utf-8")
