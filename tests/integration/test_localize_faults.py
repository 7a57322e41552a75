"""The hints name the fault that was planted: real answers of the embedded engine, recorded and judged."""

from collections.abc import Iterator

import pytest
from fault_runs import FaultRuns, fault_runs

from lossless.analysis.localize import hints, run_hints
from lossless.reference.faults import all_faults

TEXTS = ("copy-01", "list-04")
QUICK = {
    "accept-unverified:1.0": ("copy-01", "short-03"),
    "bonus-dropped": ("list-04",),
    "stale-state-on-hit": ("cache-names", "cache-numbers"),
    "batch-mixed": ("concurrent-copy", *TEXTS),
    "penalties-ignored": ("params-plain", "params-frequency"),
    "stop-token-in-block-ignored": ("stop-token",),
    "logprobs-shifted": ("list-04",),
    "speculation-off": ("list-04",),
}
SLOW = {
    "kv-not-rolled-back": ("unicode-mask-token", "list-04"),
    "recurrent-not-rolled-back": ("unicode-mask-token", "short-08"),
    "short-prompt-state-lost": ("short-03", "short-08", "unicode-mask-token", *TEXTS),
    "state-leaks": ("unicode-mask-token", "short-03", "short-08", "raw-text"),
    "chunk-state-lost": ("long-three-chunks", "long-question", *TEXTS),
    "boundary-state-lost": ("long-over-256", "long-page-257", *TEXTS),
    "bonus-doubled": ("list-04",),
    "usage-past-end": ("stop-token", "list-04"),
    "text-not-the-ids": ("list-04",),
    "one-token-too-many": ("list-04",),
    "min-new-tokens-ignored": ("params-ends-early", "params-min-tokens"),
}
KINDS = {fault.name: fault.kind for fault in all_faults()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultRuns]:
    with fault_runs(tmp_path_factory.mktemp("faults"), of(QUICK), cap=20) as made:
        yield made


@pytest.fixture(scope="module")
def more_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultRuns]:
    with fault_runs(tmp_path_factory.mktemp("more-faults"), of(SLOW), cap=24) as made:
        yield made


def of(faults: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(p for prompts in faults.values() for p in prompts))


@pytest.mark.parametrize("fault", QUICK)
def test_the_planted_fault_is_named_first(runs: FaultRuns, fault: str) -> None:
    analysis = runs.run("nextn", fault, QUICK[fault])
    kind = KINDS[fault.partition(":")[0]]
    named = [h.kind for h in run_hints(analysis, "nextn")]
    assert named[:1] == [kind], named
    for judged in analysis.verdicts():
        if judged.verdict.kind == "divergent":
            assert kind in [h.kind for h in hints(analysis, judged)[:2]], judged.verdict.detail


@pytest.mark.slow
@pytest.mark.parametrize("fault", SLOW)
def test_the_planted_fault_is_among_the_first_two(more_runs: FaultRuns, fault: str) -> None:
    analysis = more_runs.run("nextn", fault, SLOW[fault])
    named = [h.kind for h in run_hints(analysis, "nextn")]
    assert KINDS[fault] in named[:2], named
