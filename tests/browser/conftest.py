"""The pages under test, made once, and one browser for all of them."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Window, chromium
from made_run import hostile_run

from lossless.analysis import analyze
from lossless.record.store import RunStore
from lossless.reference.builtin import builtin_path
from lossless.report.html import collect, render

PACKED = Path(__file__).parents[1] / "data" / "gpu-runs"


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield Window(driver)


@pytest.fixture(autouse=True)
def _as_new(request: pytest.FixtureRequest) -> None:
    if "window" in request.fixturenames:
        request.getfixturevalue("window").emulate()


def _page(store: RunStore, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(render(collect(analyze(store), command="latest")), encoding="utf-8")
    return path


def _recorded(name: str, folder: Path) -> Path:
    with tarfile.open(PACKED / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    (folder / "tokenizer.json").write_bytes((builtin_path() / "target" / "tokenizer.json").read_bytes())
    return _page(RunStore.open(folder), folder)


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real SGLang, proven: identical answers, near-ties of both kinds, known issues."""
    return _recorded("honest", tmp_path_factory.mktemp("honest"))


@pytest.fixture(scope="session")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real SGLang made lossy: almost everything is divergent."""
    return _recorded("lossy", tmp_path_factory.mktemp("lossy"))


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every text is hostile, one output very long, one word without an end."""
    folder = tmp_path_factory.mktemp("hostile")
    return _page(hostile_run(folder / "run"), folder)
