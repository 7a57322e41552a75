"""Fixtures of the contract tests: ``engine`` is one running server of one engine."""

from collections.abc import Iterator

import pytest
from engines import EMBEDDED, SGLANG, Engine, Fleet, Key, real_sglang


def _key(item: pytest.Item) -> Key | None:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("engine") if callspec is not None else None


def _turn(item: pytest.Item) -> tuple[bool, str]:
    """Embedded servers first, all at hand at once; then one real server after the other."""
    key = _key(item)
    real = key is not None and key[0] == SGLANG
    return (real, key[1] if key is not None and real else "")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the tests of one real server together: pytest groups by a parameter's index, not by its value."""
    places = [at for at, item in enumerate(items) if _key(item) is not None]
    for at, item in zip(places, sorted((items[at] for at in places), key=_turn), strict=True):
        items[at] = item


@pytest.fixture(scope="session")
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    wanted = [key for item in request.session.items if (key := _key(item)) is not None]
    fleet = Fleet(tmp_path_factory.mktemp("servers"), wanted)
    yield fleet
    fleet.close()


@pytest.fixture(scope="session")
def sglang_environment() -> Iterator[None]:
    with real_sglang():
        yield


@pytest.fixture
def engine(request: pytest.FixtureRequest, fleet: Fleet) -> Iterator[Engine]:
    """The server that the test is parametrized with (see `engines.servers_of`)."""
    kind, name = request.param
    if kind == SGLANG:
        request.getfixturevalue("sglang_environment")
    yield fleet.get(kind, name)
    fleet.used(kind, name)


@pytest.fixture
def twin(engine: Engine, fleet: Fleet) -> Engine:
    """The embedded server of the same name."""
    return fleet.get(EMBEDDED, engine.name)
