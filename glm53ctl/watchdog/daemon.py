"""The loop of the watchdog: look at every rank of this host, judge, act, tell.

It never repairs itself. Whatever it cannot go on with ends it with one sentence, and systemd
starts it anew.
"""

import asyncio
import contextlib
import logging
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from glm53ctl.config.schema import Config
from glm53ctl.config.sources import current_override
from glm53ctl.errors import UserError
from glm53ctl.facts.host import known
from glm53ctl.facts.memory import gib, probe_memory
from glm53ctl.findings import Finding, Severity
from glm53ctl.supervise import control
from glm53ctl.supervise.ledger import Incident, append_incident
from glm53ctl.supervise.notify import Notifier
from glm53ctl.supervise.report import Counters, RankReport
from glm53ctl.watchdog.budget import Budget
from glm53ctl.watchdog.bus import SOCKET, Bus, UnitState
from glm53ctl.watchdog.memory import MemoryGuard, MemoryStage, Reading
from glm53ctl.watchdog.power import PowerMeter
from glm53ctl.watchdog.probe import Probed, probe
from glm53ctl.watchdog.report import Refusal, WatchdogReport, write_report
from glm53ctl.watchdog.rules import Look, Probe, RankRules, Remedy, Trouble, Verdict

log = logging.getLogger("glm53ctl")

LOOK_SECONDS = 2.0
NEWS_SECONDS = 0.2
"""Pause after news: systemd says several things about one change."""
SUPERVISOR_FIRST_SECONDS = 5.0
"""Below the floor the supervisor ends the epoch within a second; after this it does not."""
KILL_AGAIN_SECONDS = 30.0
TARGET = "glm53.target"
_RANK_UNIT = re.compile(r"glm53-rank(\d)\.service")
_BUDGET_FILE = "watchdog.json"


@dataclass
class Watchdog:
    """Watches the ranks of this host until SIGTERM. `load` reads the configuration anew."""

    load: Callable[[], Config]
    socket: Path = SOCKET
    config: Config = field(init=False)
    guard: MemoryGuard = field(init=False)
    budget: Budget = field(init=False)
    rules: dict[int, RankRules] = field(default_factory=dict)
    meter: PowerMeter = field(default_factory=PowerMeter)
    notifier: Notifier = field(default_factory=Notifier)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: bool = False
    _bus: Bus = field(init=False)
    _epoch: int = 0
    _probe: asyncio.Task[Probed] | None = None
    _probed_at: Counters | None = None
    _killed_at: dict[int, float] = field(default_factory=dict)
    _said: dict[str, str] = field(default_factory=dict)
    _available: float | None = None

    async def run(self) -> None:
        """Watch. Raises UserError when the service manager cannot be reached."""
        self.config = self.load()
        if not self.config.watchdog.enabled:
            log.info("watchdog.enabled is false: nothing is watched")
            self.notifier.ready()
            return
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._stop)
        self._bus = await Bus.connect(self.changed, self.socket)
        state = Path(self.config.paths.state_dir)
        self.guard = MemoryGuard(self.config)
        self.budget = Budget(
            self.config.watchdog, state / _BUDGET_FILE, time.monotonic(), time.time()
        )
        self.notifier.ready()
        stop_page = self._serve_page()
        try:
            while not self.stopping:
                await self._look()
                self.notifier.alive()
                await self._pause()
        finally:
            if self._probe is not None:
                self._probe.cancel()
            await asyncio.to_thread(stop_page)
            await self._bus.close()

    def _serve_page(self) -> Callable[[], object]:
        """Serve the page from a thread of its own; return what ends it.

        Whatever goes wrong with it is in the journal, and the watch goes on without it.
        """
        if not self.config.page.enabled:
            return lambda: None
        try:
            from glm53ctl.page.serve import PageServer
            from glm53ctl.view.collect import Gatherer

            page = PageServer(self.config, Gatherer(lambda: self.config).view)
            page.start()
        except Exception:
            log.exception("the page is not served")
            return lambda: None
        return page.stop

    def _stop(self) -> None:
        self.stopping = True
        self.notifier.stopping()
        self.changed.set()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self.changed.wait()
            await asyncio.sleep(NEWS_SECONDS)
        self.changed.clear()

    # --- looking --------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Look at everything once, act where it is due, and leave a report."""
        units = await self._bus.units()
        wanted = TARGET in units and units[TARGET].active == "active"
        self._feed_guard()
        troubles: list[Trouble] = []
        for rank, unit in sorted(_ranks(units).items()):
            if rank >= self.config.world_size:
                continue
            report = await self._ask(rank) if unit.pid else None
            self._follow_configuration(report)
            rules = self.rules.setdefault(rank, RankRules(rank, self.config, self.budget))
            look = await self._see(rules, wanted, unit, report)
            verdict = rules.judge(look)
            if verdict.trouble is not None:
                troubles.append(verdict.trouble)
            await self._act(rules, look, verdict)
            if self._is_short(time.monotonic()):
                await self._stop_for_memory(rank, unit, report)
            if self._probe is None and report is not None and rules.wants_probe(look):
                self._probed_at = report.counters
                self._probe = asyncio.create_task(probe(self.config, report))
                self._probe.add_done_callback(lambda _: self.changed.set())
        self._tell(units, troubles)

    async def _ask(self, rank: int) -> RankReport | None:
        path = control.socket_path(Path(self.config.paths.run_dir), rank)
        request = control.Request(action="report")
        answer = await asyncio.to_thread(control.ask, path, request)
        return answer.report if answer is not None else None

    def _follow_configuration(self, report: RankReport | None) -> None:
        """Read the configuration anew with each epoch: a restart may have changed it.

        An epoch after a loss has not; what is really served, its report says to the probe.
        """
        if report is None or report.epoch == self._epoch:
            return
        self._epoch = report.epoch
        try:
            self.config = self.load()
        except UserError as error:  # the supervisor says so too, and louder
            log.warning("the configuration of the last epoch is kept: %s", error)
        self.guard.config = self.config
        for rules in self.rules.values():
            rules.config = self.config

    async def _see(
        self, rules: RankRules, wanted: bool, unit: UnitState, report: RankReport | None
    ) -> Look:
        result, error = self._probe_result(report) if rules.rank == 0 else (None, "")
        return Look(
            now=time.monotonic(),
            wanted=wanted,
            unit=unit,
            report=report,
            probe=result,
            probe_error=error,
            watts=await self.meter.watts() if rules.suspects(report) else None,
        )

    def _probe_result(self, report: RankReport | None) -> tuple[Probe | None, str]:
        """Return what a probe that has ended showed."""
        if self._probe is None or not self._probe.done():
            return None, ""
        probed, self._probe = self._probe.result(), None
        counters = report.counters if report is not None else None
        if probed.timed_out and _moved(self._probed_at, counters):
            return Probe.UNCLEAR, "the engine was at work for others"
        if probed.verdict is not Probe.GOOD:
            log.warning("a probe is %s: %s", probed.verdict.value, probed.error)
        return probed.verdict, probed.error

    # --- acting ---------------------------------------------------------------------------------

    async def _act(self, rules: RankRules, look: Look, verdict: Verdict) -> None:
        """Carry out a remedy and write it down."""
        if verdict.remedy is None or verdict.trouble is None:
            return
        trouble = verdict.trouble
        if verdict.remedy is Remedy.ORDER:
            action = "ordered the supervisor to begin a new epoch"
            done = await self._order(rules.rank)
        else:
            action = f"restarted {rules.unit_name}"
            done = await self._by_bus(self._bus.restart, rules.unit_name)
        self._record(rules.rank, look.report, trouble, action if done else f"failed: {action}")

    async def _order(self, rank: int) -> bool:
        # With the settings of this one run: the operator did not take them back.
        request = control.Request(action="restart", overrides=current_override(self.config))
        path = control.socket_path(Path(self.config.paths.run_dir), rank)
        return await asyncio.to_thread(control.ask, path, request) is not None

    async def _by_bus(self, verb: Callable[[str], Awaitable[None]], unit: str) -> bool:
        try:
            await verb(unit)
        except UserError as error:
            if error.code != "BUS_REFUSED":
                raise
            log.error("%s", error)
            return False
        return True

    async def _stop_for_memory(self, rank: int, unit: UnitState, report: RankReport | None) -> None:
        """Kill a rank whose supervisor does not end its engine by itself.

        The new supervisor waits until `memory.start_gib` is there.
        """
        now = time.monotonic()
        has_engine = unit.pid > 0 and (report is None or report.engine.pid is not None)
        recent = now - self._killed_at.get(rank, -KILL_AGAIN_SECONDS) < KILL_AGAIN_SECONDS
        if not has_engine or recent:
            return
        self._killed_at[rank] = now
        trouble = Trouble("MEM_GUARD", self._memory_words(), Remedy.RESTART)
        done = await self._by_bus(self._bus.kill, unit.name)
        self._record(rank, report, trouble, f"{'killed' if done else 'failed to kill'} {unit.name}")

    def _record(self, rank: int, report: RankReport | None, trouble: Trouble, action: str) -> None:
        log.error("%s: %s; %s", trouble.code, trouble.message, action)
        incident = Incident(
            code=trouble.code,
            message=trouble.message,
            rank=rank,
            epoch=report.epoch if report is not None else self._epoch,
            at=time.time(),
            evidence=(report.model_dump_json(include={"phase", "counters"}),) if report else (),
            seen_by="watchdog",
            action=action,
        )
        append_incident(Path(self.config.paths.state_dir), incident)

    # --- memory ---------------------------------------------------------------------------------

    def _feed_guard(self) -> None:
        facts = known(probe_memory())
        if facts is None:
            return
        self._available = gib(facts.available)
        reading = Reading(self._available, facts.pressure_full)
        self.guard.feed(reading, time.monotonic())

    def _is_short(self, now: float) -> bool:
        """Say whether memory is short now, and for longer than the supervisor needs to act."""
        since = self.guard.short_since
        return since is not None and now - since >= SUPERVISOR_FIRST_SECONDS

    def _memory_words(self) -> str:
        floor = self.config.memory.floor_gib
        return f"{self._available or 0:.1f} GiB of memory are available, the floor is {floor:.1f}"

    def _memory_findings(self) -> list[Finding]:
        codes = {
            MemoryStage.WARN: ("MEM_LOW", Severity.WARN),
            MemoryStage.REFUSE: ("MEM_REFUSING", Severity.WARN),
            MemoryStage.STOP: ("MEM_GUARD", Severity.FAIL),
        }
        if self.guard.stage not in codes:
            return []
        code, severity = codes[self.guard.stage]
        fix = "Stop what else runs on this machine, or send less at once."
        return [Finding(code=code, severity=severity, message=f"{self._memory_words()}.", fix=fix)]

    # --- telling --------------------------------------------------------------------------------

    def _tell(self, units: dict[str, UnitState], troubles: list[Trouble]) -> None:
        findings = [*(trouble.finding() for trouble in troubles), *self._memory_findings()]
        refuses = None
        if self.guard.stage >= MemoryStage.REFUSE:
            refuses = Refusal(reason=self._memory_words())
        report = WatchdogReport(
            pid=os.getpid(),
            beat=time.monotonic(),
            watches=tuple(sorted(_ranks(units))),
            memory=self.guard.stage.name.lower(),
            memory_available_gib=self._available,
            refuses=refuses,
            findings=tuple(findings),
        )
        try:
            write_report(Path(self.config.paths.run_dir), report)
        except OSError as error:
            log.warning("the report cannot be written: %s", error)
        self._log_news(findings)
        self.notifier.status(findings[0].sentence() if findings else "all well")

    def _log_news(self, findings: list[Finding]) -> None:
        """Log what is new and what is over, each once."""
        current = {finding.code: finding.sentence() for finding in findings}
        for code in current.keys() - self._said.keys():
            log.warning("%s", current[code])
        for code in self._said.keys() - current.keys():
            log.info("%s: over", code)
        self._said = current


def _ranks(units: dict[str, UnitState]) -> dict[int, UnitState]:
    """Return the rank units among these, by rank."""
    found = {name: _RANK_UNIT.fullmatch(name) for name in units}
    return {int(match[1]): units[name] for name, match in found.items() if match}


def _moved(before: Counters | None, after: Counters | None) -> bool:
    """Say whether the engine did something: anything but the API server's own count."""
    if before is None or after is None:
        return False
    return before != after.model_copy(update={"in_flight": before.in_flight})
