"""Whole and half-made engines are told apart at every point of an installation."""

from pathlib import Path

import pytest

from glm53ctl.engine import sources, stamp
from glm53ctl.engine.sources import Sources
from glm53ctl.errors import UserError


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    (tmp_path / "engine/bin").mkdir(parents=True)
    (tmp_path / "engine/bin/python").touch()
    return tmp_path / "engine"


@pytest.fixture
def whole(prefix: Path, origin: Sources) -> stamp.Stamp:
    wanted = stamp.wanted(prefix, origin)
    stamp.begin(prefix)
    stamp.finish(prefix, wanted)
    return wanted


def test_a_finished_engine_has_its_stamp(prefix: Path, whole: stamp.Stamp) -> None:
    assert stamp.read(prefix) == whole


def test_a_begun_change_takes_the_stamp_away(prefix: Path, whole: stamp.Stamp) -> None:
    stamp.begin(prefix)
    assert stamp.read(prefix) is None


def test_a_kill_between_stamp_and_mark_leaves_no_engine(prefix: Path, whole: stamp.Stamp) -> None:
    (prefix / stamp.INCOMPLETE).touch()
    assert stamp.read(prefix) is None


def test_a_removed_interpreter_leaves_no_engine(prefix: Path, whole: stamp.Stamp) -> None:
    (prefix / "bin/python").unlink()
    (prefix / "bin/python").symlink_to("/nonexistent/python3.11")
    assert stamp.read(prefix) is None


@pytest.mark.parametrize("content", ["", "{}", "not json"])
def test_an_unreadable_stamp_is_none(prefix: Path, whole: stamp.Stamp, content: str) -> None:
    (prefix / stamp.STAMP).write_text(content)
    assert stamp.read(prefix) is None


def test_only_sources_count_for_the_overlay_digest(origin: Sources) -> None:
    before = origin.overlay_digest()
    for leftover in ("build/lib/x.py", "glm53_overlay/__pycache__/x.pyc", "a.egg-info/PKG-INFO"):
        path = origin.overlay / leftover
        path.parent.mkdir(parents=True)
        path.touch()
    assert origin.overlay_digest() == before
    (origin.overlay / "glm53_overlay/new.py").touch()
    assert origin.overlay_digest() != before


def test_outside_a_checkout_there_is_nothing_to_build_from(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        sources.of_checkout(tmp_path)
    assert refused.value.code == "ENGINE_SOURCES"
