"""Snapshots that the tests of this folder look at, and what a terminal shows of them."""

import io
from typing import Any

from rich.console import Console

from glm53ctl.config.schema import Config
from glm53ctl.findings import Finding, Severity
from glm53ctl.status.snapshot import Snapshot, assemble
from glm53ctl.status.text import render
from glm53ctl.supervise.report import Loss, PeerView, Phase, RankReport

NOW = 1_000_000.0


def config(root: str = "/nowhere", **changes: Any) -> Config:
    values = {
        "nodes": [{"name": "a", "address": "127.0.0.1"}, {"name": "b", "address": "127.0.0.1"}],
        "serve": {"model_name": "glm"},
        "paths": {"state_dir": f"{root}/state", "run_dir": f"{root}/run"},
    }
    return Config.model_validate(values | changes)


def report(rank: int, phase: Phase = Phase.READY, **changes: Any) -> RankReport:
    values = {"node": "abcd"[rank], "pid": 100 + rank, "since": NOW - 5} | changes
    return RankReport(rank=rank, phase=phase, **values)


def heard(state: str, said: RankReport | None) -> PeerView:
    return PeerView(state=state, report=said)


def finding(code: str = "MEM_FOREIGN", **changes: Any) -> Finding:
    values = {"severity": Severity.FAIL, "message": f"this is {code}."} | changes
    return Finding(code=code, **values)


def loss(at: float, **changes: Any) -> Loss:
    values = {"code": "RANK_LOST", "message": f"lost at {at:.0f}", "rank": 1, "epoch": 3} | changes
    return Loss(at=at, **values)


def snapshot(*reports: RankReport, **changes: Any) -> Snapshot:
    return assemble(config(**changes), {r.rank: r for r in reports}, NOW)


def shown(picture: Snapshot, width: int = 160) -> str:
    """Return what a terminal of that width shows, without colours."""
    console = Console(record=True, width=width, file=io.StringIO(), highlight=False)
    console.print(render(picture))
    return console.export_text()
