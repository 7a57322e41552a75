"""Ports: free, apart, and not handed out twice."""

import socket
import subprocess
import sys
from itertools import pairwise

import pytest

from lossless.errors import ServerError
from lossless.servers import ports
from lossless.servers.argv import own_python_path


def test_leased_ports_are_apart() -> None:
    leases = [ports.lease_port() for _ in range(5)]
    try:
        numbers = sorted(lease.port for lease in leases)
        assert all(b - a >= ports.APART for a, b in pairwise(numbers))
    finally:
        for lease in leases:
            lease.release()
            lease.release()


def test_another_process_does_not_get_a_leased_port(monkeypatch: pytest.MonkeyPatch) -> None:
    lease = ports.lease_port()
    try:
        script = (
            "from lossless.servers import ports\n"
            f"ports.FIRST = ports.LAST = {lease.port}\n"
            "try: print(ports.lease_port().port)\n"
            "except Exception as problem: print(type(problem).__name__)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env={"PYTHONPATH": own_python_path({})}
        )
        assert done.stdout.strip() == "ServerError"
        monkeypatch.setattr(ports, "FIRST", lease.port)
        monkeypatch.setattr(ports, "LAST", lease.port)
    finally:
        lease.release()
    again = ports.lease_port()
    assert again.port == lease.port
    again.release()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_in_use_is_not_leased(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    with socket.create_server((host, 0)) as used:
        port = used.getsockname()[1]
        assert not ports.is_free(port)
        monkeypatch.setattr(ports, "FIRST", port)
        monkeypatch.setattr(ports, "LAST", port)
        with pytest.raises(ServerError, match="no free port"):
            ports.lease_port()
