"""pip's own words are kept, and settings that would lead it astray are not passed on."""

import os
from pathlib import Path

import pytest

from glm53ctl.engine import pip


@pytest.fixture
def python(tmp_path: Path) -> Path:
    program = tmp_path / "python"
    program.write_text(
        "#!/bin/sh\n"
        'echo "target=$PIP_TARGET links=$PIP_FIND_LINKS"\n'
        'echo "$@"\n'
        '[ "$4" != fail ] || { echo "ERROR: no such thing" >&2; echo "a hint"; exit 1; }\n'
    )
    program.chmod(0o755)
    return program


def test_lines_come_as_they_are_said(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    lines: list[str] = []
    pip.run(python, ("install", "x"), lines.append)
    assert lines == ["target= links=/wheels", "-I -m pip install x"]
    assert os.environ["PIP_TARGET"] == "/elsewhere"


def test_a_failure_carries_the_last_error(python: Path) -> None:
    with pytest.raises(pip.PipFailedError) as failed:
        pip.run(python, ("fail",))
    assert failed.value.reason() == "ERROR: no such thing"
