"""How far a transfer or a verification is: for the unit, for a file and for a terminal."""

import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ValidationError

from glm53ctl.files import replace_durably
from glm53ctl.findings import Finding
from glm53ctl.weights.verdicts import gib

Activity = Literal["fetch", "sync", "verify", "wait"]

FILE_NAME = "weights-progress.json"
STALE_SECONDS = 30.0
RATE_SECONDS = 30.0
"""Span over which the rate is taken: long enough to be calm, short enough to be true."""


class Progress(BaseModel):
    """One moment. Bytes are of the whole set; the rate is in bytes a second, the ETA in seconds."""

    activity: Activity
    role: str
    done_bytes: int
    total_bytes: int
    done_files: int
    total_files: int
    rate: float = 0.0
    eta_seconds: float | None = None
    note: str = ""
    at: float = 0.0
    pid: int = 0

    @property
    def percent(self) -> float:
        """How much is done."""
        return 100.0 * self.done_bytes / self.total_bytes if self.total_bytes else 100.0

    def sentence(self) -> str:
        """Return it as one line."""
        if self.activity == "wait":
            return self.note
        eta = f", {_clock(self.eta_seconds)} left" if self.eta_seconds is not None else ""
        note = f" ({self.note})" if self.note else ""
        return (
            f"{self.activity} {self.role}: {self.percent:.1f} % of {gib(self.total_bytes)}, "
            f"{self.done_files} of {self.total_files} files, {gib(self.rate)}/s{eta}{note}"
        )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


class Watcher(Protocol):
    """Whoever wants to hear: the unit's status line, a terminal, a test."""

    def show(self, progress: Progress) -> None:
        """Take the newest moment; called about once a second."""

    def tell(self, finding: Finding) -> None:
        """Take a verdict that does not end the work."""


class Meter:
    """Counts bytes and files from many threads, and knows the rate."""

    def __init__(self, activity: Activity, role: str, total_bytes: int, total_files: int) -> None:
        self._lock = threading.Lock()
        self._total = (activity, role, total_bytes, total_files)
        self._bytes: dict[str, int] = {}
        self._files = 0
        self._moments: deque[tuple[float, int]] = deque()
        self.note = ""

    def at(self, path: str, count: int) -> None:
        """Note how many bytes of a file are done: fewer than before when some were wrong."""
        with self._lock:
            self._bytes[path] = count

    def finish_file(self) -> None:
        """Count a file."""
        with self._lock:
            self._files += 1

    def progress(self, now: float | None = None) -> Progress:
        """Return this moment."""
        now = time.monotonic() if now is None else now
        activity, role, total, files = self._total
        with self._lock:
            done, count = sum(self._bytes.values()), self._files
        self._moments.append((now, done))
        while now - self._moments[0][0] > RATE_SECONDS and len(self._moments) > 2:
            self._moments.popleft()
        since, before = self._moments[0]
        rate = max((done - before) / (now - since), 0.0) if now > since else 0.0
        return Progress(
            activity=activity,
            role=role,
            done_bytes=done,
            total_bytes=total,
            done_files=count,
            total_files=files,
            rate=rate,
            eta_seconds=(total - done) / rate if rate > 0 else None,
            note=self.note,
        )


def write_progress(run_dir: Path, progress: Progress) -> None:
    """Put a moment where `glm53ctl status` finds it. A directory that is not there is no fault."""
    stamped = progress.model_copy(update={"at": time.time(), "pid": os.getpid()})
    try:
        replace_durably(run_dir / FILE_NAME, stamped.model_dump_json())
    except OSError:
        return  # progress is a courtesy; the work goes on without it


def clear_progress(run_dir: Path) -> None:
    """Remove this process's progress."""
    progress = _read(run_dir)
    if progress is not None and progress.pid == os.getpid():
        (run_dir / FILE_NAME).unlink(missing_ok=True)


def read_progress(run_dir: Path) -> Progress | None:
    """Return what a running process is at; None when none is, or it has been silent for long."""
    progress = _read(run_dir)
    if progress is None or abs(time.time() - progress.at) > STALE_SECONDS:
        return None
    return progress


def _read(run_dir: Path) -> Progress | None:
    try:
        return Progress.model_validate_json((run_dir / FILE_NAME).read_bytes())
    except (OSError, ValidationError):
        return None
