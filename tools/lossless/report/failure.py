"""The message of one red line: what differs, where, what the baseline thinks of it, and what to do next."""

import io
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lossless.analysis import Analysis, Judged
from lossless.report.excerpt import excerpt
from lossless.report.hint import failure_lines
from lossless.verdict import Difference, Kind, Reason

WIDTH = 118
MAX_DIFFERENCES = 3

NEXT = {
    Reason.GAP: "the variant chose a token the baseline would not have chosen: speculation is not lossless here",
    Reason.REGRET: "a later token is one the baseline would not have chosen: state is corrupted after the first flip",
    Reason.BUDGET: "too many second choices for rounding: look for a wrong acceptance threshold",
    Reason.STOP: "stop handling inside an accepted run is broken",
    Reason.LENGTH: "tokens were dropped or miscounted",
    Reason.TEXT: "the detokenizer and the token ids disagree",
    Reason.LOGPROBS: "the logprobs belong to other tokens",
    Reason.UNPROVEN_FORK: "no re-scoring was possible, so a fork cannot be told from a fault",
    Reason.MISSING: "look at the server's log, mend the cause, and run again: finished answers are kept",
    Reason.NOT_REPEATABLE: "make the baseline deterministic first (--enable-deterministic-inference, batch size 1)",
    Reason.NOT_A_PAIR: "start both servers with the same arguments but for speculation",
    Reason.NO_SPECULATION: "check the draft model and the speculative arguments of the variant",
    Reason.NO_EPSILON: "record more tokens, or look why the baseline's decode and prefill disagree",
    Reason.UNSCORED: "re-scoring is incomplete: look at the baseline's log and run again",
    Reason.CONTRADICTION: "decode and prefill of the baseline disagree by more than rounding: mend the baseline first",
}


def failure_text(analysis: Analysis, judged: Judged, *, extra: Sequence[str] = ()) -> str:
    """Plain text, at most 118 columns wide but for commands and paths, which are never broken."""
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, highlight=False, emoji=False, markup=False)
    console.print(describe(analysis, judged, extra=extra), crop=False)
    out = console.file
    assert isinstance(out, io.StringIO)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def describe(analysis: Analysis, judged: Judged, *, extra: Sequence[str] = ()) -> RenderableType:
    """Headline, numbers, both texts around each of the first differences, candidates, next step."""
    v = judged.verdict
    where = f"{judged.prompt.id} · {judged.variant} · {judged.stage}"
    parts: list[RenderableType] = [Text(f"{v.label}  ·  {where}", style="bold"), Text(v.detail)]
    parts += [Text(f"note: {note}") for note in v.notes]
    for difference in v.differences[:MAX_DIFFERENCES]:
        parts += [Text(""), *_difference(analysis, judged, difference)]
    if len(v.differences) > MAX_DIFFERENCES:
        parts.append(Text(f"… and {len(v.differences) - MAX_DIFFERENCES} more differences"))
    parts.append(Text(""))
    if v.regret is not None:
        r = v.regret
        parts.append(
            Text(
                f"regret: largest {r.largest:.4g} nats{'' if r.largest_at is None else f' at {r.largest_at}'}, "
                f"sum {r.total:.4g}, above zero at {r.count} of {r.tokens} tokens"
                + (f"; budget {v.budget.count} tokens, {v.budget.total:.3g} nats" if v.budget else "")
            )
        )
    if v.epsilon is not None:
        parts.append(Text(v.epsilon.describe()))
    parts += [_unbroken(line) for line in extra]
    if v.kind is not Kind.IDENTICAL and v.reason is not None:
        parts.append(Text(f"→ {NEXT[v.reason]}"))
    parts += [Text(line) for line in failure_lines(analysis, judged)]
    parts.append(_unbroken(f"→ lossless verify {analysis.store.path} --prompt {judged.prompt.id}"))
    return Group(*parts)


def _unbroken(line: str) -> Text:
    """A line with a path or command, which would be of no use in two pieces."""
    return Text(line, no_wrap=True, overflow="ignore")


def _difference(analysis: Analysis, judged: Judged, d: Difference) -> list[RenderableType]:
    def text(ids: Sequence[int]) -> str:
        return analysis.tokenizer.decode(ids, False) if analysis.tokenizer else " ".join(map(str, ids))

    names = judged.names
    width = max(map(len, names)) + 1
    rows: list[RenderableType] = []
    position = f"position {d.variant_start}"
    if d.baseline_start != d.variant_start:
        position += f" ({names[0]} {d.baseline_start})"
    rows.append(Text(f"{position}: {_sizes(d)}; {_after(d, judged.verdict.reconverged)}"))
    if judged.left is not None:
        rows.append(Text(f"  {names[0]:<{width}}{excerpt(judged.left.ids, d.baseline_start, d.baseline_end, text)}"))
    if judged.right is not None:
        rows.append(Text(f"  {names[1]:<{width}}{excerpt(judged.right.ids, d.variant_start, d.variant_end, text)}"))
    if d.candidates:
        rows.append(_candidates(analysis, d, names))
    return rows


def _candidates(analysis: Analysis, d: Difference, names: tuple[str, str]) -> Table:
    """What the baseline would have said at the start of a difference, given the variant's prefix."""
    table = Table(box=None, pad_edge=True, padding=(0, 2), header_style="")
    table.add_column("candidate")
    table.add_column("id", justify="right")
    table.add_column("logprob", justify="right")
    table.add_column("below argmax", justify="right")
    table.add_column("chosen by")
    best = max(c.logprob for c in d.candidates if c.logprob is not None)
    rows = {c.token_id: c.logprob for c in d.candidates}
    for token in (d.variant_token, d.baseline_token):
        if token is not None and token.logprob is not None:
            rows.setdefault(token.token_id, token.logprob)
    for token_id, logprob in sorted(rows.items(), key=lambda item: -(item[1] if item[1] is not None else 0.0)):
        chosen = [
            name
            for name, token in zip(names, (d.baseline_token, d.variant_token), strict=True)
            if token is not None and token.token_id == token_id
        ]
        table.add_row(
            Text(repr(analysis.token_text(token_id))),
            str(token_id),
            "?" if logprob is None else f"{logprob:.4f}",
            "?" if logprob is None else f"{best - logprob:.4f}",
            ", ".join(chosen),
        )
    return table


def _sizes(d: Difference) -> str:
    a, b = d.baseline_end - d.baseline_start, d.variant_end - d.variant_start
    if a == 0:
        return f"{b} token{'s' * (b != 1)} too many"
    if b == 0:
        return f"{a} token{'s' * (a != 1)} missing"
    return f"{a} token{'s' * (a != 1)} became {b}"


def _after(d: Difference, reconverged: bool | None) -> str:
    equal = f"{d.reconverged_for} equal token{'s' * (d.reconverged_for != 1)}"
    if d.to_end and reconverged:
        return f"reconverges, {equal} to the end"
    if d.to_end:  # too few to speak of: often the end of sequence alone
        return f"then {equal} at the end"
    return f"then {equal}" if d.reconverged_for else "does not reconverge"
