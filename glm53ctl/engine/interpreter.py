"""Finds a CPython 3.11: the one version for which the CPU engine's wheels exist."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from glm53ctl.engine import pip
from glm53ctl.engine.sources import CHECKOUT
from glm53ctl.errors import UserError

Report = Callable[[str], None]

VERSION = "3.11"
UV_LOCK = CHECKOUT / "lock/uv.txt"
PROBE_SECONDS = 20
FETCH_SECONDS = 600

# Printed by the candidate itself. `ensurepip` is what Debian splits off into python3.11-venv.
PROBE = """
import sys
from importlib.util import find_spec
usable = bool(find_spec("venv") and find_spec("ensurepip"))
print(sys.implementation.name, "%d.%d" % sys.version_info[:2], usable, sys.version.split()[0])
"""


def find(asked: str | None, report: Report) -> Path:
    """Return a usable CPython 3.11, or say how to get one.

    A given interpreter is taken or refused; otherwise PATH is searched, then `uv` is asked.
    """
    if asked is not None:
        return _asked(asked)
    without_venv: list[Path] = []
    for candidate in _on_path():
        usable = _usable(candidate)
        if usable:
            return candidate
        if usable is False:
            without_venv.append(candidate)
    by_uv = _by_uv(report)
    if by_uv is not None:
        return by_uv
    if without_venv:
        raise _no_venv_module(without_venv[0])
    raise UserError(
        "ENGINE_PYTHON",
        f"No Python {VERSION} was found; the CPU engine's packages exist for that version only.",
        f"Install it (Debian 12: `apt install python{VERSION}-venv`; elsewhere "
        f"`uv python install {VERSION}` or pyenv), then run the same command again.",
    )


def _asked(asked: str) -> Path:
    found = shutil.which(asked)
    if found is None:
        raise UserError(
            "ENGINE_PYTHON", f"{asked} is not a program.", f"Name a Python {VERSION} instead."
        )
    usable = _usable(Path(found))
    if usable is None:
        raise UserError(
            "ENGINE_PYTHON",
            f"{asked} is not a CPython {VERSION}.",
            f"Name a Python {VERSION} instead, or leave the choice to the installer.",
        )
    if not usable:
        raise _no_venv_module(Path(found))
    return Path(found)


def _no_venv_module(python: Path) -> UserError:
    return UserError(
        "ENGINE_PYTHON",
        f"{python} cannot make virtual environments: its venv module is not installed.",
        f"Install it (Debian, Ubuntu: `apt install python{VERSION}-venv`), then run this again.",
    )


def _on_path() -> Iterator[Path]:
    for name in (f"python{VERSION}", "python3", "python"):
        found = shutil.which(name)
        if found is not None:
            yield Path(found)
    yield Path(sys.executable)


def _usable(candidate: Path) -> bool | None:
    """Ask the program itself: True, False (no venv module) or None (not a CPython 3.11).

    The file name proves nothing: version managers put a launcher of every name on PATH.
    """
    answer = _output([str(candidate), "-I", "-c", PROBE], PROBE_SECONDS).split()
    if answer[:2] != ["cpython", VERSION]:
        return None
    return answer[2] == "True"


def version_of(python: Path) -> str:
    """Return the full version of a found interpreter ("3.11.7")."""
    answer = _output([str(python), "-I", "-c", PROBE], PROBE_SECONDS).split()
    return answer[-1] if answer else VERSION


def _by_uv(report: Report) -> Path | None:
    """Let `uv` find the interpreter or fetch one."""
    uv = _uv(report)
    if uv is None:
        return None
    find_it = [uv, "python", "find", "--no-project", "--system", VERSION]
    found = _output(find_it, PROBE_SECONDS).strip()
    if not found:
        report(f"fetching Python {VERSION} with uv")
        _output([uv, "python", "install", VERSION], FETCH_SECONDS)
        found = _output(find_it, PROBE_SECONDS).strip()
    python = Path(found)
    return python if found and _usable(python) else None


def _uv(report: Report) -> str | None:
    """Return `uv` from PATH or from our own environment, where it is installed if need be."""
    beside_us = Path(sys.executable).parent
    found = shutil.which("uv") or shutil.which("uv", path=str(beside_us))
    in_virtual_environment = sys.prefix != sys.base_prefix
    if found or not in_virtual_environment or not UV_LOCK.is_file():
        return found
    report(f"no Python {VERSION} here; fetching uv, which can fetch one")
    locked = ("install", "--require-hashes", "--only-binary", ":all:", "-r", str(UV_LOCK))
    try:
        pip.run(Path(sys.executable), locked)
    except pip.PipFailedError:
        return None
    return shutil.which("uv", path=str(beside_us))


def _output(command: list[str], seconds: float) -> str:
    """Return what a program prints, or nothing when it fails in whatever way."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
