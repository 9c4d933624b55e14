"""A switch of the profile on trial: the head keeps it, or takes it back by itself.

The record is written before anything changes and decided after everything has, so wherever the
head dies, its next start finds a switch that is on trial and takes it back.
"""

import contextlib
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from glm53ctl.config.switched import read_switched, write_switched
from glm53ctl.files import replace_durably
from glm53ctl.findings import Severity
from glm53ctl.supervise.ledger import Incident, append_incident
from glm53ctl.supervise.report import Loss, Phase, RankReport, Trial, TrialState

log = logging.getLogger("glm53ctl")

NAME = "switch.json"
HINDERED_SECONDS = 60.0
"""How long a node may be blocked or refused on trial: ports and memory of the engine before come
back within seconds, missing weights do not."""


@dataclass
class Trials:
    """The last switch of the profile, on disk under `directory`."""

    directory: Path
    last: Trial | None = field(init=False, default=None)
    _entered: float = 0.0
    _hindered_at: float | None = None
    _loss_before: Loss | None = None

    def __post_init__(self) -> None:
        try:
            self.last = Trial.model_validate_json((self.directory / NAME).read_text())
        except (OSError, ValidationError):
            self.last = None

    @property
    def running(self) -> Trial | None:
        """The trial that is not decided yet."""
        return self.last if self.last is not None and self.last.running else None

    def begin(self, trial: Trial, before: Loss | None) -> None:
        """Put a switch on trial; `before` is the last loss that is not its own.

        Raises OSError when there is no record of it; `settle` is then to end it.
        """
        self.last = trial
        self._write(trial)
        self._entered, self._hindered_at, self._loss_before = time.monotonic(), None, before

    def judge(self, report: RankReport) -> str | None:
        """Look at the head's report; return why the trial has failed, or None.

        One that has proven itself is kept.
        """
        trial, now = self.running, time.monotonic()
        if trial is None:
            return None
        if reason := trial.reason or self._fault(trial, report, now):
            return reason
        if report.phase is Phase.READY and trial.state is TrialState.TRYING:
            if not trial.proof_seconds:
                self.settle(TrialState.KEPT, report.epoch)
                return None
            self.last = trial.model_copy(update={"state": TrialState.PROVING})
            self._entered = now
            with contextlib.suppress(OSError):  # after a death of the head it is undone either way
                self._write(self.last)
        return None

    def _fault(self, trial: Trial, report: RankReport, now: float) -> str | None:
        loss, waited = report.last_loss, now - self._entered
        if loss is not None and loss != self._loss_before:
            cause = f"; {loss.cause.sentence()}" if loss.cause is not None else ""
            return f"{loss.code}: {loss.message}{cause}"
        known = [report, *(p.report for p in report.peers.values() if p.report is not None)]
        hindered = [r for r in known if r.phase in (Phase.BLOCKED, Phase.REFUSED, Phase.HELD)]
        self._hindered_at = (self._hindered_at or now) if hindered else None
        why = _first_failure(hindered)
        if any(r.phase is Phase.HELD for r in hindered):
            return f"the pair was held: {why}"
        if self._hindered_at is not None and now - self._hindered_at > HINDERED_SECONDS:
            return why
        if trial.state is TrialState.PROVING:
            late = waited > trial.proof_seconds
            return f"no word of the bench for {waited:.0f} s" if late else None
        late = waited > trial.ready_seconds
        return f"not ready after {waited:.0f} s. {why}".strip() if late else None

    def doom(self, reason: str) -> None:
        """Note why the running trial is to be taken back, for the next `judge`."""
        if trial := self.running:
            self.last = trial.model_copy(update={"reason": reason})

    def undo(self, reason: str, epoch: int) -> None:
        """Take the switch back on this node; the other nodes follow the head.

        On a disk that refuses it stays: a pair that serves is worth more than one that restarts
        until there is room.
        """
        if (trial := self.running) is None:
            return
        try:
            if not self._is_back(trial):
                write_switched(self.directory, trial.back)
        except OSError as error:
            log.error("the switch cannot be taken back: %s", error.strerror)
            self.settle(TrialState.KEPT, epoch, f"{reason} (taken back in vain: {error.strerror})")
            return
        self.settle(TrialState.UNDONE, epoch, reason)

    def _is_back(self, trial: Trial) -> bool:
        """Say whether it was never switched: the head died, or the disk was full, before that."""
        try:
            return read_switched(self.directory) == trial.back
        except (OSError, ValueError):
            return False

    def settle(self, state: TrialState, epoch: int, reason: str = "") -> None:
        """Write down how the running trial ended, here and among the incidents."""
        if (trial := self.running) is None:
            return
        kept = state is TrialState.KEPT
        back = "" if kept else " and back"
        message = f"The pair was switched to {trial.to}{back}{f': {reason}' if reason else '.'}"
        entry = Incident(
            code="SWITCH_KEPT" if kept else "SWITCH_UNDONE",
            message=message,
            rank=0,
            epoch=epoch,
            at=time.time(),
            commanded=True,
            seen_by="rank 0",
            action=state.value,
        )
        append_incident(self.directory, entry)  # first: twice after a crash is better than never
        self.last = trial.model_copy(update={"state": state, "reason": reason})
        log.warning("%s", message)
        with contextlib.suppress(OSError):  # the next start then finds it on trial: undone
            self._write(self.last)

    def _write(self, trial: Trial) -> None:
        replace_durably(self.directory / NAME, trial.model_dump_json() + "\n")
        self.last = trial


def _first_failure(reports: list[RankReport]) -> str:
    failed = [f for r in reports for f in r.findings if f.severity is Severity.FAIL]
    return failed[0].sentence() if failed else ""
