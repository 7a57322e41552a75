"""Finding an environment's interpreter, and putting it into a profile's command."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lossless.errors import UsageError
from lossless.profiles import load_profile
from lossless.record.store import ServerState
from lossless.suite.options import Options
from lossless.suite.upgrade import Environment, record_both, with_interpreter


class Quiet:
    """Progress that nobody looks at."""

    def starting(self, server: str, line: str) -> None: ...

    def stage(self, server: str, stage: str, total: int, done: int) -> None: ...

    def advance(self, server: str, stage: str, tokens: int) -> None: ...

    def finished(self, state: ServerState) -> None: ...


def environment(folder: Path, script: str) -> Path:
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return folder


def test_a_folder_an_interpreter_and_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = environment(tmp_path / "env", f'exec {sys.executable} "$@"')
    python = folder / "bin" / "python"
    found = Environment.find(str(folder))
    assert found.python == python
    assert found.packages["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert Environment.find(str(python)) == found
    monkeypatch.setenv("PATH", str(python.parent), prepend=":")
    assert Environment.find("python").python == python
    assert str(Environment(python, {"sglang": "0.5.20"})) == f"{python} (SGLang 0.5.20)"


@pytest.mark.parametrize(
    ("script", "message"),
    [("exit 1", "does not run as a Python"), ("echo hello", "does not run as a Python"), (":", "does not run")],
)
def test_what_is_no_python(tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Environment.find(str(environment(tmp_path / "env", script)))


def test_what_is_no_environment(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no bin/python"):
        Environment.find(str(tmp_path))
    with pytest.raises(UsageError, match="there is no"):
        Environment.find(str(tmp_path / "absent"))


def test_only_the_interpreter_changes() -> None:
    profile = load_profile("tiny-sglang-gpu")
    assert with_interpreter(profile, Path("/env/bin/python")).command == (
        "/env/bin/python",
        *profile.command[1:],
    )
    for name in ("python3", "python3.11", "PYTHON.EXE", "pypy3"):
        named = replace(profile, command=(f"/x/{name}", "-m", "sglang.launch_server"))
        assert with_interpreter(named, Path("/p")).command[0] == "/p"


@pytest.mark.parametrize("command", [("docker", "run", "x"), ("/opt/sglang-python/run.sh",), ("srun", "python")])
def test_a_command_that_starts_no_python(command: tuple[str, ...]) -> None:
    profile = replace(load_profile("tiny-sglang-gpu"), command=command)
    with pytest.raises(UsageError, match="not a Python interpreter") as caught:
        with_interpreter(profile, Path("/p"))
    assert "lossless upgrade OLD_RUN NEW_RUN" in str(caught.value.hint)


def test_running_servers_have_no_environment() -> None:
    with pytest.raises(UsageError, match="attaches to running servers"):
        with_interpreter(load_profile("template-attach"), Path("/p"))


def test_nothing_is_recorded_before_both_are_known_to_be_right(tmp_path: Path) -> None:
    options = Options(profile="tiny-sglang-gpu", runs=tmp_path / "runs", golden=tmp_path / "golden")
    old, new = Environment(Path("/a/python"), {"sglang": "0.5.19"}), Environment(Path("/b/python"), {"Python": "3.12"})
    with pytest.raises(UsageError, match="/b/python has no SGLang") as caught:
        record_both(options, old, new, Quiet(), attempt="1")
    assert "/b/python -m pip install sglang" in str(caught.value.hint)
    with pytest.raises(UsageError, match="/a/python was given twice"):
        record_both(options, old, old, Quiet(), attempt="1")
    assert not (tmp_path / "runs").exists()
