"""How many servers run side by side when they are measured, and where a bench keeps its things."""

from pathlib import Path

import pytest

from lossless.bench.plan import Settings
from lossless.bench.run import prepare_bench
from lossless.suite.options import Options
from lossless.suite.session import SuiteSession


@pytest.mark.parametrize(
    ("options", "room"),
    [
        (Options(profile="tiny"), 3),
        (Options(profile="tiny", bench=True), 1),
        (Options(profile="tiny", bench=True, gpus="0,1,2"), 1),
        (Options(profile="tiny-sglang-gpu", gpus="0,1,2"), 3),
        (Options(profile="tiny-sglang-gpu", bench=True, gpus="0,1,2"), 3),
        (Options(profile="tiny-sglang-gpu", bench=True, gpus="0"), 1),
        (Options(bench=True, baseline_url="http://127.0.0.1:1", variant_url={"nextn": "http://127.0.0.1:2"}), 1),
    ],
)
def test_servers_that_are_measured_share_nothing(
    options: Options, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert SuiteSession(options, attempt="", run=tmp_path).room == room


class Silent:
    def starting(self, *_: object) -> None: ...

    def stage(self, *_: object) -> None: ...

    def advance(self, *_: object) -> None: ...

    def finished(self, *_: object) -> None: ...


def test_a_bench_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    settings = Settings(prefill=False, categories=("code",))
    run = prepare_bench(Options(prompts="quick"), settings, tmp_path, Silent())
    assert run.bencher.folder.parent == tmp_path
    assert run.bencher.folder.name.endswith(f"-tiny-{run.bencher.key[:8]}")
    assert run.session.store.path == run.bencher.folder
    assert run.session.room == 3, "they start side by side and are measured one at a time"
