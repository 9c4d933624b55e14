"""The head's side of a sync: verified files in ranges, over the fabric, to whoever has the token.

HTTP of the standard library with sendfile and not an rsync daemon: one protocol for Hub and head,
so that the worker's receiver, its resuming and its proofs are the same; the kernel moves the bytes
(rsync reads and hashes them in user space on both sides); and the pair token is the only account.
"""

import contextlib
import hashlib
import hmac
import http.server
import json
import os
import re
import select
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from glm53ctl.weights.layout import WeightSet
from glm53ctl.weights.manifest import read_lock
from glm53ctl.weights.record import change, read_record

WINDOW_BYTES = 8 << 20
"""Sent, and dropped from the page cache, at a time."""
IDLE_SECONDS = 60
CLOSE_SECONDS = 5
SIGNATURE = "X-GLM53-Signature"

_IP_FREEBIND = 15  # linux/in.h; lets the head listen before the cable gives it its address
_RANGE = re.compile(r"bytes=(\d+)-")


def key_of(token: bytes) -> str:
    """Return what opens the server. Made from the pair token, which itself never travels."""
    return hmac.new(token, b"glm53 weights read", hashlib.sha256).hexdigest()


def sign(token: bytes, body: bytes) -> str:
    """Return the proof that a manifest comes from somebody with the pair token."""
    return hmac.new(token, b"glm53 weights manifest\0" + body, hashlib.sha256).hexdigest()


class WeightServer(http.server.ThreadingHTTPServer):
    """Serves the sets that `sets` returns, as far as they are verified at that moment.

    `GET /ROLE` gives the manifest and the names of the files that are ready;
    `GET /ROLE/COMMIT/NAME` a file, from the start of a range on.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self, address: tuple[str, int], token: bytes, sets: Callable[[], tuple[WeightSet, ...]]
    ) -> None:
        self.token, self.sets = token, sets
        self.authorization = f"Bearer {key_of(token)}"
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind, whether or not the address is there yet; without asking DNS for names."""
        self.socket.setsockopt(socket.SOL_IP, _IP_FREEBIND, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def start(self) -> None:
        """Serve in the background."""
        threading.Thread(target=self.serve_forever, name="weights", daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away: it comes back and goes on."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "glm53ctl"
    sys_version = ""
    timeout = IDLE_SECONDS
    server: WeightServer

    def log_message(self, *_: object) -> None:
        """Say nothing: requests are no news."""

    def do_GET(self) -> None:
        if not hmac.compare_digest(
            self.headers.get("Authorization", "").encode(), self.server.authorization.encode()
        ):
            self._refuse(HTTPStatus.UNAUTHORIZED)
            return
        role, _, rest = self.path.lstrip("/").partition("/")
        for weight_set in self.server.sets():
            if weight_set.role == role:
                if rest:
                    self._file(weight_set, rest)
                else:
                    self._manifest(weight_set)
                return
        self._refuse(HTTPStatus.NOT_FOUND)

    def _refuse(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _manifest(self, weight_set: WeightSet) -> None:
        manifest = read_lock(weight_set.lock_file, weight_set.revision)
        if manifest is None:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        ready = [e.path for e in manifest.files if _ready(weight_set, e.path) is not None]
        body = json.dumps(
            {"manifest": manifest.model_dump(exclude_none=True), "ready": ready}
        ).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(body)))
        self.send_header(SIGNATURE, sign(self.server.token, body))
        self.end_headers()
        self.wfile.write(body)

    def _file(self, weight_set: WeightSet, rest: str) -> None:
        commit, _, name = rest.partition("/")
        path = _ready(weight_set, name) if commit == weight_set.revision else None
        if path is None:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            asked = _RANGE.fullmatch(self.headers.get("Range", ""))
            start = int(asked[1]) if asked else 0
            if asked and start >= size:
                self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
                return
            self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
            self.send_header("Content-Length", str(size - start))
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            self.end_headers()
            self.wfile.flush()
            self._send(file.fileno(), start, size)

    def _send(self, fd: int, offset: int, size: int) -> None:
        """Let the kernel move the bytes, and drop its copies of them."""
        os.posix_fadvise(fd, offset, 0, os.POSIX_FADV_SEQUENTIAL)
        with contextlib.suppress(ConnectionError, TimeoutError):
            start = offset
            while offset < size:
                try:
                    sent = os.sendfile(
                        self.connection.fileno(), fd, offset, min(WINDOW_BYTES, size - offset)
                    )
                except BlockingIOError:
                    self._wait_writable()
                    continue
                if not sent:  # the file shrank under us
                    raise ConnectionAbortedError
                offset += sent
                # All of it each time: pages that the socket still holds cannot be dropped yet.
                os.posix_fadvise(fd, start, offset - start, os.POSIX_FADV_DONTNEED)
            self._wait_closed()
            os.posix_fadvise(fd, start, 0, os.POSIX_FADV_DONTNEED)
        self.close_connection = True

    def _wait_writable(self) -> None:
        """Wait for room in the socket; a socket with a timeout does not block by itself."""
        poll = select.poll()
        poll.register(self.connection, select.POLLOUT)
        if not poll.poll(IDLE_SECONDS * 1000):
            raise TimeoutError

    def _wait_closed(self) -> None:
        """Wait until the peer has read everything: then no socket holds pages of the file."""
        self.connection.shutdown(socket.SHUT_WR)
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        poll.poll(CLOSE_SECONDS * 1000)


def _ready(weight_set: WeightSet, name: str) -> Path | None:
    """Return the file when it is verified and unchanged since."""
    record = read_record(weight_set.record_file)
    state = record.files.get(name) if record else None
    path = weight_set.directory / name
    return path if state is not None and change(path, state) is None else None
