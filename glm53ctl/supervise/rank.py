"""The life of one rank: pair, launch, watch, end, and again.

The head decides when an epoch begins; either side can end it. Everything that waits goes through
`_tick`, which also feeds the service manager: a supervisor that hangs is thereby noticed.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from glm53ctl.checks.start import check_fabric, check_start, have_met, rails_of
from glm53ctl.config.schema import Config
from glm53ctl.config.sources import (
    Switched,
    clear_override,
    current_override,
    current_switch,
    write_override,
    write_switch,
)
from glm53ctl.engine.check import engine_version
from glm53ctl.errors import UserError
from glm53ctl.facts.memory import available_gib
from glm53ctl.facts.node import NodeFacts
from glm53ctl.findings import Finding, Severity
from glm53ctl.supervise import control, reasons
from glm53ctl.supervise.engine import KILL_WAIT_SECONDS
from glm53ctl.supervise.epoch import Epoch
from glm53ctl.supervise.identity import Identity, boot_id, identify
from glm53ctl.supervise.ledger import Ledger, next_backoff
from glm53ctl.supervise.link import PairLink
from glm53ctl.supervise.notify import Notifier
from glm53ctl.supervise.pace import until_next
from glm53ctl.supervise.post import REACH_SECONDS, Post
from glm53ctl.supervise.proctree import adopt_orphans, stale_processes, still_there
from glm53ctl.supervise.report import EngineReport, Loss, Phase, RankReport, TrialState
from glm53ctl.supervise.secrets import pair_token
from glm53ctl.supervise.selfcheck import LEFT_OUT, is_wanted
from glm53ctl.supervise.survey import Survey
from glm53ctl.supervise.trial import Trials
from glm53ctl.supervise.wire import Channel, Command, End, Facts, Launch, Leave, Ready
from glm53ctl.weights.local import quick_digest

log = logging.getLogger("glm53ctl")

TICK_SECONDS = 0.25
SERVING_TICK_SECONDS = 0.5
"""What ends while the pair serves says so itself; this is for what only a look can tell."""
CHECK_SECONDS = 2.0
"""How often a blocked node looks again."""
JOIN_SECONDS = 15.0
"""How long a worker may take to start its engine after the head asked."""
REMEMBERED_ORDERS = 64
"""So many ids are kept to know an order that comes again: it does within seconds."""


@dataclass
class RankSupervisor:
    """Supervises one rank until it is told to stop.

    `load` reads the configuration anew: at the start, and after `restart`.
    """

    rank: int
    load: Callable[[], Config]
    config: Config = field(init=False)
    ledger: Ledger = field(init=False)
    link: PairLink = field(init=False)
    identity: Identity = field(init=False)
    survey: Survey = field(init=False)
    trials: Trials = field(init=False)
    phase: Phase = Phase.PAIRING
    since: float = field(default_factory=time.time)
    findings: tuple[Finding, ...] = ()
    epoch: Epoch | None = None
    last_loss: Loss | None = None
    stopping: bool = False
    reload: bool = False
    order: Command | None = None
    launch: Launch | None = None
    losses_in_a_row: int = 0
    retry_at: float | None = None
    notifier: Notifier = field(default_factory=Notifier)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    posts: defaultdict[int, Post] = field(default_factory=lambda: defaultdict(Post))
    _received: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED_ORDERS))
    _checked: tuple[float, tuple[Finding, ...]] = (0.0, ())
    _compared: float = 0.0
    _weights: str = ""
    _switched: Switched = field(default_factory=Switched)
    _entered: float = field(default_factory=time.monotonic)
    _stale: list[psutil.Process] = field(default_factory=list)

    # --- the outer life -------------------------------------------------------------------------

    async def run(self) -> None:
        """Live until SIGTERM, SIGINT or `stop`."""
        adopt_orphans()
        self.config = self.load()
        self.trials = Trials(Path(self.config.paths.state_dir))
        if self.rank == 0 and self.trials.running is not None:
            self.trials.undo("the head's supervisor ended in the middle of it", epoch=0)
            self.config = self.load()
        self._switched = current_switch(self.config)
        self.survey = Survey(self.rank)
        self.identity = await self._first_identity()
        self.link = self._make_link(token=b"")  # not opened: something to report from
        self._open_ledger()
        self.ledger.note_start(boot_id())
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._stop)
        path = control.socket_path(Path(self.config.paths.run_dir), self.rank)
        server = await control.serve(path, self._answer)
        try:
            while not self.stopping:
                await self._session()
            self.ledger.note_stop(boot_id())
        finally:
            self._enter(Phase.STOPPED)
            server.close()
            path.unlink(missing_ok=True)

    def _open_ledger(self) -> None:
        self.ledger = Ledger(Path(self.config.paths.state_dir), self.rank, self.config.supervise)
        losses = [loss for loss in self.ledger.incidents() if not loss.commanded]
        self.last_loss = losses[-1] if losses else None

    def _stop(self) -> None:
        self.stopping = True
        self.notifier.stopping()
        self.changed.set()

    async def _session(self) -> None:
        """Run with one configuration until it is to be read anew."""
        if self.reload:
            self.reload = False
            # First, so that it is never newer than what is loaded: ranks of one host share it.
            self._switched = current_switch(self.config)
            try:
                self.config = self.load()
                self._checked = (0.0, ())  # of another configuration
            except UserError as error:
                self.reload = True
                await self._blocked(reasons.refused(error))
                return
        try:
            token = pair_token(self.config, os.environ)
        except UserError as error:
            await self._blocked(reasons.refused(error))
            return
        try:
            self.identity = await asyncio.to_thread(self._identify)
        except OSError as error:
            await self._blocked(reasons.unreadable(error))
            return
        self._weights = self.identity.weights_digest
        self.link = self._make_link(token)
        try:
            await self.link.open()
        except OSError:
            await self._blocked(reasons.link_port_taken(self.config))
            return
        try:
            while not (self.stopping or self.reload or self._weights_changed()):
                await self._round()
        finally:
            await self.link.close(returns=not self.stopping)
            self._take_messages()  # an order is confirmed: it holds over the link that follows
            self.launch = None

    def _make_link(self, token: bytes) -> PairLink:
        return PairLink(
            self.config,
            self.rank,
            token,
            self.identity,
            self._own_report,
            self.changed,
            current_override(self.config),
            self._switched,
            self.posts,
        )

    async def _first_identity(self) -> Identity:
        """Return who this is even where nothing can be read: then there is a status to say so."""
        try:
            return await asyncio.to_thread(self._identify)
        except OSError:
            unread = {"engine_version": "unknown", "closure": "", "weights": ""}
            return identify(self.config, self.rank, self.run_id, **unread)

    def _identify(self) -> Identity:
        """Read who this is. Raises OSError."""
        return identify(
            self.config,
            self.rank,
            self.run_id,
            engine_version=engine_version(Path(self.config.engine.prefix)) or "not installed",
            closure=os.environ.get("GLM53_CLOSURE", ""),
            weights=quick_digest(Path(self.config.weights.model_dir)),
        )

    async def _blocked(self, finding: Finding) -> None:
        """Wait before looking again; orders are taken all the same."""
        self._enter(Phase.BLOCKED, finding)
        await self._tick(CHECK_SECONDS)
        if self.order is not None:
            await self._carry_out(self.order)

    # --- between two epochs ---------------------------------------------------------------------

    async def _round(self) -> None:
        """Look what stands in the way of an epoch; run one if nothing does."""
        self._take_messages()
        if self.order is not None:
            await self._carry_out(self.order)
            return
        phase, findings = self._hindrance()
        if phase is Phase.REFUSED and self._was_edited():
            self.reload = True
            return
        if phase is Phase.PAIRING and self.config.spans_hosts:
            await self._while(self.survey.look_out(self.config), until_ordered=True)
        if phase is None:
            await self._look_around()
            phase, findings = self._fabric_hindrance()
        launch = self._next_epoch() if phase is None else None
        self.launch = None  # an order to launch holds now or not at all
        if launch is None:
            self._enter(phase or Phase.WAITING, *findings)
            await self._tick()
            return
        await self._run_epoch(launch)

    async def _look_around(self) -> None:
        """Look at this node again if it is time, and tell the others what was seen."""
        others = [peer.facts for peer in self.link.peers.values() if peer.facts is not None]
        far = rails_of(self.config, others)
        ordered = self.launch is not None and self.survey.has_looked
        if ordered or not self.survey.is_due(far):
            return
        self._enter(Phase.WAITING)
        await self._while(self.survey.take(self.config, far), until_ordered=True)
        if self.survey.facts is not None:
            await self.link.broadcast(Facts(facts=self.survey.facts))

    def _forget_others(self) -> None:
        """Wait for what the others see now: they look anew, too."""
        for peer in self.link.peers.values():
            peer.facts = None

    def _known_facts(self) -> tuple[NodeFacts, ...] | None:
        """Return the facts of all nodes, the head's first; None while some are missing (head)."""
        if not self.config.spans_hosts:
            return ()
        facts = [self.survey.facts, *(self.link.peers[r].facts for r in sorted(self.link.peers))]
        known = tuple(fact for fact in facts if fact is not None)
        return known if len(known) == len(facts) and have_met(self.config, known) else None

    def _fabric_hindrance(self) -> tuple[Phase | None, tuple[Finding, ...]]:
        """Return what was found wrong here, or with the facts of all nodes together (head)."""
        if self.survey.fault is not None:
            return Phase.BLOCKED, (self.survey.fault,)
        facts = self._known_facts() if self.rank == 0 else None
        found = tuple(check_fabric(self.config, facts)) if facts else ()
        stops = any(finding.severity is Severity.FAIL for finding in found)
        return (Phase.BLOCKED, found) if stops else (None, ())

    def _hindrance(self) -> tuple[Phase | None, tuple[Finding, ...]]:
        """Return what forbids an epoch now, the most telling first."""
        if self.ledger.held is not None:
            return Phase.HELD, (reasons.held(self.ledger.held),)
        if (blocked := self._start_findings()) or self._weights_changed():
            return Phase.BLOCKED, blocked
        if refusals := self.link.refusals(time.monotonic()):
            return Phase.REFUSED, refusals
        if not self.link.complete:
            return Phase.PAIRING, self._absent()
        held = tuple(
            reasons.peer_held(self.config, rank, peer.report)
            for rank, peer in self.link.peers.items()
            if peer.report is not None and peer.report.phase is Phase.HELD
        )
        if held and self.launch is None:  # a held head orders no launch: its beat is old then
            return Phase.WAITING, held
        return None, ()

    def _start_findings(self) -> tuple[Finding, ...]:
        """Check this node at most every CHECK_SECONDS: a round is much more frequent."""
        now = time.monotonic()
        if now - self._checked[0] >= CHECK_SECONDS:
            try:
                found = tuple(check_start(self.config, self.rank))
                self._weights = quick_digest(Path(self.config.weights.model_dir))
            except OSError as error:
                found = (reasons.unreadable(error),)
            self._checked = (now, found)
        return self._checked[1]

    def _was_edited(self) -> bool:
        """Say, at most every CHECK_SECONDS, whether the configuration is another than in use.

        Between two nodes that do not fit, that is the remedy, or an order to read it anew was lost.
        """
        now = time.monotonic()
        if now - self._compared < CHECK_SECONDS:
            return False
        self._compared = now
        try:
            return self.load() != self.config
        except UserError:
            return False  # half written; what is in use goes on to be refused

    def _weights_changed(self) -> bool:
        """Say whether this node has other weights than it told the others: then it says so anew."""
        return self._weights != self.identity.weights_digest

    def _absent(self) -> tuple[Finding, ...]:
        waited = time.monotonic() - self._entered if self.phase is Phase.PAIRING else 0.0
        absent = (
            reasons.peer_absent(self.config, rank, waited)
            for rank, peer in self.link.peers.items()
            if not peer.connected
        )
        return (*self.survey.outlook, *absent)

    def _next_epoch(self) -> Launch | None:
        """Return what to begin with, or None while it is not yet time."""
        if self.rank != 0:
            return self.launch
        if self.retry_at is not None and time.monotonic() < self.retry_at:
            return None
        reports = [peer.report for peer in self.link.peers.values()]
        if any(report is None or report.phase is not Phase.WAITING for report in reports):
            return None
        facts = self._known_facts()
        if facts is None:
            return None
        number = 1 + max([self.ledger.epoch, *(r.epoch for r in reports if r is not None)])
        return Launch(epoch=number, facts=facts)

    # --- one epoch ------------------------------------------------------------------------------

    async def _run_epoch(self, launch: Launch) -> None:
        """Launch, watch and end one epoch."""
        self.ledger.begin_epoch(launch.epoch, boot_id())
        self.retry_at = None
        self._enter(Phase.STARTING)
        self.epoch = epoch = Epoch.prepare(
            self.config, self.rank, launch.epoch, self.link, os.environ, launch.facts
        )
        self.survey.forget()
        self._forget_others()
        loss = await self._join(launch, epoch)
        if loss is None:
            loss = await self._launch(epoch) or await self._watch(epoch)
        await self._end_epoch(epoch, loss)
        self.epoch = None

    async def _join(self, launch: Launch, epoch: Epoch) -> Loss | None:
        """Head: let the others start first. A worker's rank waits for the head; not the reverse."""
        if self.rank != 0:
            return None
        said: dict[int, Channel] = {}
        limit = time.monotonic() + JOIN_SECONDS
        while True:
            await self.link.broadcast(launch, said)  # again where the link was made anew meanwhile
            self._take_messages()
            if loss := self._commanded(epoch) or epoch.ended or epoch.peer_loss():
                return loss
            reports = {rank: peer.report for rank, peer in self.link.peers.items()}
            late = [
                rank
                for rank, report in reports.items()
                if report is None or report.epoch != epoch.number or report.engine.pid is None
            ]
            if not late:
                return None
            if time.monotonic() > limit:
                return epoch.loss(
                    "RANK_LOST", f"rank {late[0]} did not start its engine", rank=late[0]
                )
            await self._tick()

    async def _launch(self, epoch: Epoch) -> Loss | None:
        try:
            await epoch.launch()
        except UserError as error:  # a secret that cannot be read
            return epoch.loss(error.code, error.message)
        except OSError as error:
            why = error.strerror or error
            return epoch.loss(
                "LAUNCH_FAILED", f"the engine of rank {self.rank} could not be started: {why}"
            )
        return None

    async def _watch(self, epoch: Epoch) -> Loss:
        """Return the cause that ends the epoch; on the way, make it ready."""
        while True:
            self._take_messages()
            if loss := self._commanded(epoch) or epoch.judge():
                return loss
            if self.phase is Phase.STARTING and epoch.is_ready():
                await self._become_ready(epoch)
            await self._tick(SERVING_TICK_SECONDS if self.phase is Phase.READY else TICK_SECONDS)

    def _commanded(self, epoch: Epoch) -> Loss | None:
        if self.stopping:
            return epoch.loss("STOPPED", "this rank was stopped on command", commanded=True)
        if self.order is not None and self.order.action in ("stop", "restart"):
            word = "stopped" if self.order.action == "stop" else "restarted"
            return epoch.loss("STOPPED", f"the pair was {word} on command", commanded=True)
        return None

    async def _become_ready(self, epoch: Epoch) -> None:
        epoch.serve()
        self._enter(Phase.READY)
        self.ledger.loaded()
        self.notifier.ready()
        await self.link.broadcast(Ready(epoch=epoch.number))

    async def _end_epoch(self, epoch: Epoch, loss: Loss) -> None:
        """End the engine on both sides, and write down why."""
        # Requests can finish only while both halves are there, and only the head has any.
        drains = loss.commanded and loss.rank == self.rank == 0 and self.phase is Phase.READY
        served = epoch.served_seconds()
        self.last_loss = loss if not loss.commanded else self.last_loss
        self._enter(Phase.ENDING)
        log.warning("epoch %d ends: %s: %s", epoch.number, loss.code, loss.message)
        if loss.cause is not None:
            log.warning("%s: %s %s", loss.cause.code, loss.cause.message, loss.cause.fix)
        if not drains:  # the other engine ends now, not after this one
            await self.link.broadcast(End(loss=loss))
        await self._while(epoch.end(self._drain_seconds() if drains else 0.0))
        if drains:
            await self.link.broadcast(End(loss=loss))
        if epoch.engine is not None:
            self._stale = stale_processes(epoch.engine.left)
        self.ledger.record(loss)
        self._plan_retry(loss, served)

    def _plan_retry(self, loss: Loss, served: float) -> None:
        if loss.commanded or served >= self.config.supervise.stable_seconds:
            self.losses_in_a_row = 0
        if not loss.commanded:
            self.losses_in_a_row += 1
            pause = next_backoff(self.config.supervise, self.losses_in_a_row)
            self.retry_at = time.monotonic() + pause

    # --- messages and orders --------------------------------------------------------------------

    def _take_messages(self) -> None:
        while not self.link.inbox.empty():
            sender, message = self.link.inbox.get_nowait()
            match message:
                case Launch() if self.rank != 0 and message.epoch > self.ledger.epoch:
                    self.launch = message
                case Ready() if self.epoch is not None and message.epoch == self.epoch.number:
                    self.epoch.head_is_ready = True
                case End() if self.epoch is not None and message.loss.epoch == self.epoch.number:
                    self.epoch.ended = message.loss
                case End() if self.launch and message.loss.epoch == self.launch.epoch:
                    self.launch = None  # over before it began here
                case Command():
                    self._receive(message)
                case Leave():
                    log.info("rank %d leaves", sender)
                case _:
                    log.debug("rank %d sent %s out of turn", sender, message.type)

    async def _answer(self, request: control.Request) -> control.Answer:
        """Serve the control socket. A worker hands orders to the head, if one is in reach."""
        if request.action != "report":
            trial = request.trial
            order = Command(
                id=request.id,
                action=request.action,
                overrides=request.overrides,
                switched=trial.to if trial is not None else None,
                trial=trial,
                reason=request.reason,
            )
            if self._hands_over():
                await self.link.order(order)
            else:
                self._receive(order)
                self.changed.set()
        return control.Answer(report=self.report())

    def _hands_over(self) -> bool:
        """Say whether a head is in reach, over this link or the next (worker)."""
        stuck = self.phase is Phase.BLOCKED and not self.link.is_open  # a next one is not in sight
        return self.rank != 0 and not stuck and self.link.in_reach()

    def _receive(self, order: Command) -> None:
        """Take an order; what is on trial is decided at once, and a second trial has to wait.

        In an epoch there is nothing to resume, and an order that waits for its end would keep what
        is on trial from being judged. One that waits already is not replaced by one that is less.
        """
        if order.id in self._received:
            return
        self._received.append(order.id)
        if self.order is not None and (order.follows or order.action == "resume"):
            return
        if order.action == "resume" and self.phase in (Phase.STARTING, Phase.READY):
            log.info("nothing is held: there is nothing to resume")
            return
        on_trial, trial = self.trials.running, order.trial
        if on_trial is None or trial is None:
            self.order = order if order.action not in ("keep", "undo") else self.order
        elif on_trial.id != trial.id:
            log.warning("a switch is on trial already; the one to %s is not begun", trial.to)
        elif order.action == "keep" and on_trial.state is TrialState.PROVING:
            self.trials.settle(TrialState.KEPT, self.ledger.epoch)
        elif order.action == "undo":
            self.trials.doom(order.reason or "taken back on command")

    async def _carry_out(self, order: Command) -> None:
        """Do what was ordered, on the head after telling everybody."""
        self.order = None
        if self.rank == 0:  # what it switches to, the others take from its introduction
            await self.link.order(order.model_copy(update={"switched": None, "trial": None}))
        self.losses_in_a_row, self.retry_at = 0, None
        if order.action == "stop":
            if self.rank == 0:
                await self._until_confirmed()
            # After the others: on one host they write down the head's switch and run where it does.
            self.trials.undo("the pair was stopped", self.ledger.epoch)
            with contextlib.suppress(OSError):  # `down` is obeyed whatever a disk says
                clear_override(self.config)
            self._stop()
            return
        if not order.follows:
            self.ledger.resume()  # somebody has looked
            self.survey.verify_again()
            self._forget_others()
        if order.action == "restart":
            self.reload = True
            if self._set_switch(order):
                await self._set_override(order.overrides)

    async def _until_confirmed(self) -> None:
        """Wait for those in reach: once this rank has ended, nobody says the order again."""
        limit = time.monotonic() + REACH_SECONDS
        while self.link.is_owing() and not self.stopping and time.monotonic() < limit:
            await self._tick()

    def _take_back(self) -> None:
        """Take the orders upon oneself that the head has not confirmed and is gone (worker)."""
        for order in self.link.take_back() if self.rank != 0 else ():
            log.warning("the head is gone: %s is carried out here alone", order.action)
            self._receive(order)
            self.changed.set()

    def _set_switch(self, order: Command) -> bool:
        """Keep what the pair is switched to, if anything; False when that fails.

        On trial (head), first note how to go back. What cannot be kept is no trial any more: what
        comes up is what ran before.
        """
        if order.switched is None:
            return True
        if self.rank == 0 and order.reason:
            self.trials.undo(order.reason, self.ledger.epoch)
            return True
        try:
            if self.rank == 0 and order.trial is not None:
                back, run = current_switch(self.config), current_override(self.config)
                trial = order.trial.model_copy(update={"back": back, "back_run": run})
                self.trials.begin(trial, self.last_loss)
            write_switch(self.config, order.switched)
        except OSError as error:
            log.error("the switch to %s cannot be kept: %s", order.switched, error.strerror)
            if self.rank == 0:
                reason = f"it cannot be kept: {error.strerror}"
                self.trials.settle(TrialState.UNDONE, self.ledger.epoch, reason)
            return False
        return True

    def _judge_trial(self) -> None:
        """Order the pair back when what is on trial has failed (head)."""
        if self.rank != 0 or self.trials.running is None or self.order is not None:
            return
        if reason := self.trials.judge(self.report()):
            trial = self.trials.running
            self.order = Command(
                action="restart", overrides=trial.back_run, switched=trial.back, reason=reason
            )
            self.changed.set()

    async def _set_override(self, overrides: tuple[str, ...]) -> None:
        """Keep the settings of the coming run, or forget those of the last."""
        if not overrides:
            clear_override(self.config)
            return
        try:
            write_override(self.config, overrides, self.rank)
        except UserError as error:  # judged where the order was given; this node sees it otherwise
            await self._blocked(reasons.refused(error))
        except OSError as error:
            log.error("the settings of this run cannot be kept: %s", error.strerror)

    # --- telling --------------------------------------------------------------------------------

    def _enter(self, phase: Phase, *findings: Finding) -> None:
        fresh = phase is not self.phase or [f.code for f in findings] != [
            f.code for f in self.findings
        ]
        if phase is not self.phase:
            self.phase, self.since, self._entered = phase, time.time(), time.monotonic()
        self.findings = findings
        if fresh:
            log.info("%s", self._own_report().status_line())
            self.changed.set()

    async def _tick(self, seconds: float = TICK_SECONDS) -> None:
        """Wait for news or for the next multiple of `seconds`, and feed the service manager."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(until_next(seconds)):
                await self.changed.wait()
        self.changed.clear()
        self._take_back()
        self._judge_trial()
        self._stale = still_there(self._stale)
        self.notifier.status(self._own_report().status_line())
        self.notifier.alive()
        if self.phase is not Phase.READY:
            self.notifier.extend(self._seconds_granted())

    def _seconds_granted(self) -> float:
        """Return how long the present phase may last without another tick."""
        if self.phase is Phase.STARTING and self.epoch is not None:
            return self.epoch.seconds_left()
        if self.phase is Phase.ENDING:
            return self._drain_seconds() + KILL_WAIT_SECONDS
        return CHECK_SECONDS

    def _drain_seconds(self) -> float:
        """Return how long the head's engine may take to finish its requests and end."""
        return self.config.serve.drain_seconds + self.config.supervise.stop_grace_seconds

    async def _while(
        self, work: Coroutine[None, None, None], *, until_ordered: bool = False
    ) -> None:
        """Tick until the work is done; it is cancelled when an order comes, if that may be."""
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self.changed.set())
        while not task.done():
            await self._tick()
            if until_ordered and (self.stopping or self.order is not None):
                task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def _own_report(self) -> RankReport:
        """Return this rank's state, without what it knows of others."""
        epoch = self.epoch
        return RankReport(
            rank=self.rank,
            node=self.config.nodes[self.rank].name,
            pid=os.getpid(),
            phase=self.phase,
            since=self.since,
            epoch=epoch.number if epoch is not None else self.ledger.epoch,
            findings=(*self.findings, *self._remarks()),
            last_loss=self.last_loss,
            crashes=self.ledger.crashes(time.time()),
            retry_at=self._retry_time(),
            memory_available_gib=round(available_gib(), 2),
            endpoint=self.config.api.endpoint,
            model=self.config.serve.model_name,
            switched=str(self._switched) if self._switched.holds(self.config) else "",
            trial=self.trials.last if self.rank == 0 else None,
            engine=EngineReport(
                version=self.identity.engine_version,
                **(epoch.processes() if epoch is not None else {}),
            ),
            **(epoch.progress() if epoch is not None else {}),
        )

    def _remarks(self) -> tuple[Finding, ...]:
        """Return what status says beside the phase, whatever that is."""
        left_out = is_wanted(self.config) and not self.config.engine.verify_overlay
        concerns = self.epoch.concerns() if self.epoch is not None else ()
        stale = (reasons.left_behind(self._stale),) if self._stale else ()
        return (*stale, *((LEFT_OUT,) if left_out else ()), *concerns)

    def _retry_time(self) -> float | None:
        """Return the planned relaunch as a Unix time; the plan itself is deaf to clock changes."""
        if self.retry_at is None:
            return None
        return time.time() + self.retry_at - time.monotonic()

    def report(self) -> RankReport:
        """Return this rank's state and its view of the others."""
        now = time.monotonic()
        peers = {rank: peer.view(now) for rank, peer in self.link.peers.items()}
        return self._own_report().model_copy(update={"peers": peers})
