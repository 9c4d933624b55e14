"""When the watchdog interferes with a rank: pure decisions, fed with what was seen.

A supervisor that answers is believed: what it waits for, holds or recovers from is its business.
The watchdog acts where there is none, where it does not answer, and where it says `ready` and the
pair gives no tokens. Then the gentle way first (an order to end the epoch), and only for the same
epoch again the hard one (a restart of the unit).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from glm53ctl.config.schema import Config
from glm53ctl.errors import EXIT_BAD_INPUT
from glm53ctl.findings import Finding, Severity
from glm53ctl.supervise.pulse import ProgressWatch
from glm53ctl.supervise.report import Counters, Phase, RankReport
from glm53ctl.watchdog.budget import Budget
from glm53ctl.watchdog.bus import UnitState

WEDGE_MARGIN_SECONDS = 30.0
"""The supervisor has the same rule and goes first."""
AGAIN_SECONDS = 5.0
"""Until the next probe after one that failed."""
RUNNING = {("active", "running"), ("activating", "start")}
"""States of a service whose main process is there."""


class Probe(StrEnum):
    """What a probe showed; `unclear` is neither for nor against the pair."""

    GOOD = "good"
    BAD = "bad"
    UNCLEAR = "unclear"


class Remedy(StrEnum):
    """What can be done about a rank."""

    ORDER = "order"
    """Ask its supervisor to end the epoch and begin another."""
    RESTART = "restart"
    """Restart its unit."""


@dataclass(frozen=True)
class Look:
    """What was seen of one rank at monotonic `now`.

    `report` is None when nobody answered, `probe` when none ended since the last look, `watts` (of
    the GPU) where it is not known.
    """

    now: float
    wanted: bool
    unit: UnitState
    report: RankReport | None = None
    probe: Probe | None = None
    probe_error: str = ""
    watts: float | None = None


@dataclass(frozen=True)
class Trouble:
    """What is wrong with a rank, and what would help (None: nothing that a program can do).

    `message` is a sentence without its full stop, as that of a loss.
    """

    code: str
    message: str
    remedy: Remedy | None
    fix: str = ""

    def finding(self) -> Finding:
        """Return the trouble for status."""
        return Finding(
            code=self.code, severity=Severity.FAIL, message=f"{self.message}.", fix=self.fix
        )


@dataclass(frozen=True)
class Verdict:
    """What a look came to: the trouble if there is any, and the remedy if it is due now."""

    trouble: Trouble | None = None
    remedy: Remedy | None = None


@dataclass
class RankRules:
    """Judges one rank of this host. `budget` is shared by all of them."""

    rank: int
    config: Config
    budget: Budget
    wall: Callable[[], float] = time.time
    _stopped: bool = False
    _silent: tuple[int, float] | None = None
    """Pid that does not answer, and since when."""
    _bad_probes: int = 0
    _probe_error: str = ""
    """What the last of them showed."""
    _proven_at: float | None = None
    """When the pair last gave tokens (or failed to) as far as is known."""
    _generated: int = 0
    _epoch: int = 0
    _counters: Counters | None = None
    _ordered_epoch: int | None = None
    _well_since: float | None = None
    _watch: ProgressWatch = field(init=False)

    def __post_init__(self) -> None:
        self._watch = self._new_watch()

    def _new_watch(self) -> ProgressWatch:
        return ProgressWatch(self.config.supervise.wedge_seconds + WEDGE_MARGIN_SECONDS)

    @property
    def unit_name(self) -> str:
        """The unit of this rank."""
        return f"glm53-rank{self.rank}.service"

    def judge(self, look: Look) -> Verdict:
        """Take a look; return what is wrong and whether to act now. Acting is counted here."""
        trouble = self._trouble(look)
        self._note_wellbeing(look, trouble)
        if trouble is None or trouble.remedy is None:
            return Verdict(trouble)
        if self.budget.exhausted:
            return Verdict(self._gave_up(trouble))
        if not self.budget.allows(look.now):
            return Verdict(trouble)
        self.budget.spend(look.now, self.wall())
        self._silent = None  # what comes next has its own time to answer
        if trouble.remedy is Remedy.ORDER and look.report is not None:
            self._ordered_epoch = look.report.epoch
        return Verdict(trouble, trouble.remedy)

    def _note_wellbeing(self, look: Look, trouble: Trouble | None) -> None:
        ready = look.report is not None and look.report.phase is Phase.READY
        if not ready or trouble is not None:
            self._well_since = None
            return
        self._well_since = self._well_since or look.now
        if look.now - self._well_since >= self.config.supervise.stable_seconds:
            self.budget.settle()

    def _gave_up(self, trouble: Trouble) -> Trouble:
        return Trouble(
            "WATCHDOG_GAVE_UP",
            f"after {self.budget.attempts} attempts: {trouble.message}",
            None,
            f"Mend the cause, then `systemctl reset-failed {self.unit_name}` and "
            "`systemctl restart glm53.target`.",
        )

    # --- what is wrong --------------------------------------------------------------------------

    def _trouble(self, look: Look) -> Trouble | None:
        unit = look.unit
        if unit.job == "stop":
            self._stopped = True
        elif unit.active in ("active", "activating"):
            self._stopped = False
        present = (unit.active, unit.sub) in RUNNING and unit.pid > 0
        if not present or look.report is not None:
            self._silent = None
        self._follow_epoch(look.report if present else None)
        if not look.wanted or self._stopped or unit.job == "restart":
            return None
        if unit.active == "failed":
            return self._failed(unit) if not unit.job else None
        if not present:
            return None  # stopped on command, or systemd is at work on it
        if look.report is None:
            return self._unanswered(unit, look.now)
        return self._tokens(look, look.report) if look.report.phase is Phase.READY else None

    def _failed(self, unit: UnitState) -> Trouble | None:
        if unit.exited_with == 0:
            return None  # `glm53ctl down` before READY=1, which systemd calls a broken protocol
        if unit.exited_with == EXIT_BAD_INPUT:
            return Trouble(
                "SUPERVISOR_REFUSED",
                f"{unit.name} does not start with its configuration, or beside another supervisor",
                None,
                f"`journalctl -u {unit.name}` says why; then `systemctl restart {unit.name}`.",
            )
        return Trouble(
            "SUPERVISOR_LOST",
            f"systemd has given {unit.name} up ({unit.result})",
            Remedy.RESTART,
            f"`journalctl -u {unit.name}` says why.",
        )

    def _unanswered(self, unit: UnitState, now: float) -> Trouble | None:
        if self._silent is None or self._silent[0] != unit.pid:
            self._silent = (unit.pid, now)
        seconds = now - self._silent[1]
        if seconds < self.config.watchdog.silent_seconds:
            return None
        return Trouble(
            "SUPERVISOR_STUCK",
            f"the supervisor of rank {self.rank} (pid {unit.pid}) has not answered for "
            f"{seconds:.0f} s",
            Remedy.RESTART,
        )

    def _tokens(self, look: Look, report: RankReport) -> Trouble | None:
        """Judge a pair that calls itself ready, on the head."""
        if self.rank != 0:
            return None
        self._note_probe(look)
        wedged = self._feed(report.counters, look)
        again = self._ordered_epoch == report.epoch
        remedy = Remedy.RESTART if again else Remedy.ORDER
        if self._bad_probes >= self.config.watchdog.probe_failures:
            return Trouble(
                "PROBE_FAILED",
                f"the pair says ready, and {self._bad_probes} probes in a row failed: "
                f"{self._probe_error or 'no tokens'}",
                remedy,
            )
        if wedged:
            return Trouble(
                "ENGINE_WEDGED",
                f"requests run, no counter has moved for {self._watch.limit:.0f} s"
                + (f" and the GPU draws {look.watts:.0f} W" if look.watts is not None else ""),
                remedy,
            )
        return None

    def _feed(self, counters: Counters | None, look: Look) -> bool:
        if counters is not None and counters.generated_tokens != self._generated:
            self._generated, self._proven_at = counters.generated_tokens, look.now
            self._bad_probes = 0
        self._counters = counters
        busy = look.watts is not None and look.watts >= self.config.watchdog.busy_watts
        # A GPU that draws power computes, whatever the counters say: as good as nothing waiting.
        return self._watch.feed(Counters() if busy else counters, look.now)

    def _note_probe(self, look: Look) -> None:
        if look.probe is None:
            return
        if look.probe is Probe.BAD:
            self._bad_probes, self._probe_error = self._bad_probes + 1, look.probe_error
            pause = AGAIN_SECONDS - self.config.watchdog.probe_seconds
            self._proven_at = look.now + min(0.0, pause)
            return
        self._proven_at = look.now
        if look.probe is Probe.GOOD:
            self._bad_probes = 0

    def _follow_epoch(self, report: RankReport | None) -> None:
        """Begin anew unless the same epoch serves as before."""
        if report is not None and report.phase is Phase.READY and report.epoch == self._epoch:
            return
        self._epoch = report.epoch if report is not None else 0
        self._bad_probes, self._ordered_epoch, self._proven_at = 0, None, None
        self._counters, self._watch = None, self._new_watch()

    # --- probing --------------------------------------------------------------------------------

    def wants_probe(self, look: Look) -> bool:
        """Say whether a probe is due: the pair is idle, and nothing has shown it to be well.

        Requests that run are proof or are judged by their counters; a probe behind a long prefill
        would wait for it and prove nothing.
        """
        report = look.report
        if self.rank != 0 or not look.wanted or report is None or report.phase is not Phase.READY:
            return False
        counters = report.counters or Counters()
        if counters.running or counters.waiting or counters.in_flight:
            return False
        if self._proven_at is None:
            self._proven_at = look.now  # it has just answered the canary
        return look.now - self._proven_at >= self.config.watchdog.probe_seconds

    def suspects(self, report: RankReport | None) -> bool:
        """Say whether the GPU's power is worth a question: requests run, and nothing moves."""
        counters = report.counters if report is not None else None
        if counters is None or counters != self._counters:
            return False
        return bool(counters.running or counters.in_flight)
