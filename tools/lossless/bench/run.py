"""A bench of its own: servers of a profile started, measured one at a time, and stopped. No verdicts."""

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lossless.bench.bencher import Bencher, Running, bench_key, plan_for
from lossless.bench.file import Bench, BenchFile, ServerBench
from lossless.bench.plan import Settings
from lossless.errors import ServerError, UsageError
from lossless.prompts import Prompt
from lossless.record.recorder import Progress
from lossless.suite.options import Options
from lossless.suite.prepare import open_tokenizer, recorded_prompt
from lossless.suite.session import SuiteSession

DEFAULT_ROOT = Path(".lossless") / "bench"


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One bench in one folder; ``session`` knows how to start the profile's servers there."""

    session: SuiteSession
    bencher: Bencher
    progress: Progress

    def run(self) -> Bench:
        """Measure every server that is still to be measured. No server outlives this call.

        A server that cannot be started or dies has its ``problem`` in the result.
        """
        names = [name for name in self.bencher.profile.server_names if self.bencher.missing(name)]
        room = self.session.room
        try:
            for at in range(0, len(names), room):
                self._side_by_side(names[at : at + room])
        except BaseException:
            self.session.stop()
            raise
        return self.bencher.read()

    def _side_by_side(self, names: Sequence[str]) -> None:
        """Start some servers at once, then measure one after the other: all share this machine's processor, most share
        a card, and a server that starts or computes would slow the one that is measured."""
        with contextlib.ExitStack() as stack:
            for name, found in self._started(names, stack).items():
                if isinstance(found, Running):
                    self.bencher.measure(found)
                else:
                    self.bencher.keep(ServerBench(name, False, problem=str(found)))
                    self.progress.starting(name, f"bench: NOT MEASURED: {found}")

    def _started(self, names: Sequence[str], stack: contextlib.ExitStack) -> dict[str, Running | ServerError]:
        contexts = {name: self.session.running(name, self.progress) for name in names}
        found: dict[str, Running | ServerError] = {}
        with ThreadPoolExecutor(len(names), thread_name_prefix="lossless-start") as pool:
            try:
                futures = {name: pool.submit(context.__enter__) for name, context in contexts.items()}
                for name, future in futures.items():
                    try:
                        server, cards, start_s = future.result()
                    except ServerError as problem:
                        found[name] = problem
                        continue
                    stack.push(contexts[name].__exit__)
                    found[name] = Running(name, server.url, server.api_key, server.check, cards, start_s)
            except BaseException:  # Ctrl-C: end the servers, or the other threads wait for them to start
                self.session.stop()
                raise
        return found


def prepare_bench(options: Options, settings: Settings | None, root: Path, progress: Progress) -> BenchRun:
    """A bench in a new folder under ``root``, or in the newest one that was left unfinished with the same key.

    Raises:
        UsageError: bad input; nothing was started.
        ServerError: a running baseline that should name its tokenizer cannot be reached.
    """
    looking = SuiteSession(options, attempt="", run=root)
    profile = looking.prepared.profile
    tokenizer, _ = open_tokenizer(profile, looking.served_model())
    prompts = [recorded_prompt(p, tokenizer, profile.max_new_tokens) for p in _short(looking.prepared.prompts.prompts)]
    plan = plan_for(profile, tokenizer, prompts, settings)
    key = bench_key(profile, plan, options.fault)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
    folder = unfinished(root, key) or root / f"{stamp}-{profile.name}-{key[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    session = SuiteSession(options, attempt="", run=folder)
    return BenchRun(session, Bencher(folder, profile, plan, key, progress, tokenizer.vocab_size), progress)


def _short(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Without the prompts that are built to a length: the plan has its own."""
    return [prompt for prompt in prompts if prompt.haystack is None]


def unfinished(root: Path, key: str) -> Path | None:
    """The newest folder with this key, if a server is missing in it."""
    for folder in sorted(root.glob("*"), reverse=True) if root.is_dir() else ():
        with contextlib.suppress(UsageError):
            bench = BenchFile(folder).read()
            if bench is not None and bench.key == key:
                return None if bench.complete else folder
    return None
