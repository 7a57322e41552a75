"""Known issues of SGLang versions: what they excuse, and that they excuse nothing else."""

from typing import Any

import pytest

from lossless.analysis.known import find, known_issues
from lossless.protocol import Sampling
from lossless.report.evidence import evidence
from lossless.report.summary import known_lines

TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."
HELD_BACK = Sampling(96, min_new_tokens=60)


def test_every_entry_is_whole() -> None:
    ids = [i.id for i in known_issues()]
    assert len(set(ids)) == len(ids) > 0
    for issue in known_issues():
        assert hasattr(Sampling(1), issue.parameter)
        assert issue.algorithms
        assert all(a == a.upper() for a in issue.algorithms)
        assert issue.reference
        assert issue.reference in str(issue)


@pytest.mark.parametrize(
    ("version", "algorithm", "sampling", "found"),
    [
        ("0.5.19", "EAGLE", HELD_BACK, "eagle-min-new-tokens"),
        ("0.5.19", "eagle", HELD_BACK, "eagle-min-new-tokens"),
        ("0.5.19", "DFLASH", HELD_BACK, "dflash-min-new-tokens"),
        ("0.5.23", "EAGLE", HELD_BACK, "eagle-min-new-tokens"),
        ("0.5.24", "EAGLE", HELD_BACK, None),
        ("0.5.19", "EAGLE", Sampling(96), None),
        ("0.5.16", "EAGLE", HELD_BACK, None),
        ("99.0", "EAGLE", HELD_BACK, None),
        ("0.5.19", "NGRAM", HELD_BACK, None),
        ("0.5.19", None, HELD_BACK, None),
        (None, "EAGLE", HELD_BACK, None),
        ("reference-0.1.0", "EAGLE", HELD_BACK, None),
        ("my build", "EAGLE", HELD_BACK, None),
    ],
)
def test_what_is_covered(version: object, algorithm: object, sampling: Sampling, found: str | None) -> None:
    issue = find(version, algorithm, sampling)
    assert (None if issue is None else issue.id) == found


def run_with(make_run: Any, said: str | None) -> Any:
    """A covered prompt on which the variant says something else, and a plain one on which both agree."""
    run = make_run({"params-0": HELD_BACK, "list-0": Sampling(96)}, groups={"params-0": "params"})
    long = TEXT * 3
    run.says("baseline", "params-0", long)
    if said is not None:
        run.says("nextn", "params-0", said)
    for server in ("baseline", "nextn"):
        run.says(server, "list-0", TEXT)
    return run


def test_a_known_divergence_is_excused_and_listed(make_run: Any) -> None:
    run = run_with(make_run, TEXT)  # ends long before min_new_tokens
    analysis = run.analysis()
    judged = analysis.verdict("nextn", "params-0")
    assert judged.verdict.kind == "divergent"
    assert analysis.is_known(judged)
    data = evidence(analysis)
    assert data["status"] == "proven"
    assert [i["id"] for i in data["known_issues"]["nextn"]] == ["eagle-min-new-tokens"]
    assert [line for line in known_lines(analysis) if "shows on 1 of 1 prompts" in line]


def test_missing_evidence_is_not_excused(make_run: Any) -> None:
    analysis = run_with(make_run, None).analysis()
    assert not analysis.is_known(analysis.verdict("nextn", "params-0"))
    assert evidence(analysis)["status"] == "inconclusive"


def test_a_divergence_elsewhere_is_not_excused(make_run: Any) -> None:
    run = run_with(make_run, TEXT)
    other = run.says("nextn", "list-0", TEXT.replace("one", "six"))
    at = next(t for t, (x, y) in enumerate(zip(run.ids(TEXT), other, strict=False)) if x != y)
    run.scored("list-0", other, {at: 4.0}, {at: run.ids(TEXT)[at]})
    assert evidence(run.analysis())["status"] == "divergent"


@pytest.mark.parametrize(("backend", "applies"), [("none", False), (None, False), ("xgrammar", True)])
def test_a_grammar_needs_a_backend(make_run: Any, backend: str | None, applies: bool) -> None:
    run = make_run({"json-0": Sampling(96, json_schema="{}"), "list-0": Sampling(96)})
    for name in ("baseline", "nextn"):
        run.server(name, grammar_backend=backend)
        run.says(name, "list-0", TEXT)
    analysis = run.analysis()
    assert (analysis.inapplicable("json-0") is None) == applies
    assert analysis.inapplicable("list-0") is None
    assert ("json-0" in {j.prompt.id for j in analysis.verdicts()}) == applies
