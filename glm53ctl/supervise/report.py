"""What one rank says of itself: to its peer, to `status`, and to the journal."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from glm53ctl.config.switched import Switched
from glm53ctl.findings import Finding
from glm53ctl.supervise.stages import Stage


class Phase(StrEnum):
    """Where a rank is in its life. Words an operator can read in a second."""

    BLOCKED = "blocked"
    """Something on this node forbids a start; it is looked at again every few seconds."""
    PAIRING = "pairing"
    """Waiting for the other nodes' supervisors."""
    REFUSED = "refused"
    """The other node was found, and does not match."""
    WAITING = "waiting"
    """Paired; waiting for a launch (after a loss: for the pause to end)."""
    STARTING = "starting"
    """The engine is coming up; `stage` says how far."""
    READY = "ready"
    """The pair serves."""
    ENDING = "ending"
    """The engine is being ended."""
    HELD = "held"
    """Not started again until somebody looks: `glm53ctl resume`."""
    STOPPED = "stopped"
    """Ended on command."""


class Loss(BaseModel):
    """Why an epoch ended: one cause, written once.

    `rank` is where it happened (the rank whose crash it is), `at` a Unix time in seconds;
    `commanded` ends (stop, restart) are no crashes. `code` and `message` say what was seen, `cause`
    says why, where the engine's last lines betray it.
    """

    model_config = ConfigDict(frozen=True)

    code: str
    message: str
    rank: int
    epoch: int
    at: float
    commanded: bool = False
    evidence: tuple[str, ...] = ()
    cause: Finding | None = None


class TrialState(StrEnum):
    """How far a switch of the profile is."""

    TRYING = "trying"
    """The pair is being restarted with the new one."""
    PROVING = "proving"
    """It serves; whoever switched is measuring it."""
    KEPT = "kept"
    UNDONE = "undone"


class Trial(BaseModel):
    """A switch of the profile: what to, what back to, how long it may take, and how it went.

    `back_run` are the settings of the one run before. Times are seconds; `ready_seconds` last from
    the order to READY, `proof_seconds` from READY to the word of whoever switched (0: READY is
    proof enough).
    """

    model_config = ConfigDict(frozen=True)

    id: str
    to: Switched
    back: Switched = Switched()
    back_run: tuple[str, ...] = ()
    ready_seconds: float
    proof_seconds: float = 0.0
    state: TrialState = TrialState.TRYING
    reason: str = ""

    @property
    def running(self) -> bool:
        """Whether it is not decided yet."""
        return self.state in (TrialState.TRYING, TrialState.PROVING)


class EngineReport(BaseModel):
    """The engine's processes on one node."""

    pid: int | None = None
    version: str | None = None
    processes: dict[int, str] = {}


class Counters(BaseModel):
    """What is going on in the engine (rank 0 only).

    `in_flight` is the API server's count of open requests, the others are the engine's own.
    """

    in_flight: int = 0
    running: int = 0
    waiting: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    kv_usage: float = 0.0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    drafts: int = 0
    accepted_at: tuple[int, ...] = ()
    """Accepted tokens by position in the draft."""

    @property
    def idle(self) -> bool:
        """Whether nobody waits for anything."""
        return self.running == 0 and self.in_flight == 0


class PeerView(BaseModel):
    """How one rank sees another: the state of the link and the last thing it said."""

    state: str = "absent"
    silent_seconds: float = 0.0
    report: "RankReport | None" = None


class RankReport(BaseModel):
    """Everything one rank knows about itself. Times are Unix seconds."""

    rank: int
    node: str
    pid: int
    phase: Phase
    since: float
    stage: Stage | None = None
    percent: int | None = None
    compiling: str | None = None
    """The kernel that is built for the first time, for minutes and in silence."""
    stage_seconds_left: float | None = None
    epoch: int = 0
    engine: EngineReport = EngineReport()
    findings: tuple[Finding, ...] = ()
    last_loss: Loss | None = None
    crashes: int = 0
    retry_at: float | None = None
    ready_at: float | None = None
    start_seconds: float | None = None
    memory_available_gib: float | None = None
    endpoint: str | None = None
    model: str | None = None
    counters: Counters | None = None
    switched: str = ""
    """What the pair was switched to; empty when it runs as configured."""
    trial: Trial | None = None
    """The last switch, as the head knows it."""
    peers: dict[int, PeerView] = {}

    def status_line(self) -> str:
        """Return the state as one line, for `systemctl status` and the journal."""
        text = f"{self.phase.value}"
        if self.phase is Phase.STARTING and self.stage is not None:
            progress = "" if self.percent is None else f" {self.percent}%"
            progress += "" if self.compiling is None else f", compiling {self.compiling}"
            text = f"epoch {self.epoch}: {self.stage.value}{progress}"
        elif self.phase is Phase.READY:
            text = f"ready, epoch {self.epoch}"
        if self.switched:
            text += f", switched to {self.switched}"
        if self.findings:
            text += f" - {self.findings[0].sentence()}"
        return text


PeerView.model_rebuild()
