"""What the HTML report shows, before it is a page."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from lossless.analysis import analyze
from lossless.errors import UsageError
from lossless.protocol import Sampling
from lossless.record.merge import merge_runs
from lossless.record.store import Golden, Shard
from lossless.report.html import collect, render
from lossless.report.html.outputs import NATS, Vocabulary, pack_scores
from lossless.report.html.sections import bench, histogram
from lossless.verdict import Candidate, OutputScores

STORY = "There was once a quiet teacher called Amir."
MakeRun = Callable[..., Any]


@pytest.fixture
def small(make_run: MakeRun) -> Any:
    """Three prompts: one identical, one near-tie that reconverges, one divergent."""
    run = make_run({"list-0": Sampling(96), "story-0": Sampling(96), "code-0": Sampling(96)})
    run.says("nextn", "list-0", run.says("baseline", "list-0", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"))
    for prompt, regret in (("story-0", 0.0625), ("code-0", 9.5)):
        base = run.says("baseline", prompt, STORY)
        other = (*base[:3], base[4], *base[4:])
        run.says("nextn", prompt, other)
        run.scored(prompt, base)
        run.scored(prompt, other, regrets={3: regret}, others={3: base[3]})
    return run


def _rows(report: Any) -> dict[str, dict[str, Any]]:
    columns = report.index["answers"]
    prompts = [p[0] for p in report.index["prompts"]]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return {prompts[row["prompt"]]: row for row in rows}


def test_each_answer_is_one_row_with_its_verdict(small: Any) -> None:
    report = collect(small.analysis())
    keys = [key for key, *_ in report.index["buckets"]]
    found = {prompt: keys[row["bucket"]] for prompt, row in _rows(report).items()}
    assert found == {"list-0": "identical", "story-0": "reconverged", "code-0": "divergent"}
    code = _rows(report)["code-0"]
    assert (code["reason"], code["first"], code["worst"]) == ("gap", 3, round(9.5 * NATS))
    assert code["words"] is not None
    assert _rows(report)["list-0"]["detail"] is None


def test_the_sentence_counts_what_diverges_and_how_far(small: Any) -> None:
    view = collect(small.analysis()).view
    assert view["status"] == "divergent"
    assert view["sentence"] == (
        "1 of 3 compared answers are not what the baseline would have said: 1 by gap. "
        "The worst token is 9.5 nats below the baseline's choice; epsilon is 0.125."
    )


def test_strict_makes_a_fork_divergent(make_run: MakeRun) -> None:
    run = make_run({"story-0": Sampling(96)})
    base = run.says("baseline", "story-0", STORY)
    other = run.says("nextn", "story-0", (*base[:3], *run.ids("another story about a bird in a tree")))
    run.scored("story-0", base)
    run.scored("story-0", other, regrets={3: 0.0625}, others={3: base[3]})
    relaxed, strict = collect(run.analysis()), collect(run.analysis(), strict=True)
    assert relaxed.view["counts"][0]["counts"]["forked"] == 1
    assert strict.view["status"] == "divergent"
    assert strict.view["sentence"] == "Near-ties that do not reconverge: 1. --strict does not accept them."


def test_missing_evidence_is_never_proven(make_run: MakeRun) -> None:
    run = make_run({"list-0": Sampling(96), "list-1": Sampling(96)})
    run.says("nextn", "list-0", run.says("baseline", "list-0", "1, 2, 3, 4, 5, 6"))
    run.says("baseline", "list-1", "7, 8, 9")
    run.fails("nextn", "list-1", "the server closed the connection")
    run.server("nextn", complete=False, problem="exit status -9")
    report = collect(run.analysis())
    assert report.view["status"] == "inconclusive"
    assert report.view["sentence"].startswith("Nothing is proven")
    assert report.view["problems"] == ["nextn: exit status -9"]
    entry = report.chunks[1]["answers"][0]
    assert (entry["left"], entry["right"]) == (0, -1)


def test_equal_outputs_are_stored_once(small: Any) -> None:
    report = collect(small.analysis())
    places = {p[0]: chunk for p, chunk in zip(report.index["prompts"], report.chunks, strict=True)}
    assert len(places["list-0"]["outputs"]) == 1
    assert len(places["code-0"]["outputs"]) == 2
    entry = places["list-0"]["answers"][0]
    assert entry["left"] == entry["right"] == 0


def test_ids_and_texts_come_back_from_the_vocabulary(small: Any) -> None:
    analysis = small.analysis()
    report = collect(analysis)
    said = analysis.baseline.transcript("plain", "list-0").ids
    kept = report.chunks[0]["outputs"][0]["ids"]
    assert tuple(report.vocabulary["ids"][k] for k in kept) == said
    assert "".join(report.vocabulary["texts"][k] for k in kept).startswith("1, 2, 3")


def test_characters_of_several_tokens_are_shown_whole(make_run: MakeRun) -> None:
    run = make_run({"list-0": Sampling(96)})
    said = run.says("baseline", "list-0", "a 🦜 b")
    run.says("nextn", "list-0", said)
    report = collect(run.analysis())
    output = report.chunks[0]["outputs"][0]
    shown = [output["texts"].get(str(t), report.vocabulary["texts"][k]) for t, k in enumerate(output["ids"])]
    assert "".join(shown[:-1]) == "a 🦜 b"


def test_a_text_that_is_not_that_of_the_tokens_is_kept(make_run: MakeRun) -> None:
    run = make_run({"list-0": Sampling(96)})
    said = run.says("baseline", "list-0", "1, 2, 3")
    run.says("nextn", "list-0", said, text="1, 2, 4")
    outputs = collect(run.analysis()).chunks[0]["outputs"]
    assert [o.get("text") for o in outputs] == [None, "1, 2, 4"]


def test_goldens_that_drifted_are_listed(make_run: MakeRun) -> None:
    run = make_run({"list-0": Sampling(96)}, goldens={"list-0": Golden((5, 6, 7, 1), "x", "stop", 1)})
    run.says("nextn", "list-0", run.says("baseline", "list-0", "1, 2, 3"))
    goldens = collect(run.analysis()).view["goldens"]
    assert goldens["compared"] == 1
    assert [row["prompt"] for row in goldens["drifted"]] == ["list-0"]


def test_keys_are_masked_everywhere(make_run: MakeRun) -> None:
    secret = "sk-0123456789abcdefABCDEF"
    run = make_run({"list-0": Sampling(96)})
    run.server("nextn", api_key=secret, problem=f"--api-key {secret} was refused", complete=False)
    run.says("nextn", "list-0", run.says("baseline", "list-0", "1, 2, 3"), text=f"Bearer {secret}")
    report = collect(run.analysis())
    everything = json.dumps([report.view, report.index, report.vocabulary, report.chunks], default=str)
    assert "0123456789abcdef" not in everything
    arguments = {row["name"]: row["values"] for row in report.view["arguments"]["rows"]}
    assert arguments["api_key"] == ["", "***"]


def test_everything_is_plain_json(small: Any) -> None:
    report = collect(small.analysis())
    for part in (report.view, report.index, report.vocabulary, report.chunks):
        json.dumps(part, allow_nan=False)


def test_scores_keep_argmax_second_and_what_contradicts_itself() -> None:
    scores = OutputScores(
        ids=(10, 11, 12, 13),
        logprobs=(-0.5, -2.0, -1.0, None),
        top=(
            (Candidate(10, -0.5), Candidate(20, -1.5)),
            (Candidate(21, -1.0), Candidate(11, -2.0)),
            (Candidate(22, -1.0), Candidate(12, -1.0)),
            (),
        ),
    )
    words = Vocabulary(str)
    packed = pack_scores(scores, words)

    def token(k: int) -> int:
        return words.ids[k]

    assert packed["logprob"] == [-50000, -200000, -100000, None]
    assert [None if k < 0 else token(k) for k in packed["second"]] == [20, 11, 22, None]
    assert packed["second_logprob"] == [-150000, -200000, -100000, None]
    assert {t: (token(k), v) for t, (k, v) in packed["off"].items()} == {"1": (21, -100000)}
    assert packed["unsound"] == [3]


def test_the_histogram_counts_verify_steps_by_accepted_drafts(make_run: MakeRun) -> None:
    run = make_run({"list-0": Sampling(96), "story-0": Sampling(96)})
    for prompt, counts in (("list-0", [1, 2, 1]), ("story-0", [0, 0, 0, 4])):
        said = run.says("baseline", prompt, "1, 2, 3, 4, 5")
        run.says("nextn", prompt, said, spec_accept_histogram=counts)
    found = histogram(run.analysis(), "nextn")
    assert found is not None
    assert {row["category"]: row["counts"] for row in found["rows"]} == {
        "list": [1, 2, 1, 0],
        "story": [0, 0, 0, 4],
        "all": [1, 2, 1, 4],
    }


def test_without_a_histogram_prompts_are_counted_by_accept_length(small: Any) -> None:
    found = histogram(small.analysis(), "nextn")
    assert found is not None
    assert found["unit"] == "prompts"
    assert sum(found["rows"][-1]["counts"]) == 3


def test_bench_tables_are_taken_over(small: Any) -> None:
    path: Path = small.store.path / "bench.json"
    table = {"title": "Speed", "note": "one card", "columns": ["task", "tokens/s"], "rows": [["story", 51.5]]}
    path.write_text(json.dumps({"schema": 1, "tables": [table]}))
    assert [(t.title, t.rows) for t in bench(small.analysis())] == [("Speed", [["story", 51.5]])]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged"),
        ('{"tables": [{"title": "x"}]}', "is damaged"),
        ('{"tables": [{"title": "x", "columns": ["a", "b"], "rows": [["1"]]}]}', "has not 2 values"),
    ],
)
def test_a_damaged_bench_file_is_a_usage_error(small: Any, content: str, message: str) -> None:
    (small.store.path / "bench.json").write_text(content)
    with pytest.raises(UsageError, match=message):
        collect(small.analysis())


def test_a_damaged_run_is_a_usage_error(small: Any) -> None:
    (small.store.path / "prompts.json").write_text("[{")
    with pytest.raises(UsageError, match="damaged"):
        collect(small.analysis())


def test_the_data_of_a_small_run(small: Any, snapshot: SnapshotAssertion) -> None:
    report = collect(small.analysis(), command="latest")
    assert {"index": report.index, "vocabulary": report.vocabulary, "chunks": list(report.chunks)} == snapshot


def test_a_merged_run_has_a_report_and_a_shard_says_that_it_is_one(make_run: MakeRun, tmp_path: Path) -> None:
    stores = []
    for index, regret in ((1, 0.0), (2, 9.0)):
        prompt = f"list-{index}"
        shard = Shard(index, 2, ("list-1", "list-2"))
        run = make_run({prompt: Sampling(96)}, folder=f"{index}", shard=shard, key=f"{index}" * 64, model_digest="m")
        base = run.says("baseline", prompt, STORY)
        other = run.says("nextn", prompt, (*base[:3], base[4], *base[4:]) if regret else base)
        run.scored(prompt, base)
        if regret:
            run.scored(prompt, other, regrets={3: regret}, others={3: base[3]})
        stores.append(run.store)
    merged = collect(analyze(merge_runs(stores, tmp_path / "merged")))
    assert {row["bucket"] for row in _rows(merged).values()} == {0, 5}
    assert merged.view["status"] == "divergent"
    assert ["Merged from", "2 shards"] in merged.view["provenance"]
    assert "Shard 1 of 2." in render(collect(analyze(stores[0])))
    assert "Shard 1 of 2." not in render(merged)
