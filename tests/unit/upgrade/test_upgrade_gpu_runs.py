"""The report on a real pair: SGLang 0.5.19 on an H200, as it is and with ``--enable-deterministic-inference``."""

import tarfile
from pathlib import Path

import pytest

from lossless.analysis import Analysis, analyze
from lossless.analysis.upgrade import Upgrade, upgrade
from lossless.record.store import RunStore
from lossless.verdict import Kind

PACKED = Path(__file__).parents[2] / "data" / "gpu-runs"


def unpacked(name: str, folder: Path) -> Analysis:
    with tarfile.open(PACKED / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return analyze(RunStore.open(folder))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Upgrade:
    honest, deterministic = (unpacked(n, tmp_path_factory.mktemp(n)) for n in ("honest", "deterministic"))
    return upgrade(honest, deterministic)


def test_the_baseline_drifts_by_one_exact_tie(report: Upgrade) -> None:
    assert report.drift_counts == {"identical": 134, "near-tie (forked)": 1}
    (tie,) = [d for d in report.drift if d.verdict.kind is Kind.NEAR_TIE]
    assert (tie.prompt, tie.source) == ("cache-third-sentence", "re-scored by the old")
    assert "an exact 2-way tie" in tie.verdict.detail


def test_variants_stay_lossless_and_known_issues_stay_known(report: Upgrade) -> None:
    assert [(v.variant, v.old, v.new) for v in report.variants] == [
        ("nextn", "proven", "proven"),
        ("dflash", "proven", "proven"),
    ]
    assert [v.new_counts["known"] for v in report.variants] == [2, 4]
    assert not any(c.worse for v in report.variants for c in v.changes)
    assert {i.state for i in report.issues} == {"stays"}
    assert report.status == "proven"


def test_what_changed_is_the_argument_and_the_speed(report: Upgrade) -> None:
    assert [c.name for c in report.arguments] == [
        "enable_deterministic_inference",
        "enforce_disable_flashinfer_allreduce_fusion",
    ]
    assert not any(a.moved for a in report.accept)
    assert {s.moved for s in report.speed if s.category == "all"} == {"slower"}
