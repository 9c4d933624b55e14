"""A world in which nothing is fetched: pip and `venv` are replaced at their edges."""

from pathlib import Path

import pytest
from engine_world import LOCK, FakePip

from glm53ctl.engine import build, pip, sources
from glm53ctl.engine.sources import Sources


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    checkout = tmp_path / "checkout"
    (checkout / "lock").mkdir(parents=True)
    (checkout / "lock/engine-cpu.txt").write_text(LOCK)
    (checkout / "overlay/glm53_overlay").mkdir(parents=True)
    (checkout / "overlay/pyproject.toml").write_text("[project]\n")
    (checkout / "overlay/glm53_overlay/__init__.py").write_text("")
    of_here = sources.of_checkout(checkout)
    monkeypatch.setattr(sources, "of_checkout", lambda: of_here)
    return of_here


@pytest.fixture
def fake_pip(monkeypatch: pytest.MonkeyPatch) -> FakePip:
    fake = FakePip()
    monkeypatch.setattr(pip, "run", fake.run)
    monkeypatch.setattr(build, "prepare", lambda _python, _report: Path("/usr/bin/python3.11"))
    monkeypatch.setattr(build, "_require_space", lambda _prefix: None)

    def make_environment(_base: Path, prefix: Path) -> None:
        (prefix / "bin").mkdir()
        (prefix / "bin/python").touch()

    monkeypatch.setattr(build, "_make_environment", make_environment)
    return fake
