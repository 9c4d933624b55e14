"""What the watchdog says of itself, in one file: for `status`, and for whoever admits requests."""

import time
from pathlib import Path

from pydantic import BaseModel, ValidationError

from glm53ctl.files import replace_text
from glm53ctl.findings import Finding

FRESH_SECONDS = 90.0
"""A report that is older counts for nothing: a dead watchdog must not keep requests out. One look
may take this long where a supervisor and the service manager are slow to answer."""


class Refusal(BaseModel):
    """New requests are to be refused: 503 with this text and this Retry-After."""

    reason: str
    retry_after_seconds: int = 30


class WatchdogReport(BaseModel):
    """The state of the watchdog of this host. `beat` is in seconds of CLOCK_MONOTONIC."""

    pid: int
    beat: float
    watches: tuple[int, ...] = ()
    memory: str = "ok"
    memory_available_gib: float | None = None
    refuses: Refusal | None = None
    findings: tuple[Finding, ...] = ()


def report_path(run_dir: Path) -> Path:
    """Return where the report is."""
    return run_dir / "watchdog.json"


def write_report(run_dir: Path, report: WatchdogReport) -> None:
    """Replace the report; a reader sees the old or the new one. Raises OSError."""
    replace_text(report_path(run_dir), report.model_dump_json())


def read_report(run_dir: Path) -> WatchdogReport | None:
    """Return the report of a watchdog that is alive, or None."""
    try:
        report = WatchdogReport.model_validate_json(report_path(run_dir).read_text())
    except (OSError, ValidationError):
        return None
    return report if 0 <= time.monotonic() - report.beat <= FRESH_SECONDS else None
