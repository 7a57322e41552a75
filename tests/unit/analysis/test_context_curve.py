"""Accept length against context length, and the hidden facts."""

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from lossless.protocol import Sampling
from lossless.record.store import RecordedPrompt, RunStore, read_json
from lossless.report.context import context_figures
from lossless.report.evidence import evidence

FOUND = "heron-4711. The first entry is: the pilot waited at the library for Lucia."
LOST = "I have not read of a password, but the pilot waited at the library for Lucia."
LENGTHS = {"n-512-10": 512, "n-512-90": 512, "n-1024-10": 1024}


@pytest.fixture
def run(make_run: Any) -> Any:
    """Three prompts built to two lengths, and one that was not."""
    found = make_run({**{name: Sampling(64) for name in LENGTHS}, "list-0": Sampling(64)})
    built = [
        replace(p, ids=(p.ids * 999)[: LENGTHS[p.id]], expect="Heron-4711", depth=0.5) if p.id in LENGTHS else p
        for p in found.prompts.values()
    ]
    found.prompts = {p.id: p for p in built}
    found.store.create(found.store.manifest, tuple(built), {}, None)
    (found.store.path / "tokenizer.json").exists()
    for server in ("baseline", "nextn"):
        for name in found.prompts:
            ids = found.says(server, name, FOUND)
            found.scored(name, ids)
    return found


def shown(run: Any) -> str:
    console = Console(width=140, highlight=False)
    with console.capture() as capture:
        for part in context_figures(run.analysis()):
            console.print(part)
    return capture.get()


def test_one_point_a_built_length(run: Any) -> None:
    tokens = len(run.ids(FOUND))
    curve = run.analysis().context_curve("nextn")
    assert [(p.prompt_tokens, p.prompts) for p in curve] == [(512, 2), (1024, 1)]
    steps = max(1, tokens // 3)
    assert [p.verify_steps for p in curve] == [2 * steps, steps]
    assert curve[0].accept_length == pytest.approx(tokens / steps)
    assert curve[0].tokens_per_s == pytest.approx(2 * tokens / (2 * 0.5))
    assert curve[0].seconds == pytest.approx(0.5)
    assert run.analysis().context_curve("baseline")[0].accept_length is None


def test_the_evidence_holds_the_curve(run: Any) -> None:
    data = evidence(run.analysis())
    points = data["accept_by_context"]["nextn"]
    assert [set(p) for p in points] == [{"prompt_tokens", "accept_length", "verify_steps", "prompts"}] * 2
    assert [p["prompt_tokens"] for p in points] == [512, 1024]
    assert [p["prompt_tokens"] for p in data["speed_by_context"]["baseline"]] == [512, 1024]
    assert data["skipped"] == {}


def test_the_category_table_leaves_built_prompts_to_the_curve(run: Any) -> None:
    assert run.analysis().acceptance("nextn")["all"].prompts == 1


def test_the_summary_shows_the_curve_from_two_lengths_on(run: Any) -> None:
    text = shown(run)
    assert "by context length" in text
    assert [line.split()[0] for line in text.splitlines() if line.strip().startswith(("512", "1,024"))] == [
        "512",
        "1,024",
    ]


def test_one_length_is_no_curve(make_run: Any) -> None:
    run = make_run()
    assert shown(run) == ""


def test_needles_are_counted_by_server(run: Any) -> None:
    for server, text in (("baseline", FOUND), ("nextn", LOST)):
        run.says(server, "n-1024-10", text)
    analysis = run.analysis()
    assert analysis.needles("baseline").found == tuple(LENGTHS)
    assert analysis.needles("nextn").found == ("n-512-10", "n-512-90")
    assert "baseline 3 of 3, nextn 2 of 3" in shown(run)
    assert evidence(analysis)["needles"]["nextn"] == {"asked": 3, "found": ["n-512-10", "n-512-90"]}


def test_a_fact_that_nobody_finds_changes_no_verdict(run: Any) -> None:
    for server in ("baseline", "nextn"):
        for name in LENGTHS:
            run.scored(name, run.says(server, name, LOST))
    data = evidence(run.analysis())
    assert (data["status"], data["needles"]["baseline"]["found"]) == ("proven", [])


def test_a_length_without_room_is_left_out_with_the_reason(run: Any) -> None:
    run.server("nextn", context_length=4096, max_total_num_tokens=700)
    analysis = run.analysis()
    assert "nextn: the KV pool holds 700 tokens" in (analysis.inapplicable("n-1024-10") or "")
    assert analysis.inapplicable("n-512-10") is None
    assert {j.prompt.id for j in analysis.verdicts()} == {"n-512-10", "n-512-90", "list-0"}
    assert "left out, n-1024-10: nextn: the KV pool holds 700 tokens" in shown(run)
    assert set(evidence(analysis)["skipped"]) == {"n-1024-10"}


def test_runs_recorded_before_there_were_built_prompts_can_be_read(run: Any) -> None:
    path = run.store.path / "prompts.json"
    old = path.read_text(encoding="utf-8").replace('"expect"', '"_a"').replace('"depth"', '"_b"')
    path.write_text(old, encoding="utf-8")
    assert all(p.depth is None and p.expect is None for p in read_json(path, tuple[RecordedPrompt, ...]))
    assert RunStore(run.store.path).prompts[0].id == "n-512-10"
