"""How far a start has come and how long it will still take, from views that follow each other."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict

from glm53ctl.supervise.report import Phase, RankReport
from glm53ctl.supervise.stages import Stage
from glm53ctl.view.model import PairView


class Progress(BaseModel):
    """The start of one rank: the stages seen so far, and the seconds that are probably left.

    `began` has the Unix time at which each stage was first seen. `left_of` says of what:
    of the whole start, known from the start before, or of this stage, known from its own pace.
    """

    model_config = ConfigDict(frozen=True)

    rank: int
    began: dict[Stage, float]
    seconds_left: float | None = None
    left_of: Literal["start", "stage"] | None = None


@dataclass
class _Pace:
    """What counts the percentages of one stage: the first seen, and the newest."""

    first: tuple[float, int]
    newest: tuple[float, int]

    def left(self, now: float) -> float | None:
        """Return the seconds to 100 %, at the pace between the two; None while there is none."""
        (begin, done), (moved, newest) = self.first, self.newest
        if newest <= done:
            return None
        whole = (100 - newest) * (moved - begin) / (newest - done)
        return max(0.0, whole - (now - moved))


@dataclass
class _Start:
    """One start of one rank."""

    epoch: int
    began: dict[Stage, float] = field(default_factory=dict)
    paces: dict[Stage, _Pace] = field(default_factory=dict)

    def feed(self, report: RankReport, now: float) -> None:
        if report.stage is None:
            return
        self.began.setdefault(report.stage, now)
        if report.percent is None:
            return
        reading = (now, report.percent)
        pace = self.paces.setdefault(report.stage, _Pace(reading, reading))
        if report.percent != pace.newest[1]:
            pace.newest = reading


@dataclass
class Starts:
    """Follows the starts of all ranks; remembers how long the last one of each took."""

    _starts: dict[int, _Start] = field(default_factory=dict)
    _took: dict[int, float] = field(default_factory=dict)

    def feed(self, view: PairView) -> tuple[Progress, ...]:
        """Take the next view; return the progress of every rank that is starting."""
        return tuple(self._progress(view))

    def _progress(self, view: PairView) -> Iterator[Progress]:
        for report in view.snapshot.ranks:
            if report.start_seconds is not None:
                self._took[report.rank] = report.start_seconds
            if report.phase is not Phase.STARTING:
                continue
            start = self._starts.get(report.rank)
            if start is None or start.epoch != report.epoch:
                start = self._starts[report.rank] = _Start(report.epoch)
            start.feed(report, view.at)
            left, of = self._left(report, start, view.at)
            yield Progress(rank=report.rank, began=start.began, seconds_left=left, left_of=of)

    def _left(
        self, report: RankReport, start: _Start, now: float
    ) -> tuple[float | None, Literal["start", "stage"] | None]:
        took = self._took.get(report.rank)
        if took is not None and (left := took - (now - report.since)) > 0:
            return left, "start"
        pace = None if report.stage is None else start.paces.get(report.stage)
        left_of_stage = None if pace is None else pace.left(now)
        return (None, None) if left_of_stage is None else (left_of_stage, "stage")
