"""A fake OpenAI server: it streams what a test gives it and keeps what it was asked.

There is no model behind it, and it says so: in its Server header and in every event.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAKE = "fake-openai"


def event(**delta: Any) -> dict[str, Any]:
    """Return one event of a stream."""
    return {"system_fingerprint": FAKE, "choices": [{"index": 0, "delta": delta}]}


def stream(*events: Any, end: str = "data: [DONE]\n\n") -> bytes:
    """Return a stream of events as the server writes it; text stands as it is."""
    lines = (one if isinstance(one, str) else f"data: {json.dumps(one)}\n\n" for one in events)
    return ("".join(lines) + end).encode()


@dataclass
class FakeServer:
    """What the server answers next, and the requests it got."""

    port: int
    status: int = 200
    body: Sequence[bytes] = (stream(event(role="assistant", content="")),)
    """Pieces of the body; the connection is cut after the last."""
    promised: int = 0
    """Bytes that the server promises beyond those that it sends."""
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Handler(BaseHTTPRequestHandler):
    server_version = FAKE
    fake: FakeServer

    def log_message(self, *_: object) -> None: ...

    def do_POST(self) -> None:
        fake = self.fake
        fake.paths.append(self.path)
        fake.headers.append({name.lower(): value for name, value in self.headers.items()})
        fake.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(fake.status)
        self.send_header("Content-Length", str(sum(map(len, fake.body)) + fake.promised))
        self.end_headers()
        for piece in fake.body:
            self.wfile.write(piece)
            self.wfile.flush()


@contextmanager
def fake_server() -> Iterator[FakeServer]:
    """Run a server on a free port of the loopback."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.fake = FakeServer(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield handler.fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
