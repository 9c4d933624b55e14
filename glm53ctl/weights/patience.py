"""When to try again: what a failed try says of the next one, and when a source is given up."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from glm53ctl.backoff import doubled
from glm53ctl.errors import UserError
from glm53ctl.findings import Finding, Severity
from glm53ctl.weights.hub import Source
from glm53ctl.weights.progress import Watcher
from glm53ctl.weights.transfer import HttpRefusedError, TransferError, judge_os_error
from glm53ctl.weights.verdicts import PAUSE_JITTER, RESERVE_BYTES, pause_seconds

T = TypeVar("T")

WRONG_BYTES_ATTEMPTS = 2
"""A line that damages bytes does so at random; a source that has others sends them again."""


@dataclass(frozen=True)
class Rules:
    """How patient and how greedy a transfer is."""

    streams: int = 8
    stall_seconds: float = 120.0
    reserve_bytes: int = RESERVE_BYTES
    rate: float | None = None
    attempts: int = 6
    """Failures in a row, without a byte gained, after which a source is given up."""
    backoff_seconds: float = 1.0
    backoff_max_seconds: float = 60.0


@dataclass
class SourceError(Exception):
    """One source cannot give the set; the next one may."""

    finding: Finding


def refuse(finding: Finding) -> UserError:
    """Return a finding as the error that ends a command."""
    place = f"{finding.where}: " if finding.where else ""
    return UserError(finding.code, f"{place}{finding.message}", finding.fix, exit_code=1)


@dataclass(frozen=True)
class _Setback:
    """Why a try came to nothing, and what that means for the next."""

    finding: Finding
    pause: float = 0.0
    """Seconds that the source asks for."""
    counts: bool = True
    """Whether it is one of the attempts."""
    excused: bool = False
    """Whether the next try is another one, at the source's own pace: nothing has failed."""


@dataclass
class Patience:
    """Tries again on behalf of one directory; every thread of a run shares it."""

    rules: Rules
    directory: Path
    watcher: Watcher
    paused_until: float = 0.0
    """Until when (monotonic) a source has asked for silence."""

    def until_done(
        self,
        source: Source,
        action: Callable[[], T],
        gained: Callable[[], bool],
        halt: threading.Event,
        attempts: int,
    ) -> T:
        """Do it until it works. Raises UserError or SourceError when another try is in vain.

        `halt` ends every pause. `gained` says whether bytes arrived since it was last asked:
        attempts count only when none did, so that a bad line that moves at all gets there.
        """
        failures = 0
        while True:
            try:
                return action()
            except HttpRefusedError as error:
                setback = self._of_answer(source, error)
            except (TransferError, OSError) as error:
                setback = self._of_failure(source, error)
            finding = setback.finding
            if setback.excused:
                if halt.wait(setback.pause):
                    raise SourceError(finding)
                continue
            failures = 0 if gained() else failures + setback.counts
            most = WRONG_BYTES_ATTEMPTS if finding.code == "FETCH_WRONG_BYTES" else attempts
            if halt.is_set() or failures >= min(most, attempts):
                raise SourceError(finding)
            halt.wait(max(setback.pause, self._backoff(failures)))

    def _of_answer(self, source: Source, error: HttpRefusedError) -> _Setback:
        """Judge an answer that is no file."""
        finding = source.judge(error.status, error.headers)
        if finding.code == "FETCH_RATE_LIMITED":
            self.watcher.tell(finding)
            jitter = random.uniform(1.0, PAUSE_JITTER)  # noqa: S311
            # Not all ask for a pause that is one.
            pause = max(pause_seconds(error.headers), self.rules.backoff_seconds) * jitter
            self.paused_until = max(self.paused_until, time.monotonic() + pause)
            return _Setback(finding, pause, excused=True)
        if error.redirected:
            finding = _storage(source, error.status)  # a signed address that ran out
        if finding.severity is Severity.FAIL:
            raise refuse(finding)
        if finding.code == "FETCH_BAD_TOKEN" and source.drop_token():
            self.watcher.tell(finding)
            return _Setback(finding, excused=True)
        if finding.code != "FETCH_FAILED":
            raise SourceError(finding)
        asked = pause_seconds(error.headers, default=0.0) if error.status == 503 else 0.0
        return _Setback(finding, asked)

    def _of_failure(self, source: Source, error: TransferError | OSError) -> _Setback:
        """Judge what broke on the way, or on the disk."""
        if isinstance(error, TransferError):
            return _Setback(error.finding)
        if isinstance(error, TimeoutError):
            # The stall clock judges silence, over all streams.
            return _Setback(_network(source, error), counts=False)
        finding = judge_os_error(error, str(self.directory)) or _network(source, error)
        if finding.severity is Severity.FAIL:
            raise refuse(finding)
        return _Setback(finding)

    def _backoff(self, failures: int) -> float:
        rules = self.rules  # after a gain as well there is a pause
        return doubled(rules.backoff_seconds, rules.backoff_max_seconds, max(failures, 1))


def _storage(source: Source, status: int) -> Finding:
    return Finding(
        code="FETCH_FAILED",
        severity=Severity.WARN,
        message=f"the storage behind {source.name} answered {status}.",
        fix="The fetch asks the Hub for a new address.",
    )


def _network(source: Source, error: OSError) -> Finding:
    return Finding(
        code="FETCH_FAILED",
        severity=Severity.WARN,
        message=f"{source.name}: {error or type(error).__name__}.",
        fix="Look at the network; the fetch tries again and goes on where it stopped.",
    )
