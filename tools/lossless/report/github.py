"""What GitHub Actions shows of a run: the step summary (markdown) and annotations (workflow commands).

Limits: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands (a step summary holds
1 MiB; ten error annotations a step are kept).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote

from lossless.analysis import Analysis, Judged
from lossless.prompts.loading import NAMES
from lossless.report.evidence import broken_by_speculation
from lossless.report.failure import failure_text
from lossless.report.markdown import block, code, details, escape, number, table
from lossless.report.summary import COLUMNS, golden_lines, known_lines
from lossless.verdict import Kind

SHOWN = 20
ANNOTATED = 10
LIMIT = 900_000  # bytes; GitHub refuses a summary above 1 MiB, and other steps write to it as well
MARKS = {"proven": "✅", "divergent": "❌", "inconclusive": "⚠️"}


def summary_markdown(analysis: Analysis, judged: Sequence[Judged], status: str, *, strict: bool = False) -> str:
    """Status line, a table by variant, failed controls, failures with their texts folded, how to reproduce."""
    m = analysis.manifest
    failing = failures(analysis, judged, strict=strict)
    parts = [
        f"## {MARKS[status]} {status}: {escape(m.profile)}",
        _head(analysis),
        _verdicts(analysis, judged),
        *_controls(analysis),
        *_failures(analysis, failing),
        *_broken(analysis, judged),
        *_stress(analysis),
        *_inconclusive(judged),
        *_bullets(escape(line) for line in (*known_lines(analysis), *golden_lines(analysis))),
        *(_reproduce(analysis, failing) if status != "proven" else ()),
    ]
    return _joined(parts)


def annotations(analysis: Analysis, judged: Sequence[Judged], *, strict: bool = False) -> list[str]:
    """``::error`` lines for what failed, at most ten: controls, answers, rules, then what lacks evidence."""
    found = [
        command("error", f"{c.scope}: control {c.name} failed", c.detail)
        for c in analysis.controls
        if c.failure is not None
    ]
    found += [
        command("error", f"{j.verdict.label}: {j.prompt.id} ({j.variant}, {j.stage})", j.verdict.detail)
        for j in failures(analysis, judged, strict=strict)
    ]
    found += [
        command("error", f"{v}: {p}", f"{reason}: {message}") for v, p, reason, message in _rules(analysis, judged)
    ]
    found += [command("error", f"{s.server}: stress test failed", s.detail) for s in analysis.survival if not s.ok]
    found += [
        command("error", f"{label}: {len(own)} answers of {variant}", detail)
        for (variant, label, detail), own in without_evidence(judged).items()
    ]
    if len(found) > ANNOTATED:
        more = len(found) - ANNOTATED + 1
        found[ANNOTATED - 1 :] = [command("error", "lossless", f"and {more} more; see the step summary")]
    return found


def command(name: str, title: str, message: str) -> str:
    """One workflow command; both texts are escaped as the runner unescapes them."""
    return f"::{name} title={_property(title)}::{_data(message)}"


def failures(analysis: Analysis, judged: Iterable[Judged], *, strict: bool = False) -> list[Judged]:
    """Answers with evidence that did not pass and that no known issue explains."""
    return [
        j
        for j in judged
        if j.verdict.kind is not Kind.INCONCLUSIVE and not j.verdict.passed(strict=strict) and not analysis.is_known(j)
    ]


def without_evidence(judged: Iterable[Judged]) -> dict[tuple[str, str, str], list[Judged]]:
    """Inconclusive answers by variant, label and what is missing: one cause often leaves hundreds of them."""
    found: dict[tuple[str, str, str], list[Judged]] = defaultdict(list)
    for j in judged:
        if j.verdict.kind is Kind.INCONCLUSIVE:
            found[j.variant, j.verdict.label, j.verdict.detail].append(j)
    return found


def append(path: Path, text: str) -> None:
    """Add a block to a step summary."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text + "\n")


def _head(analysis: Analysis) -> str:
    m = analysis.manifest
    versions = dict.fromkeys(str(s.info.get("version")) for s in analysis.servers.values() if s.info.get("version"))
    words = [m.target, m.dtype, f"prompts {m.prompt_set} ({len(analysis.prompts)})"]
    words += [f"server {', '.join(versions)}"] if versions else ["no server came up"]
    if m.fault:
        words.append(f"planted fault {m.fault}")
    return f"{escape(' · '.join(words))}  \n{escape(analysis.epsilon.describe().partition(';')[0])}"


def _verdicts(analysis: Analysis, judged: Sequence[Judged]) -> str:
    rows = []
    base = analysis.speed("baseline")["all"].tokens_per_s
    for variant in analysis.manifest.variants:
        own = [j for j in judged if j.variant == variant]
        counts = Counter(j.verdict.label if j.verdict.kind is Kind.NEAR_TIE else str(j.verdict.kind) for j in own)
        speed = analysis.speed(variant)["all"].tokens_per_s
        rows.append(
            [
                code(variant),
                *(str(counts[c]) for c in COLUMNS),
                number(analysis.acceptance(variant)["all"].accept_length, 3),
                "" if not base or not speed else f"{speed / base:.2f}x",
            ]
        )
    columns = ["variant", *COLUMNS, "accept length", "speed-up"]
    return table(columns, rows, right=range(1, len(columns)))


def _controls(analysis: Analysis) -> Iterator[str]:
    failed = [c for c in analysis.controls if not c.ok]
    if failed:
        yield "### Controls that failed"
        yield table(["server", "control", "what"], [[code(c.scope), escape(c.name), escape(c.detail)] for c in failed])


def _failures(analysis: Analysis, failing: Sequence[Judged]) -> Iterator[str]:
    if not failing:
        return
    yield f"### Failures ({len(failing)})"
    rows = []
    for j in failing[:SHOWN]:
        v = j.verdict
        first = v.differences[0] if v.differences else None
        rows.append(
            [
                code(j.prompt.id),
                code(j.variant),
                escape(j.stage),
                escape(v.label),
                "" if first is None else str(first.variant_start),
                number(None if first is None else first.gap),
                number(None if v.regret is None else v.regret.largest),
                escape(v.detail),
            ]
        )
    columns = ["prompt", "variant", "stage", "verdict", "position", "gap (nats)", "largest regret", "what"]
    yield table(columns, rows, right=(4, 5, 6))
    if len(failing) > SHOWN:
        yield f"… and {len(failing) - SHOWN} more"
    for j in failing[: SHOWN // 2]:
        title = f"{j.prompt.id} · {j.variant} · {j.stage}"
        yield details(title, block(failure_text(analysis, j), "text"))


def _rules(analysis: Analysis, judged: Iterable[Judged]) -> Iterator[tuple[str, str, str, str]]:
    for variant, prompt in dict.fromkeys((j.variant, j.prompt.id) for j in judged):
        for violation in broken_by_speculation(analysis, variant, prompt):
            yield variant, prompt, str(violation.reason), violation.message


def _broken(analysis: Analysis, judged: Iterable[Judged]) -> Iterator[str]:
    found = list(_rules(analysis, judged))
    if found:
        yield f"### Rules that speculation breaks ({len(found)})"
        rows = [[code(v), code(p), escape(reason), escape(message)] for v, p, reason, message in found[:SHOWN]]
        yield table(["variant", "prompt", "rule", "what"], rows)
        if len(found) > SHOWN:
            yield f"… and {len(found) - SHOWN} more"


def _stress(analysis: Analysis) -> Iterator[str]:
    failed = [s for s in analysis.survival if not s.ok]
    if failed:
        yield "### Stress tests that failed"
        yield table(["server", "what"], [[code(s.server), escape(s.detail)] for s in failed])


def _inconclusive(judged: Iterable[Judged]) -> Iterator[str]:
    found = without_evidence(judged)
    if not found:
        return
    yield f"### Without evidence ({sum(map(len, found.values()))})"
    rows = [
        [code(variant), escape(label), str(len(own)), code(own[0].prompt.id), escape(detail)]
        for (variant, label, detail), own in list(found.items())[:SHOWN]
    ]
    yield table(["variant", "verdict", "answers", "first prompt", "what is missing"], rows, right=(2,))
    if len(found) > SHOWN:
        yield f"… and {len(found) - SHOWN} more causes"


def _bullets(lines: Iterable[str]) -> Iterator[str]:
    text = "\n".join(f"- {line}" for line in lines)
    if text:
        yield text


def _reproduce(analysis: Analysis, failing: Sequence[Judged]) -> Iterator[str]:
    yield "### Reproduce"
    run = quote(analysis.store.path.name)
    lines = [f"lossless verify {run}    # judges the evidence again, without a server"]
    for divergent in failing[:1]:
        lines.append(
            f"lossless replay {run} --prompt {quote(divergent.prompt.id)} --variant {quote(divergent.variant)}"
        )
    lines.append(
        f"pytest -m lossless --lossless-profile {quote(analysis.manifest.profile)} {_prompts(analysis)}".rstrip()
    )
    yield block("\n".join(lines), "bash")


def _prompts(analysis: Analysis) -> str:
    name = analysis.manifest.prompt_set
    return f"--lossless-prompts {name}" if name in NAMES else ""


def _joined(parts: Iterable[str]) -> str:
    """Parts up to GitHub's limit; they come in order of importance, and none is cut in two (it may be a fence)."""
    kept, size = [], 0
    for part in parts:
        size += len(part.encode()) + 2
        if size > LIMIT:
            kept.append("… cut: the summary is larger than GitHub shows")
            break
        kept.append(part)
    return "\n\n".join(kept) + "\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
