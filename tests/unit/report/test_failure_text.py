"""The message of one red line, word for word."""

import io
from typing import Any

import pytest
from rich.console import Console

from lossless.analysis import Analysis
from lossless.protocol import Sampling
from lossless.report.excerpt import excerpt
from lossless.report.failure import NEXT, WIDTH, failure_text
from lossless.report.summary import golden_lines, summary
from lossless.verdict import Reason

TEXT = "The list is: one, two, three, four, five, six and seven. That is all of it."
FLIPPED = TEXT.replace("three", "seven", 1)


def flipped(make_run: Any, regret: float, said: str = FLIPPED, **more: Any) -> Any:
    """The variant says another word, that far below the argmax."""
    run = make_run(**more)
    own = run.says("baseline", "list-0", TEXT)
    other = run.says("nextn", "list-0", said)
    at = next(t for t, (x, y) in enumerate(zip(own, other, strict=False)) if x != y)
    run.scored("list-0", other, {at: regret}, {at: own[at]})
    return run


def text_of(run: Any) -> str:
    """The message, without the folder it was made in."""
    analysis = run.analysis()
    return failure_text(analysis, analysis.verdict("nextn", "list-0")).replace(str(run.store.path), "RUN")


def test_a_near_tie(make_run: Any) -> None:
    assert text_of(flipped(make_run, 0.0625)) == NEAR_TIE


def test_a_divergence(make_run: Any) -> None:
    assert text_of(flipped(make_run, 7.25, TEXT[:40] + "and more")) == DIVERGENCE


def test_a_stop_fault(make_run: Any) -> None:
    run = make_run()
    ids = run.says("baseline", "list-0", TEXT)
    leaked = (*ids, *run.tokenizer.encode_text(" And on."))
    text = run.tokenizer.decode(leaked[:-1])
    run.says("nextn", "list-0", leaked, finish_reason={"type": "stop", "matched": leaked[-1]}, text=text)
    assert text_of(run) == STOP_FAULT


def test_missing_evidence(make_run: Any) -> None:
    run = make_run()
    run.says("baseline", "list-0", TEXT)
    run.server("nextn", complete=False, problem="nextn ended with exit status -9\n  → see its log")
    assert text_of(run) == MISSING


def test_without_a_tokenizer(make_run: Any) -> None:
    """Where the run has no tokenizer, ids stand for words."""
    run = flipped(make_run, 7.25)
    (run.store.path / "tokenizer.json").unlink()
    lines = text_of(run).splitlines()
    assert lines[0] == "divergent (gap)  ·  list-0 · nextn · plain"
    ids = run.ids(TEXT)
    assert f"⟦{ids[8]}⟧" in lines[4]
    assert f"'<{ids[8]}>'" in lines[7]


def test_every_reason_has_a_next_step() -> None:
    assert set(NEXT) == set(Reason)


def test_long_and_wide_text_stays_within_the_page(make_run: Any) -> None:
    said = "中文 " * 60 + "x" * 300 + "\n\ttab"
    run = flipped(make_run, 2.0, said, prompts={"list-0": Sampling(2000)})
    assert max(map(len, text_of(run).splitlines())) <= WIDTH
    assert "\t" not in text_of(run)


def test_commands_and_paths_are_never_broken(make_run: Any) -> None:
    run = flipped(make_run, 0.0625, folder="/".join(["a-folder-with-a-long-name"] * 6))
    analysis = run.analysis()
    extra = f"golden: {run.store.path}/list-0.json, written by sglang"
    lines = failure_text(analysis, analysis.verdict("nextn", "list-0"), extra=(extra,)).splitlines()
    assert lines[-2:] == [extra, f"→ lossless verify {run.store.path} --prompt list-0"]


def test_only_the_first_differences_are_shown(make_run: Any) -> None:
    said = TEXT
    for word in ("one", "three", "five", "seven"):
        said = said.replace(word, "nine")
    text = text_of(flipped(make_run, 2.0, said))
    assert sum(line.startswith("position") and ": " in line for line in text.splitlines()) == 3
    assert "… and 1 more differences" in text


# --------------------------------------------------------------------------- excerpts
def show(ids: Any) -> str:
    return "".join(chr(97 + i % 26) for i in ids)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 1, "⟦a⟧bcdefghijklmnopq…"),
        (5, 5, "abcde⟦⟧fghijklmnopqrstu…"),
        (49, 50, "…lmnopqrstuvw⟦x⟧"),
        (50, 50, "…mnopqrstuvwx⟦⟧"),
        (20, 50, "…ijklmnopqrst⟦uvwxyzabcdefghij …⟧…"),
    ],
)
def test_excerpts(start: int, end: int, expected: str) -> None:
    assert str(excerpt(range(50), start, end, show)) == expected


def test_line_breaks_are_shown() -> None:
    assert str(excerpt([1], 0, 1, lambda ids: "a\n\r\tb" if ids else "")) == "⟦a⏎␍⇥b⟧"


# ---------------------------------------------------------------------------- summary
def shown(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=140, color_system=None)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_summary_counts_and_names(make_run: Any) -> None:
    run = flipped(make_run, 0.0625, fault="kv_rollback")
    text = shown(summary(run.analysis()))
    assert "small: tiny · bfloat16 · prompts standard (1) · planted fault kv_rollback" in text
    row = next(line for line in text.splitlines() if line.startswith("nextn"))
    assert row.split() == ["nextn", "0", "1", "0", "0", "0"]
    figures = next(line for line in text.splitlines() if line.startswith("list"))
    assert figures.split()[0] == "list"
    assert list(golden_lines(run.analysis())) == []


def test_a_failed_control_is_loud(make_run: Any) -> None:
    run = make_run()
    run.says("baseline", "list-0", TEXT)
    analysis: Analysis = run.analysis()
    text = shown(summary(analysis))
    assert "FAILED" in text
    assert "speculation never ran" in text


NEAR_TIE = """\
near-tie (reconverged)  ·  list-0 · nextn · plain
flips at position 8 (gap 0.0625 nats, epsilon 0.125) and reconverges; largest regret 0.0625 nats

position 8: 1 token became 1; reconverges, 17 equal tokens to the end
  baseline The list is: one, two,⟦ three⟧, four, five, six and seven. That is all of it.…
  nextn    The list is: one, two,⟦ seven⟧, four, five, six and seven. That is all of it.…
  candidate      id    logprob    below argmax    chosen by
  ' three'     2109    -1.0000          0.0000    baseline
  ' seven'     2964    -1.0625          0.0625    nextn

regret: largest 0.0625 nats at 8, sum 0.0625, above zero at 1 of 26 tokens; budget 3 tokens, 0.188 nats
epsilon 0.125 nats (given, not measured)
→ lossless verify RUN --prompt list-0"""
DIVERGENCE = """\
divergent (gap)  ·  list-0 · nextn · plain
the first difference is 7.25 nats from the baseline's argmax, epsilon is 0.125

position 13: 12 tokens became 2; then 1 equal token at the end
  baseline … list is: one, two, three, four, five⟦, six and seven. That is all of it.⟧<|end|>
  nextn    … list is: one, two, three, four, five⟦and more⟧<|end|>
  candidate     id    logprob    below argmax    chosen by
  ','           22    -1.0000          0.0000    baseline
  'and'        453    -8.2500          7.2500    nextn

regret: largest 7.25 nats at 13, sum 7.25, above zero at 1 of 16 tokens; budget 3 tokens, 0.188 nats
epsilon 0.125 nats (given, not measured)
→ the variant chose a token the baseline would not have chosen: speculation is not lossless here
perhaps KV rollback: rejected tokens may be left in the KV cache; right up to position 13 [vllm #46834, TensorRT-LLM
#11125]
perhaps recurrent state rollback: rejected tokens may be left in the recurrent state; right up to position 13 [vllm
#39273, vllm #53505]
→ lossless verify RUN --prompt list-0"""
STOP_FAULT = """\
divergent (stop)  ·  list-0 · nextn · plain
3 tokens follow the stop token 1 at position 25

position 26: 3 tokens too many; does not reconverge
  baseline … six and seven. That is all of it.<|end|>⟦⟧
  nextn    … six and seven. That is all of it.<|end|>⟦ And on.⟧

epsilon 0.125 nats (given, not measured)
→ stop handling inside an accepted run is broken
perhaps stop inside an accepted run: a stop inside a run of accepted tokens is handled wrongly; 3 tokens follow the
stop token 1 at position 25 [sglang #31599, sglang PR #17260]
→ lossless verify RUN --prompt list-0"""
MISSING = """\
inconclusive (missing)  ·  list-0 · nextn · plain
nextn: nextn ended with exit status -9
  → see its log; nextn ended with exit status -9
  → see its log

epsilon 0.125 nats (given, not measured)
→ look at the server's log, mend the cause, and run again: finished answers are kept
→ lossless verify RUN --prompt list-0"""
