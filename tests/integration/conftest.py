"""Fixtures of the integration tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_suite import SmallSuite, make_suite


@pytest.fixture
def small_suite(tmp_path: Path) -> Iterator[SmallSuite]:
    yield from make_suite(tmp_path)


@pytest.fixture(scope="module")
def recorded_suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallSuite]:
    """A small suite that was recorded once; its goldens were then written from that very run, without a server."""
    for suite in make_suite(tmp_path_factory.mktemp("recorded")):
        suite.first = suite.run()
        assert suite.first.status == 0, suite.first.output
        outcome = suite.run("--snapshot-update", "--lossless-resume", "latest")
        assert outcome.status == 0, outcome.output
        yield suite
