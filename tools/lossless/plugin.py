"""The pytest plugin: options, fixtures and the summary. What they do is written elsewhere; here is only the wiring.

Hooks: https://docs.pytest.org/en/stable/reference/reference.html#hooks
"""

import contextlib
import json
import sys
import tomllib
import uuid
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from _pytest.junitxml import xml_key
from rich.console import Console

from lossless.analysis import Analysis
from lossless.bench.file import BenchFile
from lossless.errors import LosslessError, UsageError
from lossless.golden.check import GoldenCheck
from lossless.golden.extension import GoldenExtension
from lossless.golden.fixture import GoldenFixture
from lossless.record.plan import stages
from lossless.report.bench import bench_tables
from lossless.report.junit import run_properties
from lossless.report.progress import RecordingProgress
from lossless.report.summary import golden_lines, known_lines, summary
from lossless.suite.gpu import gpu_name
from lossless.suite.options import OPTIONS, Options, parse_pair
from lossless.suite.session import SuiteSession

WRITTEN, KEPT, REFUSED = "written", "kept", "refused"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ``--lossless-*`` options; each has a twin in [tool.lossless] of pyproject.toml."""
    group = parser.getgroup("lossless", "proving that SGLang's speculative decoding is lossless")
    for option in OPTIONS:
        extra: dict[str, Any] = {"dest": f"lossless_{option.name}", "default": None, "help": option.help}
        if option.kind == "flag":
            extra["action"] = "store_true"
        else:
            extra["metavar"] = option.metavar
            if option.kind == "pairs":
                extra["action"] = "append"
            else:
                extra["type"] = {"int": int, "float": float}.get(option.kind, str)
        group.addoption(option.flag, **extra)


def pytest_configure(config: pytest.Config) -> None:
    """Register markers and the suite; bad options end the command here, before anything is collected."""
    config.addinivalue_line("markers", "lossless: proves that speculation changes nothing but speed (starts servers)")
    config.addinivalue_line("markers", "lossless_groups(*groups): only prompts of these groups")
    config.addinivalue_line("markers", "lossless_stage(name): the requests of this recording stage")
    suite = Suite(config)
    config.pluginmanager.register(suite, "lossless-suite")
    if suite.given or suite.table:
        with _usage_errors():
            _ = suite.session.prepared


@contextlib.contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except UsageError as problem:
        raise pytest.UsageError(str(problem)) from None


class Suite:
    """One pytest process' part in the suite: its session, what it parametrizes, and the summary at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.worker = hasattr(config, "workerinput")
        self.used = False
        self.goldens: Counter[str] = Counter()
        self.refused: list[str] = []
        self.problem: UsageError | None = None

    @cached_property
    def given(self) -> dict[str, Any]:
        """What the command line says, by option name."""
        found = {o.name: getattr(self.config.option, f"lossless_{o.name}", None) for o in OPTIONS}
        if found["variant_url"]:
            with _usage_errors():
                found["variant_url"] = dict(parse_pair(text) for text in found["variant_url"])
        return {name: value for name, value in found.items() if value is not None}

    @cached_property
    def table(self) -> dict[str, Any]:
        """[tool.lossless] of the root folder's pyproject.toml."""
        pyproject = self.config.rootpath / "pyproject.toml"
        if not pyproject.is_file():
            return {}
        found = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("tool", {}).get("lossless", {})
        return dict(found)

    @cached_property
    def session(self) -> SuiteSession:
        with _usage_errors():
            options = Options.merge(self.given, self.table, root=self.config.rootpath)
        given = getattr(self.config, "workerinput", {})
        run = given.get("lossless_run")
        attempt = given.get("lossless_attempt") or uuid.uuid4().hex
        return SuiteSession(options, attempt=attempt, run=Path(run) if run else None)

    # ---------------------------------------------------------------- collecting
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize over variants, servers, prompts and stages, in the order of profile and prompt set."""
        names = set(metafunc.fixturenames)
        if not any(name.startswith("lossless_") for name in names):
            return
        with _usage_errors():
            prepared = self.session.prepared
        prompts = prepared.prompts.prompts
        groups = next((m.args for m in metafunc.definition.iter_markers("lossless_groups")), None)
        if "lossless_variant" in names:
            metafunc.parametrize("lossless_variant", list(prepared.profile.variants))
        if "lossless_server" in names:
            metafunc.parametrize("lossless_server", ["baseline", *prepared.profile.variants])
        if "lossless_prompt" in names:
            ids = [p.id for p in prompts if groups is None or p.group in groups]
            metafunc.parametrize("lossless_prompt", ids)
        if "lossless_step" in names:
            wanted = next(m.args[0] for m in metafunc.definition.iter_markers("lossless_stage"))
            plan = stages(prompts, baseline=False, concurrency=prepared.profile.concurrency)
            steps = [(i.prompt, i.turn) for stage in plan if stage.name == wanted for i in stage.items]
            ids = [f"{prompt}-{turn + 1}" for prompt, turn in steps]
            metafunc.parametrize("lossless_step", steps, ids=ids)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep a variant's tests on one worker under ``--dist loadgroup``."""
        for item in items:
            spec = getattr(item, "callspec", None)
            if spec is not None and "lossless_variant" in spec.params:
                item.add_marker(pytest.mark.xdist_group(f"lossless-{spec.params['lossless_variant']}"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send every xdist worker to the same run folder."""
        with _usage_errors():
            node.workerinput["lossless_run"] = str(self.session.store.path)
        node.workerinput["lossless_attempt"] = self.session.attempt
        self._tell_notices()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """A worker that is going to record makes the run folder: that is how the controller learns of it."""
        uses = any("lossless_run" in getattr(item, "fixturenames", ()) for item in session.items)
        if self.worker and uses and not session.config.option.collectonly:
            self.session.store.path.mkdir(parents=True, exist_ok=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        """The controller holds the run folder before it hands out the first test."""
        if self.session.store.path.is_dir():
            self.session.hold()

    def _tell_notices(self) -> None:
        while self.session.notices:
            print(f"lossless: {self.session.notices.pop(0)}", file=sys.__stderr__ or sys.stderr, flush=True)

    # ------------------------------------------------------------------- running
    @cached_property
    def analysis(self) -> Analysis:
        """Record what is missing and analyze it; once a process."""
        self.used = True
        capture = self.config.pluginmanager.getplugin("capturemanager")
        shown = capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext()
        with shown:
            quiet = self.config.option.verbose < -1
            with RecordingProgress(sys.__stderr__ or sys.stderr, quiet=quiet) as progress:
                if not progress.on_terminal:
                    print(file=sys.__stderr__)
                self.session.hold()
                self._tell_notices()
                analysis = self.session.record(progress)
        check = GoldenCheck(analysis, strict=self.session.options.strict)
        GoldenExtension.folder = self.session.prepared.golden_folder
        GoldenExtension.compare = staticmethod(check.holds)
        return analysis

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """What keeps the run from being recorded at all is told once, not once a test."""
        if self.problem is not None and "lossless_run" in getattr(item, "fixturenames", ()):
            pytest.skip("nothing could be recorded; the first error says why")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what happened to goldens; works for this process and for xdist workers."""
        if report.when != "call":
            return
        for name, value in report.user_properties:
            if name == "lossless_golden":
                outcome, _, prompt = str(value).partition(":")
                self.goldens[outcome] += 1
                if outcome == REFUSED:
                    self.refused.append(prompt)
            if name.startswith("lossless"):
                self.used = True

    def pytest_unconfigure(self) -> None:
        """Give the run folder back."""
        if "session" in self.__dict__:
            self.session.release()

    @pytest.hookimpl(tryfirst=True)  # before the JUnit XML is written
    def pytest_sessionfinish(self) -> None:
        """Leave the evidence as JSON in the run folder, and what it is about in the JUnit XML."""
        if self.worker or not self.used or not self.session.store.exists:
            return
        with contextlib.suppress(LosslessError):
            self._tell_junit(self.session.write_evidence())

    def _tell_junit(self, written: Path) -> None:
        xml = self.config.stash.get(xml_key, None)
        if xml is None:
            return
        data = json.loads(written.read_text(encoding="utf-8"))
        for name, value in run_properties(data, gpu_name() if data["kind"] == "sglang" else None):
            xml.add_global_property(name, value)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Controls, verdicts, acceptance and speed, from what the run folder holds."""
        if self.worker or not self.used or not self.session.store.exists:
            return
        analysis = self.session.analysis
        terminalreporter.section("lossless", sep="=")
        width = terminalreporter._tw.fullwidth
        console = Console(
            file=terminalreporter._tw._file,
            width=max(100, width),
            force_terminal=terminalreporter._tw.hasmarkup,
            color_system="auto" if terminalreporter._tw.hasmarkup else None,
            highlight=False,
        )
        console.print(summary(analysis))
        for line in (*known_lines(analysis), *golden_lines(analysis), *self.golden_outcome()):
            console.print(line, markup=False, soft_wrap=True)
        path = self.session.store.path
        with contextlib.suppress(LosslessError):
            bench = BenchFile(path).read() if self.session.options.bench else None
            if bench is not None:
                console.print(bench_tables(bench))
        with contextlib.suppress(ValueError):
            path = path.relative_to(Path.cwd())
        console.print(
            f"evidence: {path / 'evidence.json'}   again without servers: lossless verify {path}", markup=False
        )

    def golden_outcome(self) -> Iterator[str]:
        """What ``--snapshot-update`` did, in words."""
        if not self.goldens:
            return
        counts = ", ".join(f"{self.goldens[k]} {k}" for k in (WRITTEN, KEPT, REFUSED) if self.goldens[k])
        yield f"goldens in {self.session.prepared.golden_folder}: {counts}; none is ever deleted"
        if self.refused:
            yield f"  not written, because their pair failed: {', '.join(sorted(self.refused))}"


# ---------------------------------------------------------------------- fixtures
@pytest.fixture(scope="session")
def lossless_run(request: pytest.FixtureRequest) -> Analysis:
    """The analyzed run. The first test that asks for it starts the servers and records everything."""
    suite: Suite = request.config.pluginmanager.getplugin("lossless-suite")
    try:
        return suite.analysis
    except UsageError as problem:
        suite.problem = problem
    pytest.fail(str(suite.problem), pytrace=False)


@pytest.fixture
def lossless_golden(request: pytest.FixtureRequest, lossless_run: Analysis, snapshot: Any) -> GoldenFixture:
    """Golden snapshots of the profile in use, guarded: nothing is written that was not proven."""
    suite: Suite = request.config.pluginmanager.getplugin("lossless-suite")
    prepared = suite.session.prepared
    return GoldenFixture(
        check=GoldenCheck(lossless_run, strict=suite.session.options.strict),
        snapshot=snapshot.use_extension(GoldenExtension),
        folder=prepared.golden_folder,
        updating=bool(request.config.option.update_snapshots or request.config.option.update_new_snapshots_only),
        note=lambda text: request.node.user_properties.append(("lossless_golden", text)),
    )


@pytest.fixture(scope="session")
def lossless_strict(request: pytest.FixtureRequest) -> bool:
    """Whether near-ties that do not reconverge fail (``--lossless-strict``)."""
    suite: Suite = request.config.pluginmanager.getplugin("lossless-suite")
    return suite.session.options.strict
