"""The tables people read: nothing missing looks like a figure, and nothing within the noise like a gain."""

from dataclasses import replace
from typing import Any

import pytest
from bench_made import bench, sample, server
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from lossless.bench.file import Bench, Facts, ServerBench, Table
from lossless.bench.plan import Settings
from lossless.bench.sample import Sample
from lossless.bench.tables import remarks, tables
from lossless.report.bench import bench_markdown, bench_tables


def table(made: Bench, title: str) -> Table:
    return next(t for t in tables(made) if t.title == title)


def row(made: Bench, title: str, *start: str) -> dict[str, str]:
    found = table(made, title)
    cells = next(r for r in found.rows if r[: len(start)] == start)
    return dict(zip(found.columns, cells, strict=True))


def repeats(*seconds: float, **more: Any) -> list[Sample]:
    return [sample(repeat=k, decode_s=s, **more) for k, s in enumerate(seconds)]


def pair(base: list[Sample], own: list[Sample], **more: Any) -> Bench:
    return bench({"baseline": server("baseline", base), "nextn": server("nextn", own)}, **more)


def test_known_times_give_the_expected_figures() -> None:
    made = pair(repeats(2.0, 2.5, 4.0), repeats(0.8, 1.0, 1.25, verify_steps=7))
    assert row(made, "One request at a time", "code", "baseline") == {
        "category": "code",
        "server": "baseline",
        "tokens/s": "8.0 (5.0–10.0)",
        "speed-up": "–",
        "accept length": "–",
        "first token, ms": "500.0",
    }
    assert row(made, "One request at a time", "code", "nextn") == {
        "category": "code",
        "server": "nextn",
        "tokens/s": "20.0 (16.0–25.0)",
        "speed-up": "2.50x (1.60–5.00)",
        "accept length": "3.00",
        "first token, ms": "500.0",
    }


def test_overlapping_spreads_are_no_speed_up() -> None:
    made = pair(repeats(1.0, 1.1, 1.2), repeats(0.9, 1.0, 1.1, verify_steps=7))
    assert row(made, "One request at a time", "code", "nextn")["speed-up"] == "not distinguishable (0.91–1.33)"
    assert row(made, "Summary", "code, decode")["nextn"] == "20.0 (not distinguishable)"


def test_one_repeat_is_no_speed_up() -> None:
    made = pair(repeats(2.0), repeats(1.0, verify_steps=7), settings=Settings(repeats=1, streams=(1,)))
    assert row(made, "One request at a time", "code", "nextn")["speed-up"] == "not distinguishable (2.00–2.00)"


def test_a_slowdown_is_shown_as_one() -> None:
    made = pair(repeats(1.0, 1.1), repeats(2.0, 2.2, verify_steps=7))
    assert row(made, "One request at a time", "code", "nextn")["speed-up"] == "0.50x (0.45–0.55)"


def test_speculation_that_never_ran_has_accept_length_1_and_is_named() -> None:
    made = pair(repeats(1.0, 1.1, 1.2), repeats(1.0, 1.1, 1.2))
    cells = row(made, "One request at a time", "code", "nextn")
    assert (cells["accept length"], cells["speed-up"]) == ("1.00", "not distinguishable (0.83–1.20)")
    assert "nextn: 3 of 3 answers report no verify step: they were not speculated." in remarks(made)


def test_missing_repeats_are_counted_and_missing_figures_named() -> None:
    broken = [replace(s, problem="HTTP 500\nmore") for s in repeats(1.0, 1.0, verify_steps=7)]
    good = replace(sample(repeat=2, verify_steps=7), problem=None)
    made = pair(repeats(1.0, 1.1, 1.2), [*broken, good])
    cells = row(made, "One request at a time", "code", "nextn")
    assert cells["tokens/s"] == "20.0 (1 of 3)"
    assert "nextn: 2 of 3 requests failed; the first: HTTP 500." in remarks(made)
    assert row(made, "Servers", "requests, failed")["nextn"] == "3, 2"

    made = pair(repeats(1.0, 1.1, 1.2), broken)
    cells = row(made, "One request at a time", "code", "nextn")
    assert (cells["tokens/s"], cells["speed-up"], cells["accept length"]) == ("missing",) * 3
    assert not any(value.startswith("0") for value in cells.values())


def test_a_server_that_was_not_measured() -> None:
    made = bench({"baseline": server("baseline", repeats(1.0, 1.1, 1.2))})
    assert row(made, "One request at a time", "code", "nextn")["tokens/s"] == "missing"
    assert "nextn was not measured." in remarks(made)
    assert not made.complete
    died = ServerBench("nextn", False, problem="server 'nextn' ended (exit status 1)\nlog …")
    made = bench({"baseline": server("baseline", repeats(1.0, 1.1, 1.2)), "nextn": died})
    assert "nextn was not measured to its end: server 'nextn' ended (exit status 1)." in remarks(made)


def test_streams_together() -> None:
    def two(*seconds: float, **more: Any) -> list[Sample]:
        return [s for slot in (0, 1) for s in repeats(*seconds, streams=2, slot=slot, **more)]

    made = pair(two(2.0, 2.0), two(1.0, 1.0, verify_steps=7), settings=Settings(repeats=2, streams=(2,)))
    cells = row(made, "2 requests at once", "code", "nextn")
    assert (cells["all, tokens/s"], cells["each, tokens/s"]) == ("40.0", "20.0")
    assert cells["speed-up"] == "2.00x (2.00–2.00)"
    assert row(made, "Accept length by temperature", "code")["nextn T=0"] == "3.00"


def test_requests_that_wait_for_each_other_are_named() -> None:
    facts = Facts(running_requests=1)
    servers = {name: server(name, repeats(1.0, 1.0), facts=facts) for name in ("baseline", "nextn")}
    made = bench(servers, settings=Settings(repeats=2, streams=(2,)))
    assert "Fewer run at once on baseline, nextn" in table(made, "2 requests at once").note


def long(length: int, *seconds: float, **more: Any) -> list[Sample]:
    return repeats(*seconds, stage="context", category="needle", length=length, prompt_tokens=length, **more)


def test_lengths_that_fit_nowhere_are_left_out_and_others_say_so() -> None:
    unfit = {"problem": "no room", "unfit": True}
    base = [*long(256, 1.0, 1.0), *long(1024, 1.0, 1.0), *long(9999, 1.0, 1.0, **unfit)]
    own = [*long(256, 0.5, 0.5, verify_steps=7), *long(1024, 1.0, 1.0, **unfit), *long(9999, 1.0, 1.0, **unfit)]
    made = pair(base, own, lengths=(256, 1024, 9999), settings=Settings(repeats=2, streams=(1,)))
    found = table(made, "By prompt length")
    assert [r[:2] for r in found.rows] == [
        ("256", "baseline"), ("256", "nextn"), ("1024", "baseline"), ("1024", "nextn"),
    ]  # fmt: skip
    assert row(made, "By prompt length", "256", "nextn")["prefill, tokens/s"] == "512"
    assert row(made, "By prompt length", "256", "nextn")["decode, tokens/s"] == "40.0"
    assert row(made, "By prompt length", "1024", "nextn")["prefill, tokens/s"] == "does not fit"
    assert remarks(made) == [], "what was not sent did not fail"


def test_sampled_answers_show_acceptance_only() -> None:
    sampled = repeats(1.0, 1.0, stage="temperature", temperature=0.6, verify_steps=10)
    made = pair(
        repeats(1.0, 1.0),
        [*repeats(1.0, 1.0, verify_steps=7), *sampled],
        settings=Settings(repeats=2, streams=(1,), temperatures=(0.0, 0.6)),
    )
    cells = row(made, "Accept length by temperature", "code")
    assert cells == {"category": "code", "nextn T=0": "3.00", "nextn T=0.6": "2.10"}
    assert row(made, "One request at a time", "code", "nextn")["tokens/s"] == "20.0", "and change no speed"


def test_every_row_has_as_many_cells_as_columns() -> None:
    made = pair(repeats(1.0), [], tasks={"code": ("t",), "list": ("u", "v")}, lengths=(256,))
    for found in tables(made):
        assert {len(r) for r in found.rows} == {len(found.columns)}


@pytest.fixture
def whole() -> Bench:
    facts = Facts(
        "0.5.19", "RedHatAI/Model-INT4", "bfloat16", None, "NVIDIA H200, 140 GB", 17.65, None, 331173, 131072, 2,
        {"kv_cache_dtype": "fp8_e4m3", "page_size": "1"},
    )  # fmt: skip
    own = replace(
        facts, algorithm="DFLASH", draft_gb=3.69, kv_pool_tokens=137709,
        arguments={**facts.arguments, "speculative_num_draft_tokens": "8"},
    )  # fmt: skip
    base = [*repeats(0.49, 0.5, 0.48), *long(1024, 0.6, 0.61, 0.6)]
    fast = [*repeats(0.16, 0.15, 0.155, verify_steps=4), *long(1024, 0.3, 0.31, 0.3, verify_steps=7)]
    made = bench(
        {
            "baseline": server("baseline", base, facts=facts, seconds=60.0, start_s=22.0),
            "dflash": server("dflash", fast, facts=own, seconds=40.0, start_s=30.0),
        },
        names=("baseline", "dflash"),
        lengths=(1024,),
    )
    return replace(made, tables=tables(made))


def test_markdown_to_paste(whole: Bench, snapshot: SnapshotAssertion) -> None:
    assert bench_markdown(whole) == snapshot


def test_terminal(whole: Bench, snapshot: SnapshotAssertion) -> None:
    console = Console(width=120, highlight=False)
    with console.capture() as capture:
        console.print(bench_tables(whole))
    assert "\n".join(line.rstrip() for line in capture.get().splitlines()) == snapshot
