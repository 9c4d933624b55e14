"""Fixtures of the weights' tests."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub import Hub, serving
from weight_world import COMMIT, MIRROR, ORIGIN, ORIGIN_COMMIT, World, make_repo


@pytest.fixture(autouse=True)
def no_proxy_and_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("GLM53", "HF_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The fake Hub, with a mirror and an origin of the same bytes."""
    repo = make_repo()
    content = Hub({(MIRROR, COMMIT): dict(repo), (ORIGIN, ORIGIN_COMMIT): dict(repo)})
    with serving(content):
        monkeypatch.setenv("HF_ENDPOINT", content.url)
        yield content


@pytest.fixture
def world(tmp_path: Path, hub: Hub) -> World:
    """A node with nothing on it."""
    return World(tmp_path, hub)


@pytest.fixture
def open_world(hub: Hub) -> Iterator[World]:
    """A node that other users can reach: tmp_path is closed to them."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o711)
        yield World(Path(place), hub)
