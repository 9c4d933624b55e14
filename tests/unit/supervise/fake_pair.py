"""A fake of the pair's API for the canary: it answers what a test gives it, and says it is a fake.

No model, no engine: `Server: fake-pair` stands on every answer.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JSON = dict[str, Any]


@dataclass
class FakePair:
    """What the pair answers, and what it was asked."""

    url: str
    answer: str | None = "OK."
    models: tuple[str, ...] = ("glm",)
    drafts: tuple[int, int] = (0, 0)
    """Tokens drafted and accepted in each completion."""
    fails: dict[str, int] = field(default_factory=dict)
    """HTTP status by path, where it is not 200."""
    later: int = 0
    """How many questions are put off first, with 503 and Retry-After."""
    bodies: dict[str, bytes] = field(default_factory=dict)
    """Body by path, where it is not the usual one."""
    hangs: frozenset[str] = frozenset()
    """Paths that get no answer."""
    asked: list[str] = field(default_factory=list)
    questions: list[JSON] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def usual(self, path: str) -> bytes:
        """Return the body of a path."""
        if path == "/v1/models":
            return _json({"data": [{"id": name} for name in self.models]})
        if path == "/v1/chat/completions":
            return _json({"choices": [{"message": {"content": self.answer}}]})
        if path == "/metrics":
            drafted, accepted = (len(self.questions) * tokens for tokens in self.drafts)
            return (
                f"vllm:spec_decode_num_draft_tokens_total {drafted}\n"
                f"vllm:spec_decode_num_accepted_tokens_total {accepted}\n"
            ).encode()
        return _json({"server_load": 0})


def _json(value: JSON) -> bytes:
    return json.dumps(value).encode()


class _Handler(BaseHTTPRequestHandler):
    server_version = "fake-pair"
    fake: FakePair

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self._reply(lambda: None)

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._reply(lambda: self.fake.questions.append(question))

    def _reply(self, note: Callable[[], None]) -> None:
        fake, path = self.fake, self.path
        fake.asked.append(path)
        fake.headers.append({name.lower(): value for name, value in self.headers.items()})
        note()
        if path in fake.hangs:
            fake.over.wait()
            return
        body = fake.bodies.get(path, fake.usual(path))
        if self.command == "POST" and len(fake.questions) <= fake.later:
            self.send_response(503)
            self.send_header("Retry-After", "0")
        else:
            self.send_response(fake.fails.get(path, 200))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def fake_pair(late_seconds: float = 0.0) -> Iterator[FakePair]:
    """Run a fake on a free port of the loopback, on which it listens after so long."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler, bind_and_activate=False)
    server.daemon_threads = True
    server.server_bind()
    handler.fake = FakePair(f"http://127.0.0.1:{server.server_address[1]}")

    if not late_seconds:
        server.server_activate()

    def serve() -> None:
        if late_seconds:
            time.sleep(late_seconds)
            server.server_activate()
        server.serve_forever(0.01)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield handler.fake
    finally:
        handler.fake.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
