"""What must survive the supervisor: incidents, the epoch counter, crash counts, boot markers.

Everything lives in one directory of small files, each replaced atomically; the incident log is
appended to and never rewritten.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from glm53ctl.config.schema import Supervise
from glm53ctl.supervise.report import Loss

SHOWN_INCIDENTS = 20


class Memory(BaseModel):
    """The counters of one rank."""

    epoch: int = 0
    crashes: list[float] = []
    held: str | None = None
    loading_since_boot: str | None = None
    unclean_boots: int = 0


def next_backoff(rules: Supervise, losses_in_a_row: int) -> float:
    """Return the pause in seconds before a relaunch: doubling from the base to the maximum."""
    if losses_in_a_row <= 0:
        return 0.0
    doublings = min(losses_in_a_row - 1, 64)  # far past any maximum, and still a float
    return min(rules.backoff_seconds * 2.0**doublings, rules.backoff_max_seconds)


@dataclass
class Ledger:
    """The memory of one rank, on disk under `directory`."""

    directory: Path
    rank: int
    rules: Supervise

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._file = self.directory / f"rank{self.rank}.json"
        self.incidents_file = self.directory / "incidents.jsonl"
        self._memory = self._read()

    def _read(self) -> Memory:
        try:
            return Memory.model_validate_json(self._file.read_text())
        except (FileNotFoundError, ValidationError):
            return Memory()  # a torn file costs counters, never a start

    def _write(self, **changes: object) -> None:
        self._memory = self._memory.model_copy(update=changes)
        fresh = self._file.with_suffix(".new")
        fresh.write_text(self._memory.model_dump_json())
        os.replace(fresh, self._file)

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
        return sum(now - at < self.rules.crash_window_seconds for at in self._memory.crashes)

    def begin_epoch(self, epoch: int, boot_id: str) -> None:
        """Note that loading begins; the note is taken back by `loaded` and `record`."""
        self._write(epoch=epoch, loading_since_boot=boot_id)

    def loaded(self) -> None:
        """Note that the pair reached READY: the machine survives a load."""
        self._write(loading_since_boot=None, unclean_boots=0)

    def note_boot(self, boot_id: str) -> None:
        """Judge how the last run ended: a load cut off by a reboot took the machine down."""
        before = self._memory.loading_since_boot
        if before is None or before == boot_id:
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
        entry = loss.model_dump() | {"own": own, "seen_by": self.rank}
        with self.incidents_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        if not own:
            self._write(loading_since_boot=None)
            return
        recent = [t for t in self._memory.crashes if loss.at - t < self.rules.crash_window_seconds]
        self._write(loading_since_boot=None, crashes=[*recent, loss.at])
        if len(recent) + 1 >= self.rules.crash_limit:
            minutes = round(self.rules.crash_window_seconds / 60)
            self.hold(
                f"{len(recent) + 1} crashes within {minutes} minutes; the last: {loss.message}"
            )

    def hold(self, reason: str) -> None:
        """Stop relaunching until an operator looks."""
        self._write(held=reason)

    def resume(self) -> None:
        """Forget crashes and unclean boots: an operator has looked."""
        self._write(held=None, crashes=[], unclean_boots=0)

    def incidents(self) -> list[Loss]:
        """Return the newest incidents, oldest first; lines that are torn are left out."""
        if not self.incidents_file.exists():
            return []
        found = []
        for line in self.incidents_file.read_text(encoding="utf-8").splitlines()[-SHOWN_INCIDENTS:]:
            try:
                found.append(Loss.model_validate_json(line))
            except ValidationError:
                continue
        return found
