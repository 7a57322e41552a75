"""The figures as tables of text, the same for terminal, Markdown and HTML. Pure."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from lossless.bench.figures import (
    Figure,
    Ratio,
    accept_length,
    aggregate_rate,
    decode_rate,
    figure,
    first_token,
    prefill_rate,
    ratio,
)
from lossless.bench.file import Bench, Facts, ServerBench, Table
from lossless.bench.sample import Sample, Stage

MISSING = "missing"
UNFIT = "does not fit"
NONE = "–"
NOT_DISTINGUISHABLE = "not distinguishable"
SEEDED = ("code", "extraction", "chinese-writing")
"""Categories of the summary, where they are there: short code, copied text, and free writing spread the field."""

DECODE = "Tokens a second after the first one; milliseconds from sending a request to its first token."
SPREAD = "Median of the repeats (lowest–highest)."
BY_TASK = "Accept length depends on the kind of task: compare the same row only, and never one mix with another."
RATIO = (
    "Speed-up: ratio of the medians to the baseline's, with the range that the spreads allow; where the spreads "
    f"overlap, or there is one repeat, it is {NOT_DISTINGUISHABLE}."
)

Value = Callable[[Sequence[Sample]], float | None]


class _Reader:
    """Figures of one bench, by server and row."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.base, *self.variants = bench.names

    def samples(self, name: str) -> tuple[Sample, ...]:
        server = self.bench.servers.get(name)
        return server.samples if server is not None else ()

    def speed(self, name: str, category: str, streams: int, value: Value) -> Figure:
        found = [
            s for s in self.samples(name) if s.stage == "speed" and s.category == category and s.streams == streams
        ]
        size = len(self.bench.tasks[category]) if streams == 1 else streams
        return figure(found, value, repeats=self.bench.settings.repeats, size=size)

    def context(self, name: str, length: int, value: Value) -> Figure:
        found = [s for s in self.samples(name) if s.stage == "context" and s.length == length]
        return figure(found, value, repeats=self.bench.settings.repeats, size=1)

    def sampled(self, name: str, category: str, temperature: float) -> Figure:
        if temperature == 0:
            return self.speed(name, category, min(self.bench.settings.streams), accept_length)
        found = [
            s
            for s in self.samples(name)
            if s.stage == "temperature" and s.category == category and s.temperature == temperature
        ]
        size = len(self.bench.tasks[category])
        return figure(found, accept_length, repeats=self.bench.settings.repeats, size=size)

    def lengths(self) -> list[int]:
        """Lengths that at least one server has room for."""
        return [
            length
            for length in self.bench.lengths
            if not all(self.context(name, length, prefill_rate).unfit for name in self.bench.names)
        ]

    def has(self, stage: Stage) -> bool:
        return any(sample.stage == stage for name in self.bench.names for sample in self.samples(name))


def tables(bench: Bench) -> tuple[Table, ...]:
    """All tables of what is there, the summary first."""
    read = _Reader(bench)
    return tuple(_tables(read))


def _tables(read: _Reader) -> Iterator[Table]:
    yield _summary(read)
    for streams in read.bench.settings.streams:
        yield _alone(read) if streams == 1 else _together(read, streams)
    if read.lengths() and read.has("context"):
        yield _lengths(read)
    if read.variants:
        yield _temperatures(read)
    yield _servers(read)


def _summary(read: _Reader) -> Table:
    """The layout people compare servers with: scenarios down, servers across, medians only."""
    bench = read.bench
    present = [name for name in SEEDED if name in bench.tasks] or list(bench.tasks)[:3]
    rows: list[tuple[str, ...]] = []

    def add(label: str, number: str, found: Callable[[str], Figure]) -> None:
        base = found(read.base)
        cells = [brief(base, number)]
        for name in read.variants:
            own = found(name)
            cells.append(brief(own, number) + _brief_ratio(ratio(own, base)))
        rows.append((label, *cells))

    for streams in bench.settings.streams:
        for category in present:
            if streams == 1:
                add(f"{category}, decode", ".1f", partial(read.speed, category=category, streams=1, value=decode_rate))
            else:
                label = f"{category}, {streams} streams, decode of all"
                add(label, ".1f", partial(read.speed, category=category, streams=streams, value=aggregate_rate))
    for length in read.lengths()[-1:]:
        add(f"decode after {length} tokens", ".1f", partial(read.context, length=length, value=decode_rate))
        add(f"prefill of {length} tokens", ".0f", partial(read.context, length=length, value=prefill_rate))
    rows += [
        (f"accept length, {c}", NONE, *(brief(read.sampled(n, c, 0.0), ".2f") for n in read.variants)) for c in present
    ]
    for length in read.lengths()[-1:]:
        cells = [brief(read.context(n, length, accept_length), ".2f") for n in read.variants]
        rows.append((f"accept length after {length} tokens", NONE, *cells))
    rows.append(("KV pool, tokens", *(_fact(read, n, "kv_pool_tokens", "d") for n in bench.names)))
    rows.append(("draft memory, GB", NONE, *(_fact(read, n, "draft_gb", ".2f") for n in read.variants)))
    note = f"Tokens a second, medians; in brackets the speed-up. {BY_TASK}"
    return Table("Summary", note, ("scenario", *bench.names), tuple(rows))


def _alone(read: _Reader) -> Table:
    rows = []
    for category in read.bench.tasks:
        base = read.speed(read.base, category, 1, decode_rate)
        for name in read.bench.names:
            own = read.speed(name, category, 1, decode_rate)
            accepted = full(read.speed(name, category, 1, accept_length), ".2f")
            rows.append(
                (
                    category,
                    name,
                    full(own, ".1f"),
                    NONE if name == read.base else speed_up(ratio(own, base)),
                    NONE if name == read.base else accepted,
                    full(_milliseconds(read.speed(name, category, 1, first_token)), ".1f"),
                )
            )
    columns = ("category", "server", "tokens/s", "speed-up", "accept length", "first token, ms")
    return Table("One request at a time", f"{DECODE} {SPREAD} {RATIO} {BY_TASK}", columns, tuple(rows))


def _together(read: _Reader, streams: int) -> Table:
    rows = []
    for category in read.bench.tasks:
        base = read.speed(read.base, category, streams, aggregate_rate)
        for name in read.bench.names:
            own = read.speed(name, category, streams, aggregate_rate)
            rows.append(
                (
                    category,
                    name,
                    full(own, ".1f"),
                    NONE if name == read.base else speed_up(ratio(own, base)),
                    full(read.speed(name, category, streams, decode_rate), ".1f"),
                    full(_milliseconds(read.speed(name, category, streams, first_token)), ".1f"),
                )
            )
    waits = [n for n in read.bench.names if 0 < (_facts(read, n).running_requests or 0) < streams]
    note = f"All streams together, from the first token of any to the last of any; then each stream. {SPREAD}"
    if waits:
        note += f" Fewer run at once on {', '.join(waits)}: the others wait for their turn."
    columns = ("category", "server", "all, tokens/s", "speed-up", "each, tokens/s", "first token, ms")
    return Table(f"{streams} requests at once", note, columns, tuple(rows))


def _lengths(read: _Reader) -> Table:
    rows = []
    for length in read.lengths():
        prefill = read.context(read.base, length, prefill_rate)
        decode = read.context(read.base, length, decode_rate)
        for name in read.bench.names:
            own = read.context(name, length, prefill_rate)
            answer = read.context(name, length, decode_rate)
            other = name != read.base
            rows.append(
                (
                    str(length),
                    name,
                    full(own, ".0f"),
                    speed_up(ratio(own, prefill)) if other else NONE,
                    full(answer, ".1f"),
                    speed_up(ratio(answer, decode)) if other else NONE,
                    full(read.context(name, length, accept_length), ".2f") if other else NONE,
                )
            )
    columns = ("prompt tokens", "server", "prefill, tokens/s", "ratio", "decode, tokens/s", "speed-up", "accept length")
    note = (
        "The same question about a fact in the middle of more and more text, on an empty prefix cache. Prefill: prompt "
        f"tokens over the time to the first token. {SPREAD}"
    )
    return Table("By prompt length", note, columns, tuple(rows))


def _temperatures(read: _Reader) -> Table:
    heats = [0.0, *(t for t in read.bench.settings.temperatures if t > 0 and read.has("temperature"))]
    columns = [f"{name} T={t:g}" for name in read.variants for t in heats]
    rows = [
        (category, *(full(read.sampled(name, category, t), ".2f") for name in read.variants for t in heats))
        for category in read.bench.tasks
    ]
    note = f"Completion tokens over verify steps; T=0 is greedy. Sampled answers are in no verdict. {SPREAD} {BY_TASK}"
    return Table("Accept length by temperature", note, ("category", *columns), tuple(rows))


def _servers(read: _Reader) -> Table:
    lines: tuple[tuple[str, str, str], ...] = (
        ("algorithm", "algorithm", "s"),
        ("SGLang", "version", "s"),
        ("weights, GB", "target_gb", ".2f"),
        ("draft memory, GB", "draft_gb", ".2f"),
        ("KV pool, tokens", "kv_pool_tokens", "d"),
        ("context, tokens", "context_length", "d"),
        ("requests at once", "running_requests", "d"),
    )
    names = read.bench.names
    rows = [(label, *(_fact(read, name, key, number) for name in names)) for label, key, number in lines]
    seconds = [(s := _server(read, name)) and f"{s.start_s:.1f} / {s.seconds:.1f}" for name in names]
    rows.append(("start / measuring, s", *(cell or MISSING for cell in seconds)))
    rows.append(("requests, failed", *(_counts(_server(read, name)) for name in names)))
    return Table("Servers", " ".join(remarks(read.bench)), ("", *names), tuple(rows))


def remarks(bench: Bench) -> list[str]:
    """What a reader has to know: servers that are missing, failed requests, speculation that never ran."""
    found = []
    for name in bench.names:
        server = bench.servers.get(name)
        if server is None:
            found.append(f"{name} was not measured.")
            continue
        if server.problem is not None:
            found.append(f"{name} was not measured to its end: {server.problem.splitlines()[0]}.")
        failed = [s for s in server.samples if s.failed]
        if failed:
            first = (failed[0].problem or "").splitlines()[0]
            found.append(f"{name}: {len(failed)} of {len(_sent(server))} requests failed; the first: {first}.")
        said = [s for s in server.samples if s.ok and s.tokens > 1]
        silent = sum(not s.verify_steps for s in said)
        if name != bench.names[0] and silent:
            found.append(f"{name}: {silent} of {len(said)} answers report no verify step: they were not speculated.")
    notes = dict.fromkeys(note for server in bench.servers.values() for note in server.notes)
    for note in notes:
        about = [name for name in bench.names if name in bench.servers and note in bench.servers[name].notes]
        found.append(f"{', '.join(about)}: {note}.")
    return found


# ------------------------------------------------------------------------------------------------------------- cells
def full(found: Figure, number: str) -> str:
    """``130.5 (128.1–131.2)``, with ``, 2 of 3`` where repeats are missing."""
    if found.median is None:
        return UNFIT if found.unfit else MISSING
    text = f"{found.median:{number}}"
    low, high = f"{found.low:{number}}", f"{found.high:{number}}"
    inside = [] if low == high else [f"{low}–{high}"]
    if found.missing:
        inside.append(f"{len(found.values)} of {found.expected}")
    return f"{text} ({', '.join(inside)})" if inside else text


def brief(found: Figure, number: str) -> str:
    """The median alone."""
    if found.median is None:
        return UNFIT if found.unfit else MISSING
    return f"{found.median:{number}}"


def speed_up(found: Ratio | None) -> str:
    """``3.12x (3.05–3.20)``, or that the spreads overlap."""
    if found is None:
        return MISSING
    inside = f"{found.low:.2f}–{found.high:.2f}"
    return f"{found.value:.2f}x ({inside})" if found.distinguishable else f"{NOT_DISTINGUISHABLE} ({inside})"


def _brief_ratio(found: Ratio | None) -> str:
    if found is None:
        return ""
    return f" ({found.value:.2f}x)" if found.distinguishable else f" ({NOT_DISTINGUISHABLE})"


def _milliseconds(found: Figure) -> Figure:
    return Figure(tuple(value * 1000 for value in found.values), found.expected, found.unfit)


def _server(read: _Reader, name: str) -> ServerBench | None:
    return read.bench.servers.get(name)


def _facts(read: _Reader, name: str) -> Facts:
    server = _server(read, name)
    return server.facts if server is not None else Facts()


def _fact(read: _Reader, name: str, key: str, number: str) -> str:
    value = getattr(_facts(read, name), key)
    return NONE if value is None else f"{value:{number}}"


def _counts(server: ServerBench | None) -> str:
    if server is None:
        return MISSING
    return f"{len(_sent(server))}, {sum(s.failed for s in server.samples)}"


def _sent(server: ServerBench) -> list[Sample]:
    return [s for s in server.samples if not s.unfit]
