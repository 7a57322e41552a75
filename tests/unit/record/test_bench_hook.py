"""When a recorder measures a server: after its last answer, while it is up, and once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fake_server import World, make_recorder, make_store


def measured_after(world: World, store: Any, name: str, missing: set[str], attempt: str = "1") -> list[tuple[str, str]]:
    """Records one server; what the world saw of it, with the measuring in its place."""

    def measure(server: Any, cards: tuple[str, ...], start_s: float) -> None:
        assert not server.dead
        assert start_s >= 0
        world.log.append((server.name, f"measure on {','.join(cards)}"))
        missing.discard(server.name)

    recorder = make_recorder(store, world, attempt)
    begin = len(world.log)
    replace(recorder, unmeasured=missing.__contains__, measure=measure).record(name)
    return world.log[begin:]


def test_a_server_is_measured_after_its_answers_and_before_it_is_stopped(tmp_path: Path) -> None:
    log = [what for _, what in measured_after(World(), make_store(tmp_path), "nextn", {"nextn"})]
    at = log.index("measure on 0")
    assert not [what for what in log[at + 1 :] if what.startswith(("ask", "lp", "score", "flush", "batch", "warm"))]
    assert [what for what in log[:at] if what.startswith("ask")]
    assert log[-1] == "release"
    assert log.count("measure on 0") == 1


def test_a_finished_server_that_is_still_to_be_measured_is_asked_nothing_else(tmp_path: Path) -> None:
    world, store = World(), make_store(tmp_path)
    measured_after(world, store, "nextn", set())
    answers = store.answers("nextn")
    log = [what for _, what in measured_after(world, store, "nextn", {"nextn"}, "2")]
    assert "measure on 0" in log
    assert not [what for what in log if what.startswith(("ask", "lp", "score"))]
    assert store.answers("nextn") == answers


def test_a_measured_server_is_not_started_again(tmp_path: Path) -> None:
    world, store = World(), make_store(tmp_path)
    measured_after(world, store, "nextn", {"nextn"})
    assert measured_after(world, store, "nextn", set(), "2") == []


def test_a_server_whose_answers_are_not_complete_is_not_measured(tmp_path: Path) -> None:
    world = World(dies_at={"nextn": 2})
    log = measured_after(world, make_store(tmp_path), "nextn", {"nextn"})
    assert ("nextn", "measure on 0") not in log
