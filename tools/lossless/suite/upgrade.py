"""Records one profile in two environments, one after the other: before and after an upgrade of SGLang.

The second run re-scores what the first run's baseline said: its outputs are the second run's goldens.
"""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lossless.analysis import Analysis, analyze
from lossless.errors import ServerError, UsageError
from lossless.golden.check import GoldenCheck
from lossless.golden.files import GoldenFile
from lossless.profiles import Profile
from lossless.record.recorder import Progress
from lossless.record.runs import stored_runs
from lossless.record.store import RunStore
from lossless.suite.options import Options
from lossless.suite.prepare import Prepared, prepare
from lossless.suite.session import SuiteSession

PACKAGES = ("sglang", "sgl-kernel", "torch", "triton", "flashinfer-python", "transformers")
ASK_TIMEOUT_S = 60.0
_PYTHON = re.compile(r"(python|pypy)[0-9.]*(\.exe)?", re.IGNORECASE)
_ASK = """
import json, platform, sys
sys.path = [p for p in sys.path if p]
from importlib import metadata
found = {"Python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python that has SGLang. ``packages``: versions of what can change the numbers, ``Python`` among them."""

    python: Path
    packages: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def find(cls, text: str) -> "Environment":
        """The environment of an interpreter, or of a virtual environment's folder. SGLang is not imported.

        Raises:
            UsageError: there is no interpreter, or it does not run.
        """
        python = _interpreter(text)
        try:
            done = subprocess.run(
                [str(python), "-c", _ASK, *PACKAGES],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=ASK_TIMEOUT_S,
                check=True,
            )
            packages = json.loads(done.stdout.strip().splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError) as problem:
            raise UsageError(f"{python} does not run as a Python interpreter: {problem}") from None
        return cls(python, packages)

    def __str__(self) -> str:
        version = self.packages.get("sglang")
        return f"{self.python} ({f'SGLang {version}' if version else 'no SGLang package'})"


@dataclass(frozen=True, slots=True)
class Both:
    """The two recorded runs, and what is installed in the two environments."""

    old: Analysis
    new: Analysis
    packages: tuple[Mapping[str, str], Mapping[str, str]]


def record_both(
    options: Options, old: Environment, new: Environment, progress: Progress, *, attempt: str, tell: Tell = print
) -> Both:
    """Record ``options.profile`` in both environments. With ``options.resume`` ``auto``, what an earlier command
    recorded of the same profile, prompts and package versions is used: a finished run as it is, an unfinished one from
    where it stopped. Servers never outlive this call.

    Raises:
        UsageError: the profile starts no interpreter, an environment lacks SGLang, or any other bad input.
        ServerError: the old baseline gave no answer, so there is nothing to compare with.
    """
    # Goldens on disk have no part in it: having written them must not make a second command record again.
    prepared = prepare(replace(options, golden=options.runs / "no-goldens"))
    _check(prepared.profile, old, new)
    before = _record("old", _for(prepared, old, None), old, progress, attempt, tell)
    if not before.baseline.answers:
        raise ServerError(
            f"the old baseline gave no answer: {before.baseline.problem or 'no request was sent'}",
            hint="mend the cause and run the same command: what was recorded is kept",
        )
    check = GoldenCheck(before)
    said = {p: golden for p in before.prompts if (golden := check.candidate(p)) is not None}
    after = _record("new", _for(prepared, new, said), new, progress, attempt, tell)
    return Both(before, after, (_shown(old), _shown(new)))


def with_interpreter(profile: Profile, python: Path) -> Profile:
    """The profile with another interpreter in front of its command.

    Raises:
        UsageError: the profile attaches to running servers, or its command starts something else than a Python.
    """
    if profile.kind == "attach":
        raise UsageError(
            f"profile {profile.name!r} attaches to running servers, so no environment can be chosen for them",
            hint="record both yourself, then: lossless upgrade OLD_RUN NEW_RUN",
        )
    if not _PYTHON.fullmatch(Path(profile.command[0]).name):
        raise UsageError(
            f"the command of profile {profile.name!r} starts {profile.command[0]!r}, not a Python interpreter, so no "
            "environment can be put in its place",
            hint="record with two profiles, then: lossless upgrade OLD_RUN NEW_RUN",
        )
    return replace(profile, command=(str(python), *profile.command[1:]))


def _interpreter(text: str) -> Path:
    path = Path(text).expanduser()
    if path.is_dir():
        for inside in (path / "bin" / "python", path / "Scripts" / "python.exe"):
            if inside.is_file():
                return inside.absolute()
        raise UsageError(
            f"{text!r} is no virtual environment: it has no bin/python", hint="give its folder or a Python interpreter"
        )
    if path.is_file():
        return path.absolute()
    named = shutil.which(text) if len(path.parts) == 1 else None
    if named is None:
        raise UsageError(f"there is no {text!r}", hint="give a Python interpreter, or a virtual environment's folder")
    return Path(named).absolute()


def _check(profile: Profile, old: Environment, new: Environment) -> None:
    if profile.kind == "sglang":
        for environment in (old, new):
            if "sglang" not in environment.packages:
                raise UsageError(
                    f"{environment.python} has no SGLang", hint=f"{environment.python} -m pip install sglang"
                )
    if old.python == new.python:
        raise UsageError(
            f"{old.python} was given twice",
            hint="to upgrade one environment in place: record a run, upgrade, record another, then compare the two",
        )


def _for(prepared: Prepared, environment: Environment, said: Mapping[str, GoldenFile] | None) -> Prepared:
    """What is recorded in one environment. The key tells environments apart by path and by what is installed."""
    content = [
        prepared.key,
        str(environment.python),
        dict(environment.packages),
        None if said is None else {p: list(g.golden.ids) for p, g in said.items()},
    ]
    return replace(
        prepared,
        profile=with_interpreter(prepared.profile, environment.python),
        goldens=dict(said or {}),
        key=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
    )


def _record(
    name: str, prepared: Prepared, environment: Environment, progress: Progress, attempt: str, tell: Tell
) -> Analysis:
    options = prepared.options
    kept = _finished(options.runs, prepared.key) if options.resume == "auto" else None
    if kept is not None:
        tell(f"{name}: {environment}: recorded already, {kept.path.name} (--fresh records it again)")
        return analyze(kept, epsilon=options.epsilon)
    tell(f"{name}: {environment}")
    session = SuiteSession(options, attempt=attempt)
    session.prepared = prepared
    try:
        session.hold()
        for notice in session.notices:
            tell(notice)
        return session.record(progress)
    finally:
        session.release()


def _finished(root: Path, key: str) -> RunStore | None:
    for store in stored_runs(root):
        try:
            if store.manifest.key == key:
                return store if store.complete else None
        except UsageError:
            continue  # a damaged folder is no candidate
    return None


def _shown(environment: Environment) -> dict[str, str]:
    packages = {name: version for name, version in environment.packages.items() if name != "sglang"}
    return {"interpreter": str(environment.python), **packages}
