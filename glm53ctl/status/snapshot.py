"""One picture of the pair, gathered from the ranks of this host and what they heard of others."""

import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from glm53ctl import __version__
from glm53ctl.config.schema import Config
from glm53ctl.findings import Finding, Severity
from glm53ctl.supervise import control
from glm53ctl.supervise.ledger import read_incidents
from glm53ctl.supervise.orders import how_to_start
from glm53ctl.supervise.report import Loss, Phase, RankReport
from glm53ctl.watchdog.report import WatchdogReport, read_report


class Snapshot(BaseModel):
    """The state of the pair at one moment. `time` is in Unix seconds."""

    version: str
    time: float
    state: str
    ready: bool
    epoch: int
    endpoint: str
    model: str
    ranks: tuple[RankReport, ...]
    missing: tuple[int, ...]
    findings: tuple[Finding, ...]
    last_loss: Loss | None
    next_step: str
    watchdog: WatchdogReport | None = None


def gather(config: Config) -> Snapshot:
    """Ask every rank that has a control socket here; take the others from their peers' words."""
    run_dir = Path(config.paths.run_dir)
    reports: dict[int, RankReport] = {}
    for rank in range(config.world_size):
        answer = control.ask(control.socket_path(run_dir, rank), control.Request(action="report"))
        if answer is not None and answer.report is not None:
            reports[rank] = answer.report
    losses = [i for i in read_incidents(Path(config.paths.state_dir)) if not i.commanded]
    return assemble(config, reports, time.time(), read_report(run_dir), losses[-1:])


def assemble(
    config: Config,
    local: dict[int, RankReport],
    now: float,
    watchdog: WatchdogReport | None = None,
    recorded: Sequence[Loss] = (),
) -> Snapshot:
    """Put the reports of this host's ranks, and what they heard, into one picture.

    `recorded` are losses of the incident log: with no supervisor left, nobody else knows them.
    """
    heard = {
        rank: view.report
        for report in local.values()
        for rank, view in report.peers.items()
        if view.report is not None and view.state == "connected"
    }
    reports = heard | local
    missing = tuple(rank for rank in range(config.world_size) if rank not in reports)
    ranks = tuple(reports[rank] for rank in sorted(reports))
    losses = [*recorded, *(r.last_loss for r in ranks if r.last_loss is not None)]
    findings = tuple(dict.fromkeys((*_findings(ranks), *(watchdog.findings if watchdog else ()))))
    ready = not missing and all(report.phase is Phase.READY for report in ranks)
    return Snapshot(
        version=__version__,
        time=now,
        state=_state(ranks, ready),
        ready=ready,
        epoch=max((report.epoch for report in ranks), default=0),
        endpoint=config.api.endpoint,
        model=config.serve.model_name,
        ranks=ranks,
        missing=missing,
        findings=findings,
        last_loss=max(losses, key=lambda loss: loss.at, default=None),
        next_step=_next_step(config, ranks, findings, missing, ready),
        watchdog=watchdog,
    )


def _findings(ranks: tuple[RankReport, ...]) -> tuple[Finding, ...]:
    """All findings of all ranks, each once."""
    return tuple(dict.fromkeys(finding for report in ranks for finding in report.findings))


_TELLING = (
    Phase.HELD,
    Phase.BLOCKED,
    Phase.REFUSED,
    Phase.ENDING,
    Phase.STARTING,
    Phase.PAIRING,
    Phase.WAITING,
    Phase.STOPPED,
    Phase.READY,
)
"""The pair is in the first of these phases that any rank is in."""


def _state(ranks: tuple[RankReport, ...], ready: bool) -> str:
    if not ranks:
        return "down"
    if ready:
        return "ready"
    phases = {report.phase for report in ranks} - {Phase.READY}
    return next((phase.value for phase in _TELLING if phase in phases), "pairing")


def _next_step(
    config: Config,
    ranks: tuple[RankReport, ...],
    findings: tuple[Finding, ...],
    missing: tuple[int, ...],
    ready: bool,
) -> str:
    """Return what an operator should do now; empty when nothing."""
    if ready:
        return ""
    stopped = all(report.phase is Phase.STOPPED for report in ranks)  # also when there is none
    if stopped and not any(finding.severity is Severity.FAIL for finding in findings):
        return f"Start the pair: {how_to_start(config)}."
    # What failed is the cause; a warning beside it, such as a peer that has not come, its effect.
    fixes = sorted(
        (finding.severity is not Severity.FAIL, number, finding.fix)
        for number, finding in enumerate(findings)
        if finding.fix
    )
    if fixes:
        return fixes[0][-1]
    if missing:
        return f"Start rank {missing[0]}."
    return "Wait: the pair is on its way."
