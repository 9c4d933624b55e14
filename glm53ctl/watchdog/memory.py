"""The guard of the unified memory, in stages: warn, refuse new work, stop the pair.

A Spark whose memory runs out does not raise an error, it freezes. The supervisor ends the epoch at
the floor; this sees the way there, and acts when the supervisor itself no longer gets to it.
"""

from dataclasses import dataclass
from enum import IntEnum

from glm53ctl.config.schema import Config

HYSTERESIS_GIB = 0.5
CALM_SECONDS = 30.0
"""A stage is left when for this long so much more was available: work comes and goes in bursts."""


class MemoryStage(IntEnum):
    """How bad it is; a higher one includes the lower."""

    OK = 0
    WARN = 1
    REFUSE = 2
    STOP = 3


@dataclass(frozen=True)
class Reading:
    """MemAvailable in GiB, and the share of ten seconds in which all waited for memory (PSI).

    `stalled_percent` is None on a kernel that does not tell.
    """

    available_gib: float
    stalled_percent: float | None = None


@dataclass
class MemoryGuard:
    """Turns readings into a stage: up at once, down slowly.

    `short_since` is the monotonic time of the first of the readings in a row that each stop the
    pair, None while the last one does not: the stage outlives them, and so the next engine's start.
    """

    config: Config
    stage: MemoryStage = MemoryStage.OK
    short_since: float | None = None
    _calm_since: float | None = None

    def feed(self, reading: Reading, now: float) -> MemoryStage:
        """Take a reading at monotonic `now` and return the stage."""
        there = self._stage_of(reading, 0.0)
        if there is not MemoryStage.STOP:
            self.short_since = None
        elif self.short_since is None:
            self.short_since = now
        if there > self.stage:
            self._enter(there)
            return self.stage
        calmer = self._stage_of(reading, HYSTERESIS_GIB)
        if calmer >= self.stage:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        elif now - self._calm_since >= CALM_SECONDS:
            self._enter(calmer)
        return self.stage

    def _enter(self, stage: MemoryStage) -> None:
        self.stage, self._calm_since = stage, None

    def _stage_of(self, reading: Reading, margin: float) -> MemoryStage:
        settings, left = self.config.watchdog, reading.available_gib - margin
        above_floor = left - self.config.memory.floor_gib
        stalled = (reading.stalled_percent or 0.0) >= settings.stalled_percent
        if above_floor < 0 or (above_floor < settings.refuse_gib and stalled):
            return MemoryStage.STOP
        if above_floor < settings.refuse_gib:
            return MemoryStage.REFUSE
        return MemoryStage.WARN if above_floor < settings.warn_gib else MemoryStage.OK
