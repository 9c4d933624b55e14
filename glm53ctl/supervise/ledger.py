"""What must survive the supervisor: incidents, the epoch counter, crash counts, boot markers.

Everything lives in one directory of small files, each replaced atomically; the incident log is
appended to, by the supervisors, by the watchdog and by systemd's word (`record-exit`). A full disk
costs the record and nothing else.
"""

import contextlib
import fcntl
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError, field_validator

from glm53ctl.backoff import doubled
from glm53ctl.config.schema import Supervise
from glm53ctl.files import append_line, replace_text
from glm53ctl.supervise.report import Loss

log = logging.getLogger("glm53ctl")

SHOWN_INCIDENTS = 20
ROTATE_BYTES = 1 << 20
"""Thousands of incidents; one older file is kept beside the current one."""


class Incident(Loss):
    """A line of the incident log: the loss, who wrote it down, and what was done about it.

    `own` says that it was counted as a crash of the rank that saw it.
    """

    seen_by: str = ""
    own: bool = False
    action: str = ""

    @field_validator("seen_by", mode="before")
    @classmethod
    def _once_a_number(cls, value: object) -> object:
        return f"rank {value}" if isinstance(value, int) else value


def incidents_path(directory: Path) -> Path:
    """Return where the incidents of this node are."""
    return directory / "incidents.jsonl"


def append_incident(directory: Path, incident: Incident) -> bool:
    """Append one line and say whether it is there. Never raises: what failed is in the journal."""
    path = incidents_path(directory)
    try:
        _rotate(path)
        return append_line(path, incident.model_dump_json())
    except OSError as error:
        log.error("%s cannot be written (%s): %s", path, error.strerror, incident.message)
        return False


def _rotate(path: Path) -> None:
    """Put a long log aside. Of several that want to, one does."""
    try:
        if path.stat().st_size < ROTATE_BYTES:
            return
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                os.replace(path, _older(path))
    except (FileNotFoundError, BlockingIOError):
        return


def _older(path: Path) -> Path:
    return path.with_name("incidents.1.jsonl")


def read_incidents(directory: Path) -> list[Incident]:
    """Return the newest incidents, oldest first; lines that are torn are left out."""
    path = incidents_path(directory)
    lines: list[str] = []
    for file in (_older(path), path):
        with contextlib.suppress(OSError):
            lines += file.read_text(encoding="utf-8", errors="replace").splitlines()
    found = []
    for line in lines[-SHOWN_INCIDENTS:]:
        with contextlib.suppress(ValidationError):
            found.append(Incident.model_validate_json(line))
    return found


class Memory(BaseModel):
    """The counters of one rank."""

    epoch: int = 0
    crashes: list[float] = []
    held: str | None = None
    loading_since_boot: str | None = None
    unclean_boots: int = 0
    stopped_in_boot: str | None = None


def next_backoff(rules: Supervise, losses_in_a_row: int) -> float:
    """Return the pause in seconds before a relaunch: doubling from the base to the maximum."""
    return doubled(rules.backoff_seconds, rules.backoff_max_seconds, losses_in_a_row)


@dataclass
class Ledger:
    """The memory of one rank, on disk under `directory`."""

    directory: Path
    rank: int
    rules: Supervise

    def __post_init__(self) -> None:
        with contextlib.suppress(OSError):  # what is written there says so
            self.directory.mkdir(parents=True, exist_ok=True)
        self._file = self.directory / f"rank{self.rank}.json"
        self._memory = self._read()

    def _read(self) -> Memory:
        try:
            return Memory.model_validate_json(self._file.read_text())
        except (OSError, ValueError):
            return Memory()  # a torn file costs counters, never a start

    def _write(self, **changes: object) -> None:
        self._memory = self._memory.model_copy(update=changes)
        try:
            replace_text(self._file, self._memory.model_dump_json())
        except OSError as error:  # the counters live on in this process
            log.error("%s cannot be written: %s", self._file, error.strerror)

    @property
    def epoch(self) -> int:
        """The newest epoch that this rank took part in."""
        return self._memory.epoch

    @property
    def held(self) -> str | None:
        """Why the pair is held, or None."""
        return self._memory.held

    def crashes(self, now: float) -> int:
        """Own crashes within the window that ends at `now` (Unix seconds)."""
        return len(self._recent(now))

    def _recent(self, now: float) -> list[float]:
        # Either way: a clock is also set back, by seconds or by the years that it ran ahead.
        window = self.rules.crash_window_seconds
        return [at for at in self._memory.crashes if abs(now - at) < window]

    def begin_epoch(self, epoch: int, boot_id: str) -> None:
        """Note that loading begins; the note is taken back by `loaded` and `record`."""
        self._write(epoch=epoch, loading_since_boot=boot_id)

    def loaded(self) -> None:
        """Note that the pair reached READY: the machine survives a load."""
        self._write(loading_since_boot=None, unclean_boots=0)

    def note_stop(self, boot_id: str) -> None:
        """Note that somebody stopped this rank, in this boot."""
        self._write(stopped_in_boot=boot_id)

    def note_start(self, boot_id: str) -> None:
        """Judge how the last run ended.

        Whoever stopped a held rank and starts it again has looked; a shutdown is no such stop. A
        load cut off by a reboot took the machine down.
        """
        stopped = self._memory.stopped_in_boot
        if stopped is not None:
            self._write(stopped_in_boot=None)
        if stopped == boot_id:
            self.resume()
        before = self._memory.loading_since_boot
        if before is None:
            return
        if before == boot_id:  # that load is over: what becomes of this boot now is not its doing
            self._write(loading_since_boot=None)
            return
        boots = self._memory.unclean_boots + 1
        self._write(loading_since_boot=None, unclean_boots=boots)
        if boots >= self.rules.unclean_boot_limit:
            self.hold(
                f"HOST_RESET_LOOP: this machine went down {boots} times in a row while the engine "
                "was loading."
            )

    def record(self, loss: Loss) -> None:
        """Write an incident; count it if it is this rank's own crash, and hold after too many."""
        own = loss.rank == self.rank and not loss.commanded
        seen_by, action = f"rank {self.rank}", "" if loss.commanded else "epoch ended on both sides"
        incident = Incident(**loss.model_dump(), own=own, seen_by=seen_by, action=action)
        append_incident(self.directory, incident)
        if not own:
            self._write(loading_since_boot=None)
            return
        recent = self._recent(loss.at)
        self._write(loading_since_boot=None, crashes=[*recent, loss.at])
        if len(recent) + 1 >= self.rules.crash_limit:
            minutes = round(self.rules.crash_window_seconds / 60)
            why = loss.cause.message if loss.cause is not None else loss.message
            count = len(recent) + 1
            crashes = f"{count} crash{'es' if count > 1 else ''}"
            self.hold(f"{crashes} within {minutes} minutes; the last: {why}")

    def hold(self, reason: str) -> None:
        """Stop relaunching until an operator looks."""
        self._write(held=reason)

    def resume(self) -> None:
        """Forget crashes and unclean boots: an operator has looked."""
        self._write(held=None, crashes=[], unclean_boots=0)

    def incidents(self) -> list[Incident]:
        """Return the newest incidents of this node, oldest first."""
        return read_incidents(self.directory)
