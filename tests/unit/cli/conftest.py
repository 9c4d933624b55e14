"""The command line in this process, in an environment of its own."""

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from glm53ctl import cli

FOREIGN = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "CREDENTIALS_DIRECTORY")


class Said(NamedTuple):
    """What one command said, and how it ended."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("GLM53") or name in FOREIGN:
            monkeypatch.delenv(name)
    for console in (cli.out(), cli.err()):  # they looked at FORCE_COLOR when they were made
        monkeypatch.setattr(console, "_force_terminal", None)
        monkeypatch.setattr(console, "_color_system", None)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run `glm53ctl` with these words."""

    def command(*words: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["glm53ctl", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, *capfd.readouterr())

    return command


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that nobody else gets; a server could listen there, and nobody does."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections."""
    with reserved_port() as port:
        yield port


@pytest.fixture
def settings(tmp_path: Path, closed_port: int) -> Iterator[dict[str, Any]]:
    """The settings of a demo that never runs: its engine says yes to every command line."""
    python = tmp_path / "engine/bin/python3"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho \'{"version": "0.0.fake", "values": {}}\'\n')
    python.chmod(0o755)
    (python.parent / "vllm").touch()
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    with reserved_port() as master_port:
        yield {
            "profile": "demo",
            "api": {"port": closed_port},
            "fabric": {"master_port": master_port},
            "engine": {"prefix": str(tmp_path / "engine")},
            "weights": {"model_dir": str(tmp_path / "model")},
            "memory": {"start_gib": 0.02, "floor_gib": 0.01},
            "paths": {"state_dir": str(tmp_path / "state"), "run_dir": str(tmp_path / "run")},
        }


@pytest.fixture
def config(tmp_path: Path, settings: dict[str, Any]) -> Path:
    """The file with these settings."""
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(settings, indent=1))
    return path
