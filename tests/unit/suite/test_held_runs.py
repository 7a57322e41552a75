"""A run that a command is recording belongs to it: another command starts a new one, until the first is gone."""

import signal
from pathlib import Path

import pytest
from holding import holder

from lossless.errors import UsageError
from lossless.suite.options import Options
from lossless.suite.session import SuiteSession, in_use

WAIT_S = 60.0

HOLDER = """
import sys
from pathlib import Path
from lossless.suite.options import Options
from lossless.suite.session import SuiteSession
session = SuiteSession(Options(prompts="quick", golden=Path("none"), runs=Path(sys.argv[1])), attempt="other")
session.hold()
session._create(session.store)
print(session.store.path, flush=True)
sys.stdin.read()
"""


def session(runs: Path, **options: str) -> SuiteSession:
    return SuiteSession(Options(prompts="quick", golden=runs / "none", runs=runs, **options), attempt="one")  # type: ignore[arg-type]


def unfinished(runs: Path) -> SuiteSession:
    """A session that holds a new run with nothing recorded."""
    found = session(runs)
    found.hold()
    found._create(found.store)
    return found


def test_a_held_run_is_not_resumed_and_one_line_says_so(tmp_path: Path) -> None:
    first = unfinished(tmp_path)
    assert in_use(first.store.path)
    second = session(tmp_path)
    assert second.store.path != first.store.path
    assert second.notices == [
        f"run {first.store.path.name} is unfinished and another command is recording it: starting a new run"
    ]
    second.hold()
    assert in_use(second.store.path)
    first.release()
    second.release()


def test_a_run_that_was_given_back_is_resumed_and_held_at_once(tmp_path: Path) -> None:
    first = unfinished(tmp_path)
    first.release()
    assert not in_use(first.store.path)
    second = session(tmp_path)
    assert second.store.path == first.store.path
    assert second.notices == []
    assert in_use(first.store.path), "held from the moment it was chosen"
    third = session(tmp_path)
    assert third.store.path != first.store.path
    second.release()


def test_a_killed_holder_frees_its_run(tmp_path: Path) -> None:
    with holder(HOLDER, tmp_path) as (process, printed):
        path = Path(printed.readline().strip())
        assert in_use(path)
        assert session(tmp_path).store.path != path
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_S)
        again = session(tmp_path)
        assert again.store.path == path
        again.release()


def test_a_worker_takes_the_folder_it_is_told_and_does_not_hold_it(tmp_path: Path) -> None:
    first = unfinished(tmp_path)
    path = first.store.path
    first.release()
    worker = SuiteSession(first.options, attempt="one", run=path)
    worker.hold()
    assert worker.store.path == path
    assert not in_use(path)


def test_judging_a_recorded_run_again_holds_nothing(tmp_path: Path) -> None:
    first = unfinished(tmp_path)
    reader = session(tmp_path, resume="latest")
    reader.hold()
    assert reader.store.path == first.store.path
    first.release()
    assert not in_use(first.store.path)


def test_never_starts_a_new_run_beside_an_unfinished_one(tmp_path: Path) -> None:
    first = unfinished(tmp_path)
    first.release()
    second = session(tmp_path, resume="never")
    assert second.store.path != first.store.path
    assert second.notices == []


def test_a_folder_somebody_took_first_is_a_usage_error(tmp_path: Path) -> None:
    late = session(tmp_path)
    late.store.path.mkdir(parents=True)
    first = SuiteSession(late.options, attempt="one")
    first.store = late.store
    first.hold()
    with pytest.raises(UsageError, match="was taken by another command"):
        late.hold()
    first.release()
