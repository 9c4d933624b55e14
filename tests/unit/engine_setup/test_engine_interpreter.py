"""Which Python the engine gets (the candidates are stand-ins that answer the same question)."""

import os
from pathlib import Path

import pytest

from glm53ctl.engine import interpreter
from glm53ctl.errors import UserError


def python(path: Path, version: str, venv: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho cpython {version} {venv} {version}.9\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leave the search nothing but one folder, and no uv."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin-of-nobody")
    monkeypatch.setattr(interpreter, "UV_LOCK", tmp_path / "none.txt")
    monkeypatch.setattr(interpreter.sys, "executable", str(tmp_path / "own/python"))
    return tmp_path / "bin"


def find(asked: str | None = None) -> Path:
    return interpreter.find(asked, lambda _line: None)


def test_python311_on_the_path_is_taken(folder: Path) -> None:
    wanted = python(folder / "python3.11", "3.11")
    assert find() == wanted


def test_a_plain_python3_of_the_right_version_will_do(folder: Path) -> None:
    wanted = python(folder / "python3", "3.11")
    assert find() == wanted


def test_a_launcher_of_the_right_name_and_another_version_is_passed_over(folder: Path) -> None:
    python(folder / "python3.11", "3.13")
    wanted = python(folder / "python3", "3.11")
    assert find() == wanted


def test_no_python311_says_how_to_get_one(folder: Path) -> None:
    python(folder / "python3", "3.13")
    with pytest.raises(UserError, match=r"No Python 3\.11") as refused:
        find()
    assert refused.value.code == "ENGINE_PYTHON"
    assert "apt install python3.11-venv" in refused.value.fix


def test_a_missing_venv_module_is_named(folder: Path) -> None:
    python(folder / "python3.11", "3.11", venv=False)
    with pytest.raises(UserError, match="venv module is not installed"):
        find()


def test_uv_finds_what_the_path_does_not_have(folder: Path, tmp_path: Path) -> None:
    hidden = python(tmp_path / "hidden/python3.11", "3.11")
    uv = folder / "uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\n[ "$2" = find ] && echo {hidden}\n')
    uv.chmod(0o755)
    assert find() == hidden


def test_an_asked_for_python_is_taken_or_refused(folder: Path, tmp_path: Path) -> None:
    good = python(tmp_path / "good", "3.11")
    assert find(str(good)) == good
    for asked in (str(python(tmp_path / "new", "3.12")), str(tmp_path / "none")):
        with pytest.raises(UserError) as refused:
            find(asked)
        assert refused.value.code == "ENGINE_PYTHON"
