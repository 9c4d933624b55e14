"""The socket that systemd makes: each connection is the input and output of a new process."""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from glm53ctl.watchdog import _bus_agent

AGENT = _bus_agent.__file__


@contextlib.contextmanager
def served(
    path: Path, argv: list[str], environ: Mapping[str, str], patience: float | None = 120
) -> Iterator[list[int]]:
    """Serve `path` with processes of `argv`, as Accept=yes does; yield their pids.

    A connection that is still there after `patience` seconds is a mistake.
    """
    pids: list[int] = []
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    process = subprocess.Popen(
                        argv, stdin=connection, stdout=connection, env=dict(environ)
                    )
                pids.append(process.pid)
                process.wait(patience)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield pids
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(30)
        assert not thread.is_alive(), "the agent outlived its connection"
