"""One joint run of the engine, seen from one rank: from launch to the one cause of its end.

`judge` is asked a few times a second and names the first thing that is wrong. The order is that
of trust: what the peer says it saw, what happened to this engine, what happened to the link, and
last what is only inferred from standing still.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glm53ctl import weights
from glm53ctl.api import authorization, engine_client
from glm53ctl.checks.fabric import Fabric
from glm53ctl.checks.start import check_fabric, drifted, fabric_here, fabric_of_pair, rails_of
from glm53ctl.config.schema import Config
from glm53ctl.diagnose import explain_lines
from glm53ctl.diagnose.acceptance import judge_totals
from glm53ctl.facts.memory import available_gib
from glm53ctl.facts.network import device_of
from glm53ctl.facts.node import NodeFacts, probe_links
from glm53ctl.findings import Finding
from glm53ctl.plan import RankPlan, launch_env, plan_rank
from glm53ctl.plan.ranks import API_KEY
from glm53ctl.supervise.canary import CanaryError, Target, ask_canary
from glm53ctl.supervise.engine import EngineProcess, Member
from glm53ctl.supervise.link import PairLink
from glm53ctl.supervise.pace import pause
from glm53ctl.supervise.pulse import ProgressWatch, read_counters
from glm53ctl.supervise.report import Counters, Loss, Phase, RankReport
from glm53ctl.supervise.stages import ORDER, Stage, StageTracker
from glm53ctl.supervise.warmup import warm_up

log = logging.getLogger("glm53ctl")

MEMBERS_SECONDS = 0.4
"""The least between two looks at the engine's processes: a little less than a serving tick."""
SEARCH_SECONDS = 30.0
"""How often a serving engine's processes are searched anew: that reads all of the host's."""
COUNTERS_SECONDS = 2.0
IDLE_COUNTERS_SECONDS = 6.0
"""While nothing runs: what a wedge is counted from may be noticed that much later."""
FABRIC_SECONDS = 30.0
HTTP_SECONDS = 3.0
EVIDENCE_LINES = 30
"""Written down with a loss; the log of the epoch has the others."""


@dataclass
class Epoch:
    """State of one epoch on one rank."""

    config: Config
    rank: int
    number: int
    link: PairLink
    plan: RankPlan
    environ: Mapping[str, str]
    tracker: StageTracker
    peer_runs: dict[int, str]
    fabric: Fabric | None = None
    others: tuple[NodeFacts, ...] = ()
    """What the other nodes looked like at the start."""
    remarks: tuple[Finding, ...] = ()
    """What was found at the start and did not stop it."""
    engine: EngineProcess | None = None
    ended: Loss | None = None
    """The peer's word that the epoch is over."""
    head_is_ready: bool = False
    counters: Counters | None = None
    drifted: tuple[Finding, ...] = ()
    """What of the fabric is no longer as it was at the start."""
    warmup: asyncio.Task[tuple[Finding, ...]] | None = None
    canary: asyncio.Task[str] | None = None
    launched_at: float = field(default_factory=time.time)
    ready_at: float | None = None
    _served_since: float | None = None
    _members: dict[int, Member] = field(default_factory=dict)
    _members_at: float = 0.0
    _searched_at: float = 0.0
    _stopped_since: float | None = None
    _watch: ProgressWatch = field(init=False)
    _polls: list[asyncio.Task[None]] = field(default_factory=list)
    _wedged: bool = False
    _api_key: str | None = None

    def __post_init__(self) -> None:
        self._watch = ProgressWatch(self.config.supervise.wedge_seconds)

    @classmethod
    def prepare(
        cls,
        config: Config,
        rank: int,
        number: int,
        link: PairLink,
        environ: Mapping[str, str],
        facts: Sequence[NodeFacts],
    ) -> "Epoch":
        """Fix who takes part: a peer that comes back as another run ends this epoch.

        `facts` are those of all nodes by rank; none when all ranks are on this host.
        """
        runs = {r: p.identity.run_id for r, p in link.peers.items() if p.identity is not None}
        tracker = StageTracker(config.supervise.limits, time.monotonic())
        found = fabric_of_pair(config, facts)[rank] if facts else fabric_here(config, rank)
        device = device_of(config.nodes[rank].address)
        plan = plan_rank(found.applied_to(weights.resolved(config), rank), rank, device)
        others = tuple(one for one in facts if one.rank != rank)
        remarks = tuple(check_fabric(config, facts))
        return cls(
            config, rank, number, link, plan, environ, tracker, runs, found.fabric, others, remarks
        )

    async def launch(self) -> None:
        """Start the engine; keep its log and drop the oldest ones.

        Raises UserError for a secret that cannot be read, OSError when no process can be made.
        """
        logs = Path(self.config.paths.state_dir) / "logs"
        log = logs / f"rank{self.rank}-{self.number:06d}.log"
        kept = sorted(logs.glob(f"rank{self.rank}-*.log*"))
        for old in kept[: max(0, len(kept) + 1 - self.config.supervise.keep_logs)]:
            with contextlib.suppress(OSError):  # they are only in the way
                old.unlink()

        def take(line: str) -> None:
            if self.tracker.feed(line, time.monotonic()):
                self.link.changed.set()

        environment = launch_env(self.plan, self.environ)
        self._api_key = environment.get(API_KEY)
        self.engine = await EngineProcess.start(
            self.plan.argv, environment, log, take, self.link.changed.set
        )

    # --- judging --------------------------------------------------------------------------------

    def judge(self) -> Loss | None:
        """Return why the epoch is over, or None while all is well."""
        now = time.monotonic()
        return (
            self.ended
            or self._engine_loss(now)
            or self.peer_loss()
            or self._memory_loss()
            or self._stall_loss(now)
            or self._canary_loss()
            or self._wedge_loss()
        )

    def loss(
        self, code: str, message: str, *, rank: int | None = None, commanded: bool = False
    ) -> Loss:
        """Make the cause; `rank` is whose crash it is (default: this one's)."""
        lines = list(self.engine.last_lines) if self.engine and not commanded else []
        return Loss(
            code=code,
            message=message,
            rank=self.rank if rank is None else rank,
            epoch=self.number,
            at=time.time(),
            commanded=commanded,
            evidence=tuple(lines[-EVIDENCE_LINES:]),
            cause=explain_lines(lines, self.tracker.stage),
        )

    def _engine_loss(self, now: float) -> Loss | None:
        engine = self.engine
        if engine is None:
            return None
        if engine.ended.is_set():
            return self.loss("RANK_LOST", f"the engine of rank {self.rank} {_ending(engine)}")
        if now - self._members_at < MEMBERS_SECONDS:
            return None
        self._members_at = now
        anew = self._served_since is None or now - self._searched_at >= SEARCH_SECONDS
        self._searched_at = now if anew else self._searched_at
        members = {member.pid: member for member in engine.members(anew=anew)}
        gone = [m for pid, m in self._members.items() if pid not in members]
        self._members = members
        if gone:
            who = f"{gone[0].title} (pid {gone[0].pid})"
            return self.loss("RANK_LOST", f"{who} of rank {self.rank} is gone")
        return self._frozen_loss(now)

    def _frozen_loss(self, now: float) -> Loss | None:
        stopped = [member for member in self._members.values() if member.stopped]
        if not stopped:
            self._stopped_since = None
            return None
        self._stopped_since = self._stopped_since or now
        seconds = now - self._stopped_since
        if seconds < self.config.supervise.frozen_seconds:
            return None
        who = f"{stopped[0].title} (pid {stopped[0].pid})"
        return self.loss(
            "ENGINE_WEDGED", f"{who} of rank {self.rank} has been stopped for {seconds:.0f} s"
        )

    def peer_loss(self) -> Loss | None:
        """Return the loss of a peer that began this epoch, if one is gone."""
        now = time.monotonic()
        for rank, run in self.peer_runs.items():
            reason = self.link.peers[rank].lost(self.config.link, run, now)
            if reason is not None:
                name = self.config.nodes[rank].name
                stopped = self.link.peers[rank].left
                return self.loss(
                    "RANK_LOST", f"rank {rank} on {name}: {reason}", rank=rank, commanded=stopped
                )
            if (report := self.link.peers[rank].report) is not None and self._ended_in(report):
                said = report.last_loss
                return (
                    said
                    if said is not None and said.epoch == self.number
                    else self.loss(
                        "RANK_LOST", f"rank {rank} has ended the epoch", rank=rank, commanded=True
                    )
                )
        return None

    def _ended_in(self, report: RankReport) -> bool:
        """Say whether a peer is done with this epoch: its word for it goes with its connection."""
        if report.epoch == self.number:
            return report.phase not in (Phase.STARTING, Phase.READY, Phase.ENDING)
        return report.epoch > self.number

    def _memory_loss(self) -> Loss | None:
        available, floor = available_gib(), self.config.memory.floor_gib
        if available >= floor:
            return None
        return self.loss(
            "MEM_FLOOR", f"{available:.2f} GiB of memory are left, the floor is {floor:.2f}"
        )

    def _stall_loss(self, now: float) -> Loss | None:
        # Once loaded, a worker prints nothing more: from there on the head's limits hold for it.
        if self.rank != 0 and ORDER.index(self.tracker.stage) > ORDER.index(Stage.LOAD):
            return None
        code = self.tracker.stalled(now)
        if code is None:
            return None
        quiet = now - self.tracker.last_progress
        return self.loss(code, f"no progress in stage {self.tracker.stage.value} for {quiet:.0f} s")

    def _canary_loss(self) -> Loss | None:
        if self.canary is None or not self.canary.done():
            return None
        error = self.canary.exception()
        if isinstance(error, CanaryError):
            return self.loss(error.code, error.message)
        if error is not None:
            raise error
        return None

    def _wedge_loss(self) -> Loss | None:
        if not self._wedged:
            return None
        limit = self.config.supervise.wedge_seconds
        return self.loss(
            "ENGINE_WEDGED", f"requests are running and no counter moved for {limit:.0f} s"
        )

    # --- becoming ready -------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Say whether the pair has answered: the canary on the head, the head's word elsewhere."""
        if self.rank != 0:
            return self.head_is_ready or self._head_says_so()
        if self.tracker.stage is Stage.WARMUP and self._is_warm():
            self.tracker.enter(Stage.CANARY, time.monotonic())
        if self.tracker.stage is Stage.CANARY and self.canary is None:
            limit = self.config.supervise.limits.canary
            asked = ask_canary(self._target(), self.config.canary, limit, patient=True)
            self.canary = asyncio.create_task(asked)
            self.canary.add_done_callback(lambda _: self.link.changed.set())
        return self.canary is not None and self.canary.done() and not self.canary.exception()

    def _head_says_so(self) -> bool:
        """Say whether the head's beat tells it: its word is lost when the link is made anew."""
        head = self.link.peers[0].report
        return head is not None and head.epoch == self.number and head.phase is Phase.READY

    def _is_warm(self) -> bool:
        """Say whether the requests before the canary are done, if there are any."""
        if not self.config.warmup.enable:
            return True
        if self.warmup is None:
            self.warmup = asyncio.create_task(warm_up(self._target(), self.config, self._count))
            self.warmup.add_done_callback(lambda _: self.link.changed.set())
        if not self.warmup.done():
            return False
        self.remarks += self.warmup.result()
        return True

    def _count(self, done: int, everything: int) -> None:
        if self.tracker.count(done, everything, time.monotonic()):
            self.link.changed.set()

    def _target(self) -> Target:
        return Target(
            base_url=self.plan.base_url or "",
            model=self.config.serve.model_name,
            headers=authorization(self._api_key),
            speculates=self.config.spec_tokens > 0,
        )

    def serve(self) -> None:
        """Note that the pair serves from now on, and watch its counters on the head."""
        self._served_since = time.monotonic()
        self.tracker.enter(Stage.SERVING, self._served_since)
        self.ready_at = time.time()
        polls = [self._poll_fabric, *([self._poll_counters] if self.rank == 0 else [])]
        self._polls = [asyncio.create_task(_kept_up(poll)) for poll in polls]

    def concerns(self) -> tuple[Finding, ...]:
        """Return what was found at the start and since, and keeps nobody from serving."""
        seen = self.counters or Counters()
        draft = judge_totals(seen.drafts, seen.accepted_at)
        return (*self.remarks, *self.drifted, *((draft,) if draft is not None else ()))

    async def _poll_fabric(self) -> None:
        """Notice a cable, an address or a GID that is not what the engine was started with."""
        far = rails_of(self.config, self.others)
        known = {(finding.code, finding.where) for finding in self.remarks}
        while self.fabric is not None:
            await pause(FABRIC_SECONDS)
            now = await asyncio.to_thread(probe_links, self.config, self.rank, far)
            found = drifted(self.config, self.fabric, now, self.others)
            self.drifted = tuple(f for f in found if (f.code, f.where) not in known)

    async def _poll_counters(self) -> None:
        base_url = self.plan.base_url or ""
        headers = authorization(self._api_key)
        async with engine_client(base_url, headers, HTTP_SECONDS) as client:
            while True:
                counters = await read_counters(client)
                self.counters = counters or self.counters
                self._wedged = self._watch.feed(counters, time.monotonic())
                rests = counters is not None and counters.idle
                await pause(IDLE_COUNTERS_SECONDS if rests else COUNTERS_SECONDS)

    # --- ending and telling ---------------------------------------------------------------------

    async def end(self, grace_seconds: float) -> None:
        """End everything that belongs to this epoch."""
        for task in (self.warmup, self.canary, *self._polls):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        if self.engine is not None:
            await self.engine.end(grace_seconds)

    def served_seconds(self) -> float:
        """Return how long the pair has served in this epoch."""
        return 0.0 if self._served_since is None else time.monotonic() - self._served_since

    def seconds_left(self) -> float:
        """Return how long the current stage may still take."""
        return self.tracker.remaining(time.monotonic())

    def processes(self) -> dict[str, Any]:
        """Return the fields of an EngineReport that an epoch fills."""
        return {
            "pid": self.engine.pid if self.engine is not None else None,
            "processes": {m.pid: m.title for m in self._members.values()},
        }

    def progress(self) -> dict[str, Any]:
        """Return the fields of a RankReport that an epoch fills."""
        left = self.seconds_left()
        return {
            "stage": self.tracker.stage,
            "percent": self.tracker.percent,
            "compiling": self.tracker.compiling,
            "stage_seconds_left": None if left == float("inf") else round(left, 1),
            "ready_at": self.ready_at,
            "start_seconds": round(self.ready_at - self.launched_at, 1) if self.ready_at else None,
            "counters": self.counters,
        }


async def _kept_up(poll: Callable[[], Awaitable[None]]) -> None:
    """Poll to the end, anew after an error: that is in the journal, and costs no epoch."""
    while True:
        try:
            return await poll()
        except Exception:
            log.exception("what the engine or its fabric does could not be read")
        await pause(FABRIC_SECONDS)


def _ending(engine: EngineProcess) -> str:
    """Say how an engine ended. Exit code 0 is no comfort: every crash path of vLLM ends with it."""
    if engine.failure:
        return f"could not be started: {engine.failure}"
    if engine.exit_code is None:
        return "is gone with its guard"
    if engine.exit_code < 0:
        return f"was killed by signal {-engine.exit_code}"
    return f"exited by itself (status {engine.exit_code})"
