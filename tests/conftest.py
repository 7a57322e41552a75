"""Fixtures for all tests of the tool itself."""

import signal
import threading

import pytest

pytest_plugins = ["pytester"]

# A shell's background job ignores Ctrl-C, and so would everything that tests start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under ``--dist loadgroup`` a file stays on one worker: its servers and recordings are shared by its tests."""
    for item in items:
        if item.get_closest_marker("lossless") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
