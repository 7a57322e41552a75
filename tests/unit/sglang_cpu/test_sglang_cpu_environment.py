"""Building the environment of real SGLang: what is run, when nothing is, and what is refused. No package is fetched."""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from lossless.errors import UsageError
from lossless.sglang_cpu import SGLANG_VERSION, SGLANG_VERSIONS, requirements_path, site_path
from lossless.sglang_cpu.__main__ import main
from lossless.sglang_cpu.environment import CHECK, STAMP, BuildFailed, build

# Stands for a Python and for the environment it makes: notes its arguments, fails where it is told to.
FAKE_PYTHON = """#!{python}
import json, os, pathlib, shutil, sys
here = pathlib.Path({folder!r})
with (here / "calls").open("a") as calls:
    calls.write(json.dumps([sys.argv[1:], os.environ.get("PYTHONPATH")]) + "\\n")
if "version_info" in sys.argv[-1]:
    print({version!r})
if sys.argv[1:3] == ["-m", "venv"]:
    target = pathlib.Path(sys.argv[-1])
    shutil.rmtree(target, ignore_errors=True)
    (target / "bin").mkdir(parents=True)
    shutil.copy(__file__, target / "bin" / "python")
fail = here / "fail"
sys.exit(3 if fail.exists() and fail.read_text() in sys.argv else 0)
"""


@dataclass
class Fake:
    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "python")

    @property
    def calls(self) -> list[tuple[list[str], str | None]]:
        path = self.folder / "calls"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    def fail(self, argument: str) -> None:
        """Every call with this argument ends with status 3."""
        (self.folder / "fail").write_text(argument)


def fake_python(folder: Path, version: str = "3.11") -> Fake:
    folder.mkdir()
    path = folder / "python"
    path.write_text(FAKE_PYTHON.format(python=sys.executable, folder=str(folder), version=version))
    path.chmod(0o755)
    return Fake(folder)


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return fake_python(tmp_path / "fake")


def test_build_makes_installs_and_checks(tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    said: list[str] = []
    venv = tmp_path / "venv"
    assert build(venv, python=fake.python, say=said.append) == venv / "bin" / "python"

    pip = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    (_, version, make, torch, rest, check) = (None, *fake.calls)
    assert "version_info" in version[0][-1]
    assert make == (["-m", "venv", "--clear", str(venv)], None)
    assert torch == ([*pip, "torch==2.13.0"], None)
    assert rest == ([*pip, "--no-deps", "-r", str(requirements_path())], None)
    assert check[0][0] == "-c"
    assert "import torch, sgl_kernel, sglang" in check[0][1]
    assert check[1] == str(site_path())
    assert [line[:5] for line in said[:4]] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert said[4].endswith("is ready (SGLang 0.5.19)")


def test_another_version_has_its_own_pins(tmp_path: Path, fake: Fake) -> None:
    venv = tmp_path / "venv"
    said: list[str] = []
    build(venv, version="0.5.23", python=fake.python, say=said.append)
    assert fake.calls[3][0][-3:] == ["--no-deps", "-r", str(requirements_path("0.5.23"))]
    assert said[-1].endswith("is ready (SGLang 0.5.23)")
    assert json.loads((venv / STAMP).read_text())["sglang"] == "0.5.23"


def test_a_version_that_was_not_tried_is_refused(tmp_path: Path, fake: Fake) -> None:
    with pytest.raises(
        UsageError, match=r"SGLang 0\.5\.20 was not tried on the CPU; tried were 0\.5\.19, 0\.5\.23"
    ) as caught:
        build(tmp_path / "venv", version="0.5.20", python=fake.python)
    assert caught.value.hint == "--sglang-version 0.5.23"
    assert fake.calls == []


def test_an_environment_of_another_version_is_left_alone(tmp_path: Path, fake: Fake) -> None:
    venv = tmp_path / "venv"
    build(venv, python=fake.python)
    before = len(fake.calls)
    with pytest.raises(
        UsageError, match=r"is an environment for SGLang 0\.5\.19, not 0\.5\.23; nothing was changed"
    ) as caught:
        build(venv, version="0.5.23", python=fake.python)
    assert caught.value.hint == "name another folder, or --sglang-version 0.5.19"
    assert len(fake.calls) == before


def test_second_build_does_nothing(tmp_path: Path, fake: Fake) -> None:
    venv = tmp_path / "venv"
    build(venv, python=fake.python)
    before = len(fake.calls)
    said: list[str] = []
    assert build(venv, python=fake.python, say=said.append) == venv / "bin" / "python"
    assert len(fake.calls) == before
    assert said == [f"{venv} is up to date (SGLang 0.5.19)"]


def test_changed_requirements_build_anew(tmp_path: Path, fake: Fake) -> None:
    venv = tmp_path / "venv"
    build(venv, python=fake.python)
    (venv / "leftover").touch()
    (venv / STAMP).write_text('{"requirements": "of an older version"}')
    build(venv, python=fake.python)
    assert not (venv / "leftover").exists()


@pytest.mark.parametrize("step", ["torch==2.13.0", "--no-deps", CHECK])
def test_a_failed_step_is_named_and_the_next_build_starts_over(tmp_path: Path, fake: Fake, step: str) -> None:
    venv = tmp_path / "venv"
    fake.fail(step)
    with pytest.raises(BuildFailed, match=r"exit status 3 from: .*" + re.escape(step)) as caught:
        build(venv, python=fake.python)
    assert caught.value.hint == "its output is above; then run this again"
    fake.fail("nothing")
    (venv / "leftover").touch()
    assert build(venv, python=fake.python).exists()
    assert not (venv / "leftover").exists()
    assert json.loads((venv / STAMP).read_text())["sglang"] == "0.5.19"


@pytest.mark.parametrize("stamp", ["not JSON", "[]", "{}"])
def test_damaged_stamp_builds_anew(tmp_path: Path, fake: Fake, stamp: str) -> None:
    venv = tmp_path / "venv"
    build(venv, python=fake.python)
    (venv / STAMP).write_text(stamp)
    before = len(fake.calls)
    build(venv, python=fake.python)
    assert len(fake.calls) == before + 5


def test_folder_of_someone_else_is_left_alone(tmp_path: Path, fake: Fake) -> None:
    venv = tmp_path / "venv"
    venv.mkdir()
    (venv / "pyvenv.cfg").touch()
    with pytest.raises(
        UsageError, match="neither empty nor an environment that this command made; nothing was changed"
    ):
        build(venv, python=fake.python)
    with pytest.raises(UsageError, match="is not a folder"):
        build(venv / "pyvenv.cfg", python=fake.python)
    assert [path.name for path in venv.iterdir()] == ["pyvenv.cfg"]
    assert fake.calls == []


@pytest.mark.parametrize(("version", "told"), [("3.12", "is Python 3.12;"), ("", "is no working Python;")])
def test_other_python_versions_are_refused(tmp_path: Path, version: str, told: str) -> None:
    other = fake_python(tmp_path / "other", version)
    with pytest.raises(UsageError, match=f"{told} SGLang 0.5.19 on the CPU is pinned for Python 3.11 only") as caught:
        build(tmp_path / "venv", python=other.python)
    assert caught.value.hint == "name one: --python python3.11"
    assert not (tmp_path / "venv").exists()


def test_python_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot run /no/such/python"):
        build(tmp_path / "venv", python="/no/such/python")


def test_command_builds_the_version_that_is_named(tmp_path: Path, fake: Fake) -> None:
    assert main([str(tmp_path / "venv"), "--python", fake.python, "--sglang-version", "0.5.23"]) == 0
    assert fake.calls[3][0][-1] == str(requirements_path("0.5.23"))


def test_command_prints_the_python_alone(tmp_path: Path, fake: Fake, capfd: pytest.CaptureFixture[str]) -> None:
    venv = tmp_path / "venv"
    assert main([str(venv), "--python", fake.python]) == 0
    out, err = capfd.readouterr()
    assert out == f"{venv / 'bin' / 'python'}\n"
    assert f"LOSSLESS_SGLANG_CPU_SITE={site_path()}" in err


def test_command_reports_errors(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "venv"), "--python", "/no/such/python"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: cannot run /no/such/python")


def pins(version: str) -> list[str]:
    return [line for line in requirements_path(version).read_text("utf-8").splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("version", SGLANG_VERSIONS)
def test_every_package_is_pinned(version: str) -> None:
    assert pins(version)[0] == "torch==2.13.0"
    assert f"sglang=={version}" in pins(version)
    assert [pin for pin in pins(version) if not re.fullmatch(r"[A-Za-z0-9_]+==[0-9][0-9A-Za-z.]*", pin)] == []


def test_every_version_has_the_same_packages() -> None:
    names = {version: [pin.split("==")[0] for pin in pins(version)] for version in SGLANG_VERSIONS}
    assert len({tuple(found) for found in names.values()}) == 1
    assert SGLANG_VERSION in SGLANG_VERSIONS


def test_site_holds_what_python_and_sglang_look_for() -> None:
    assert {path.name for path in site_path().iterdir()} >= {"sitecustomize.py", "sgl_kernel", "torchvision"}
