"""Two recorded runs compared offline."""

from typing import Any

import pytest

from lossless.analysis.compare import Side, compare, pairs
from lossless.errors import UsageError
from lossless.protocol import Sampling
from lossless.verdict import Kind, Reason

TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."
FLIPPED = TEXT.replace("three", "seven", 1)


def sides(make_run: Any, theirs: str = TEXT, server: str = "nextn", **more: Any) -> tuple[Any, Any]:
    """Run A, whose servers say TEXT, and run B, whose ``server`` says something else."""
    a, b = make_run(folder="a"), make_run(folder="b", **more)
    for run in (a, b):
        for name in ("baseline", "nextn"):
            run.says(name, "list-0", theirs if run is b and name == server else TEXT)
    return a, b


def verdicts(a: Any, b: Any, server: str = "nextn") -> list[tuple[Kind, Reason | None]]:
    found = compare(Side(a.analysis(), server), Side(b.analysis(), server))
    assert all(j.names == ("A", "B") for j in found)
    return [(j.verdict.kind, j.verdict.reason) for j in found]


def test_equal_runs(make_run: Any) -> None:
    assert verdicts(*sides(make_run)) == [(Kind.IDENTICAL, None)]


@pytest.mark.parametrize("scored_by", ["a", "b"])
@pytest.mark.parametrize(("regret", "kind"), [(0.0625, Kind.NEAR_TIE), (3.0, Kind.DIVERGENT)])
def test_a_flip_is_judged_by_whichever_baseline_scored_it(
    make_run: Any, scored_by: str, regret: float, kind: Kind
) -> None:
    a, b = sides(make_run, FLIPPED)
    run = a if scored_by == "a" else b
    run.scored("list-0", run.ids(FLIPPED), {8: regret}, {8: run.ids(TEXT)[8]})
    ((found, _),) = verdicts(a, b)
    assert found is kind


def test_a_fork_that_nobody_scored_is_unproven(make_run: Any) -> None:
    assert verdicts(*sides(make_run, TEXT[:30] + " else")) == [(Kind.DIVERGENT, Reason.UNPROVEN_FORK)]


def test_prompts_that_do_not_match_are_inconclusive(make_run: Any) -> None:
    a, b = sides(make_run, prompts={"list-0": Sampling(95)})
    assert verdicts(a, b) == [(Kind.INCONCLUSIVE, Reason.NOT_A_PAIR)]
    other = make_run({"copy-0": Sampling(96)}, folder="c")
    assert verdicts(a, other) == [(Kind.INCONCLUSIVE, Reason.MISSING)]


def test_which_servers_are_compared(make_run: Any) -> None:
    a, b = (run.analysis() for run in sides(make_run))
    assert [(str(x), str(y)) for x, y in pairs(a, b, None, None)] == [
        ("a:baseline", "b:baseline"),
        ("a:nextn", "b:nextn"),
    ]
    assert [(x.server, y.server) for x, y in pairs(a, b, "baseline", "nextn")] == [("baseline", "nextn")]
    assert [(x.server, y.server) for x, y in pairs(a, b, "nextn", None)] == [("nextn", "nextn")]
    with pytest.raises(UsageError, match="run b has no server 'dflash'; it has: baseline, nextn"):
        pairs(a, b, "nextn", "dflash")
