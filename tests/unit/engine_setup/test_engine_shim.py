"""The name tag is a wheel that pip takes, that metadata finds and that pip can remove."""

import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

from glm53ctl.engine import shim
from glm53ctl.engine.check import engine_version


def test_the_version_says_cpu_and_the_wheel_holds_no_code(tmp_path: Path) -> None:
    wheel = shim.build(tmp_path, "0.32.0")
    assert wheel.name == "vllm-0.32.0+cpu-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert all(name.startswith("vllm-0.32.0+cpu.dist-info/") for name in archive.namelist())
        record = archive.read("vllm-0.32.0+cpu.dist-info/RECORD").decode()
        assert {line.split(",")[0] for line in record.splitlines()} == set(archive.namelist())


def test_the_same_tag_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first = shim.build(tmp_path, "0.32.0").read_bytes()
    assert shim.build(tmp_path / "again", "0.32.0").read_bytes() == first


def test_real_pip_installs_and_removes_it(tmp_path: Path) -> None:
    prefix = tmp_path / "venv"
    venv.create(prefix, with_pip=False, symlinks=True)
    target = [sys.executable, "-m", "pip", "--quiet", "--python", str(prefix / "bin/python")]
    wheel = shim.build(tmp_path, "0.32.0")
    quiet = {"check": True, "capture_output": True}
    subprocess.run([*target, "install", "--no-index", "--no-deps", str(wheel)], **quiet)  # type: ignore[call-overload]
    assert engine_version(prefix) == "0.32.0+cpu"
    subprocess.run([*target, "uninstall", "--yes", "vllm"], **quiet)  # type: ignore[call-overload]
    assert engine_version(prefix) is None
    site = next(prefix.glob("lib/python3*/site-packages"))
    assert list(metadata.distributions(name="vllm", path=[str(site)])) == []
