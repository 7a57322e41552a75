"""``lossless bench``: speed and acceptance, without verdicts."""

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from lossless.bench.bencher import default_settings
from lossless.bench.file import Bench, BenchFile
from lossless.bench.plan import Settings
from lossless.bench.run import DEFAULT_ROOT, prepare_bench
from lossless.commands.common import EXIT_INTERRUPTED, Json, console, print_json
from lossless.errors import EXIT_INCONCLUSIVE, UsageError
from lossless.profiles import load_profile
from lossless.report.bench import bench_markdown, bench_tables
from lossless.report.progress import RecordingProgress
from lossless.suite.options import Options, parse_pair

T = TypeVar("T", int, float)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(bench)


def bench(
    profile: Annotated[str, typer.Option(metavar="NAME", help="A shipped profile or a .toml file.")] = "tiny",
    target: Annotated[str | None, typer.Option(metavar="DIR", help="Target model, instead of the profile's.")] = None,
    draft: Annotated[str | None, typer.Option(metavar="DIR", help="Draft model, instead of the profile's.")] = None,
    baseline_url: Annotated[str | None, typer.Option(metavar="URL", help="A running baseline.")] = None,
    variant_url: Annotated[
        list[str] | None, typer.Option(metavar="NAME=URL", help="A running variant; repeat for several.")
    ] = None,
    prompts: Annotated[str | None, typer.Option(metavar="SET", help="A shipped prompt set or a file.")] = None,
    categories: Annotated[str | None, typer.Option(metavar="A,B", help="Only these kinds of task.")] = None,
    repeats: Annotated[int | None, typer.Option(metavar="N", help="How often everything is measured (3).")] = None,
    streams: Annotated[str | None, typer.Option(metavar="1,2,8", help="How many requests at once.")] = None,
    lengths: Annotated[str | None, typer.Option(metavar="N,M", help="Prompt lengths, in tokens.")] = None,
    temperatures: Annotated[
        str | None, typer.Option(metavar="0,0.6", help="Accept length at these temperatures; 0 alone: none sampled.")
    ] = None,
    prefill: Annotated[bool, typer.Option(help="Measure prefill, and acceptance by prompt length.")] = True,
    gpus: Annotated[str | None, typer.Option(metavar="0,1", help="Cards the servers may use.")] = None,
    fault: Annotated[str | None, typer.Option(metavar="NAME", help="Plant a fault (embedded engine only).")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, to paste.")] = False,
    as_json: Json = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there instead: .md or .json.")
    ] = None,
    show: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Show what a run folder holds; nothing is measured.")
    ] = None,
    root: Annotated[Path, typer.Option("--folder", metavar="DIR", help="Folder of the benches.")] = DEFAULT_ROOT,
) -> None:
    """Measure speed and acceptance of a profile's servers, by kind of task."""
    if show is not None:
        found = BenchFile(show).read()
        if found is None:
            raise UsageError(f"{str(show)!r} holds no bench.json", hint="pytest -m lossless --lossless-bench")
        _put(found, markdown, as_json, output)
        raise typer.Exit(0 if found.complete else EXIT_INCONCLUSIVE)
    options = Options(
        profile=profile,
        target=target,
        draft=draft,
        prompts=prompts,
        baseline_url=baseline_url,
        variant_url=dict(parse_pair(text) for text in variant_url or ()),
        gpus=gpus,
        fault=fault,
    )
    kind = Settings() if baseline_url is not None else default_settings(load_profile(profile))
    settings = Settings(
        repeats=kind.repeats if repeats is None else repeats,
        streams=_numbers("--streams", streams, int) or kind.streams,
        categories=tuple(_words(categories)),
        prefill=prefill,
        lengths=_numbers("--lengths", lengths, int) or kind.lengths,
        temperatures=_numbers("--temperatures", temperatures, float) or kind.temperatures,
    )
    began = time.monotonic()
    try:
        with RecordingProgress(sys.stderr) as progress:
            run = prepare_bench(options, settings, root, progress)
            found = run.run()
    except KeyboardInterrupt:  # its servers are gone by now
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _put(found, markdown, as_json, output)
    print(f"bench: {time.monotonic() - began:.1f} s in all, kept in {run.bencher.folder}", file=sys.stderr)
    raise typer.Exit(0 if found.complete else EXIT_INCONCLUSIVE)


def _put(found: Bench, markdown: bool, as_json: bool, output: Path | None) -> None:
    as_json = as_json or (output is not None and output.suffix == ".json" and not markdown)
    if output is not None:
        text = json.dumps(asdict(found), ensure_ascii=False, indent=2) + "\n" if as_json else bench_markdown(found)
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as problem:
            raise UsageError(f"cannot write {output}: {problem.strerror}") from None
    elif as_json:
        print_json(asdict(found))
    elif markdown:
        print(bench_markdown(found), end="")
    else:
        console().print(bench_tables(found))


def _words(text: str | None) -> Iterable[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _numbers(option: str, text: str | None, kind: Callable[[Any], T]) -> tuple[T, ...]:
    try:
        return tuple(kind(part) for part in _words(text))
    except ValueError:
        raise UsageError(f"{option} {text!r}: expected numbers with commas between, such as 1,2") from None
