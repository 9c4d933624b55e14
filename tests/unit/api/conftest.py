"""A fake server for each test, and a port on which nobody listens."""

import socket
from collections.abc import Iterator

import pytest
from fake_openai import FakeServer, fake_server


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as running:
        yield running


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken, so that nobody else gets it, and refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
