"""What an answer to the probe's question says of the pair; the server is a stand-in."""

import asyncio
import http.server
import threading
from collections.abc import Iterator

import pytest
from looks import report

from glm53ctl.config.schema import Config
from glm53ctl.watchdog.probe import probe
from glm53ctl.watchdog.rules import Probe


class Refusing(http.server.BaseHTTPRequestHandler):
    status = 503
    retry_after: str | None = None

    def do_GET(self) -> None:
        self.send_response(self.status)
        if self.retry_after:
            self.send_header("Retry-After", self.retry_after)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "retry_after", "verdict"),
    [
        (503, None, Probe.BAD),  # vLLM's, once its engine is dead
        (503, "30", Probe.UNCLEAR),  # the overlay's, at the watchdog's own word
        (429, "5", Probe.UNCLEAR),
        (401, None, Probe.UNCLEAR),
        (500, None, Probe.BAD),
    ],
)
def test_a_refusal_is_no_fault_of_the_engine(
    port: int,
    status: int,
    retry_after: str | None,
    verdict: Probe,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Refusing, "status", status)
    monkeypatch.setattr(Refusing, "retry_after", retry_after)
    config = Config.model_validate(
        {"nodes": [{"name": "a", "address": "127.0.0.1"}], "api": {"port": port}}
    )
    assert asyncio.run(probe(config, report())).verdict is verdict
