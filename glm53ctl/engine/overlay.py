"""Asks the overlay in an engine to check itself, in the engine's own Python."""

import subprocess
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from glm53ctl.errors import UserError

DEADLINE_SECONDS = 600.0
"""Importing vLLM and building a GPU's kernels take most of it; the checks take seconds."""


class OverlayCheck(BaseModel):
    """One thing that the overlay looked at."""

    model_config = ConfigDict(frozen=True)

    name: str
    ok: bool
    detail: str


class OverlayReport(BaseModel):
    """All of it."""

    model_config = ConfigDict(frozen=True)

    checks: tuple[OverlayCheck, ...]


def command(prefix: Path, *, dense: bool = False, device: str | None = None) -> list[str]:
    """Return what makes the overlay of the engine at `prefix` check itself.

    Without a `device` it takes the GPU if there is one, which proves nothing of one that is ill.
    """
    words = [str(prefix / "bin/python"), "-I", "-m", "glm53_overlay.verify"]
    words += ["--device", device] if device else []
    return [*words, "--dense"] if dense else words


def verify(
    prefix: Path, *, dense: bool = False, deadline: float = DEADLINE_SECONDS
) -> OverlayReport:
    """Return what the overlay of the engine at `prefix` found: versions, contract, kernels.

    `dense` adds the error that each type of the dense projections makes in a small model's logits.

    Raises UserError OVERLAY_UNKNOWN when it gave no report at all. A report may hold failures.
    """
    try:
        done = subprocess.run(
            command(prefix, dense=dense),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline,
            check=False,
        )
    except OSError as error:
        raise silent(prefix, error.strerror or str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise silent(prefix, f"no answer within {deadline:g} s") from error
    return read_report(prefix, done.stdout, done.stderr, done.returncode)


def read_report(prefix: Path, stdout: str, stderr: str, status: int) -> OverlayReport:
    """Read what `command` printed. Raises UserError OVERLAY_UNKNOWN when that is no report."""
    try:
        return OverlayReport.model_validate_json(stdout.strip().rpartition("\n")[2])
    except ValidationError as error:
        last = [line for line in stderr.splitlines() if line.strip()][-1:]
        raise silent(
            prefix, last[0].strip() if last else f"it ended with status {status}"
        ) from error


def silent(prefix: Path, why: str) -> UserError:
    """Return the error of an overlay that gave no report."""
    return UserError(
        "OVERLAY_UNKNOWN",
        f"The overlay of {prefix / 'bin/python'} could not check itself: {why}.",
        "See `glm53ctl engine check`, or install the engine again.",
    )
