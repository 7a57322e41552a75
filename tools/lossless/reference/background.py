"""A reference server on a thread of this process: real sockets, ready in a tenth of a second. For tests and demos."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lossless.reference.options import parse_options
from lossless.reference.server import Server, build, listen

JOIN_S = 10.0


@contextmanager
def background(options: Sequence[str] = ()) -> Iterator[str]:
    """Serve on a free loopback port while the block runs; yields the server's URL.

    Faults that end the process (``die-at-request``) end this one.

    Args:
        options: a command line without ``--port``.

    Raises:
        UsageError: bad options or model folders.
    """
    listener = listen("127.0.0.1", 0)
    try:
        port = listener.getsockname()[1]
        app, engine = build(parse_options(["--port", str(port), *options]))
        server = Server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="reference-server")
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = server.force_exit = True
            thread.join(JOIN_S)
            engine.stop()
    finally:
        listener.close()
