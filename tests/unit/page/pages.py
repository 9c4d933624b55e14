"""The page's application and its server as the tests of this folder use them."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from page.views import CONFIG, ready
from starlette.testclient import TestClient
from waiting import wait_for

from glm53ctl.config.schema import Config
from glm53ctl.page.app import make_app
from glm53ctl.page.serve import PageServer
from glm53ctl.page.stream import Stream
from glm53ctl.view.model import PairView

HOST = "127.0.0.1"
Source = Callable[[], PairView]


def client(source: Source = ready, host: str = HOST) -> TestClient:
    return TestClient(make_app(Stream(source), {HOST, "[::1]", "spark-head"}), f"http://{host}")


def config(**page: Any) -> Config:
    return CONFIG.model_copy(
        update={"page": CONFIG.page.model_copy(update={"port": free_port(), **page})}
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(source: Source = ready, **page: Any) -> Iterator[PageServer]:
    """Serve for real, on a port of this host."""
    made = PageServer(config(**page), source)
    made.start()
    try:
        wait_for(made.bound.is_set, "the page's first try to bind")
        yield made
    finally:
        made.stop()
        # It waits a moment only, and a busy machine may need another.
        wait_for(lambda: "page" not in {t.name for t in threading.enumerate()}, "its thread to end")
