"""How far a start had come, read off the log of one rank, and when."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

from glm53ctl.config.schema import StageLimits
from glm53ctl.supervise.stages import ORDER, Stage, StageTracker

MILESTONES = (
    "distributed_init_method",
    "vLLM is using nccl==",
    "in world size",
    "Starting to load model",
    "checkpoint shards:",
    "Loading weights took",
    "Model loading took",
    "KV cache size",
    "Capturing CUDA graphs",
    "init engine (profile",
    "Application startup complete",
)
"""Texts of the lines that move a stage (see supervise.stages)."""
PROGRESS = ("checkpoint shards:", "Loading safetensors using")
"""Texts of lines that count shards; the second is InstantTensor's."""

_TIME = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b")
_RANK = re.compile(r"\brank=(\d{1,4})\b|Worker_TP(\d{1,4})\b")
_PERCENT = re.compile(r"(\d+)%")
_ANY_YEAR = 2024  # log times carry none; a leap year takes every date


def clock(text: str) -> float | None:
    """Return the time in a log line (`09-20 10:00:05`) as seconds, None without one."""
    if not (found := _TIME.search(text)):
        return None
    month, day, hour, minute, second = map(int, found.groups())
    try:
        return datetime(_ANY_YEAR, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None


@dataclass
class Story:
    """The start that a log tells. Feed it lines; read `stage` and `rank`."""

    limits: StageLimits = field(default_factory=StageLimits)
    rank: int | None = None
    started: bool = False
    last_line: str = ""
    progress: str = ""
    """The last line that counted shards."""
    _tracker: StageTracker | None = None

    @property
    def stage(self) -> Stage | None:
        """The stage that was reached; None when the log shows no start."""
        return self._tracker.stage if self.started and self._tracker else None

    def feed(self, line: str) -> None:
        """Take one line."""
        if any(text in line for text in PROGRESS) and _PERCENT.search(line):
            self.progress = line
        if self.rank is None and (found := _RANK.search(line)):
            self.rank = int(found[1] or found[2])
        at = clock(line)
        if self._tracker is None:
            self._tracker = StageTracker(self.limits, at or 0.0)
        if self._tracker.feed(line, at if at is not None else self._tracker.last_progress):
            self.started = True
            self.last_line = line

    def quiet(self, now: float) -> float:
        """Return the seconds from the last milestone to `now`."""
        return now - self._tracker.last_progress if self._tracker else 0.0

    def stalled(self, now: float) -> str | None:
        """Return the code of a stall at `now`, None while the start moves."""
        return self._tracker.stalled(now) if self._tracker and self.started else None

    def is_starting(self) -> bool:
        """Say whether the engine is on its way up and does not answer yet."""
        return self.stage is not None and ORDER.index(self.stage) < ORDER.index(Stage.WARMUP)
