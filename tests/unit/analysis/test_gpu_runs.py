"""Runs of the suite on real SGLang 0.5.19 on an H200, judged again: the same verdicts as on the day.

``honest``: baseline, NEXTN and DFLASH in bfloat16. ``deterministic``: the same with
``--enable-deterministic-inference``. ``lossy``: attached to variants that accept what the target would not
(``SGLANG_SIMULATE_ACC_LEN=3``), which no /server_info shows. Packed by ``tests/data/pack_run.py``.
"""

import tarfile
from collections import Counter
from pathlib import Path

import pytest

from lossless.analysis import Analysis, Judged, analyze
from lossless.record.store import RunStore
from lossless.reference.builtin import builtin_path
from lossless.report.evidence import status
from lossless.verdict import Kind

PACKED = Path(__file__).parents[2] / "data" / "gpu-runs"


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder: Path = tmp_path_factory.mktemp(request.param)
    with tarfile.open(PACKED / f"{request.param}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    (folder / "tokenizer.json").write_bytes((builtin_path() / "target" / "tokenizer.json").read_bytes())
    return analyze(RunStore.open(folder))


def _judged(run: Analysis, variant: str, stages: tuple[str, ...]) -> list[Judged]:
    return [j for j in run.verdicts() if j.variant == variant and j.stage in stages]


def _labels(judged: list[Judged]) -> Counter[str]:
    return Counter(j.verdict.label for j in judged)


@pytest.mark.parametrize(
    ("run", "variant", "plain", "staged", "largest"),
    [
        ("honest", "nextn", (125, 2, 6), (51, 2, 5), 0.125),
        ("honest", "dflash", (120, 2, 9), (49, 2, 7), 0.0625),
        ("deterministic", "nextn", (127, 2, 4), (53, 1, 4), 0.0625),
        ("deterministic", "dflash", (125, 2, 4), (53, 1, 4), 0.0625),
    ],
    indirect=["run"],
)
def test_honest_speculation_differs_by_near_ties_only(
    run: Analysis, variant: str, plain: tuple[int, ...], staged: tuple[int, ...], largest: float
) -> None:
    kinds = ("identical", "near-tie (reconverged)", "near-tie (forked)")
    alone = [j for j in _judged(run, variant, ("plain",)) if not run.is_known(j)]
    assert _labels(alone) == Counter(dict(zip(kinds, plain, strict=True)))
    together = _judged(run, variant, ("together", "hit", "order"))
    assert _labels(together) == Counter(dict(zip(kinds, staged, strict=True)))
    regrets = [j.verdict.regret.largest for j in alone if j.verdict.regret is not None]
    assert max(regrets) == pytest.approx(largest, abs=1e-6)
    assert run.epsilon.value == pytest.approx(0.28125, abs=1e-3)
    assert status(run, list(run.verdicts())) == "proven"


@pytest.mark.parametrize("run", ["honest", "deterministic"], indirect=True)
def test_what_sglang_0_5_19_gets_wrong_is_found_and_known(run: Analysis) -> None:
    wrong = {(j.variant, j.prompt.id) for j in run.verdicts() if j.verdict.kind is Kind.DIVERGENT}
    assert wrong == {
        ("nextn", "params-frequency"),
        ("nextn", "params-min-tokens"),
        ("dflash", "params-frequency"),
        ("dflash", "params-min-tokens"),
        ("dflash", "params-presence"),
        ("dflash", "params-repetition"),
    }
    for variant, prompt in wrong:
        assert run.known_issue(variant, prompt) is not None


@pytest.mark.parametrize("run", ["lossy"], indirect=True)
@pytest.mark.parametrize("variant", ["nextn", "dflash"])
def test_every_lossy_answer_is_divergent(run: Analysis, variant: str) -> None:
    judged = _judged(run, variant, ("plain", "together", "hit", "order"))
    passed = [j for j in judged if j.verdict.passed()]
    # One token comes from the prefill and is never drafted: there is nothing to get wrong.
    assert [(j.prompt.id, j.verdict.variant_tokens) for j in passed] == [("cap-01", 1)]
    assert {j.verdict.kind for j in judged if j not in passed} == {Kind.DIVERGENT}
    assert all(c.ok for c in run.controls), "nothing but the answers gives it away"
    assert status(run, judged) == "divergent"


@pytest.mark.parametrize("run", ["honest"], indirect=True)
@pytest.mark.parametrize("server", ["baseline", "nextn", "dflash"])
def test_cache_and_load_are_near_ties_at_worst(run: Analysis, server: str) -> None:
    for stage, prompt, turn in run.staged():
        judged = run.within(server, prompt, stage, turn)
        assert judged.verdict.passed(), (prompt, stage, turn, judged.verdict.label, judged.verdict.detail)
        assert stage != "together" or judged.verdict.kind is Kind.IDENTICAL
