"""Looks at a rank as the tests make them up."""

from typing import Any

from glm53ctl.config.schema import Config
from glm53ctl.supervise.report import Counters, Phase, RankReport
from glm53ctl.watchdog.budget import Budget
from glm53ctl.watchdog.bus import UnitState
from glm53ctl.watchdog.rules import Look, RankRules, Verdict

UNIT = "glm53-rank0.service"


def config(root: str = "/nowhere", **watchdog: Any) -> Config:
    return Config.model_validate(
        {
            "nodes": [{"name": "a", "address": "127.0.0.1"}, {"name": "b", "address": "127.0.0.1"}],
            "paths": {"state_dir": f"{root}/state", "run_dir": f"{root}/run"},
            "serve": {"model_name": "glm"},
            "watchdog": watchdog,
            "page": {"enabled": False},
        }
    )


def unit(active: str = "active", sub: str = "running", **more: Any) -> UnitState:
    return UnitState(name=UNIT, active=active, sub=sub, **({"pid": 100} | more))


def failed(**more: Any) -> UnitState:
    values = {"pid": 0, "result": "signal", "exit_code": 2, "exit_status": 9} | more
    return unit("failed", "failed", **values)


def report(phase: Phase = Phase.READY, epoch: int = 1, **counters: float) -> RankReport:
    return RankReport(
        rank=0,
        node="a",
        pid=100,
        phase=phase,
        since=0.0,
        epoch=epoch,
        counters=Counters(**counters) if phase is Phase.READY else None,
    )


class Watched:
    """One rank, its rules, and a clock that the test sets."""

    def __init__(self, folder: Any, rank: int = 0, **watchdog: Any) -> None:
        self.config = config(**watchdog)
        self.budget = Budget(self.config.watchdog, folder / "watchdog.json", 0.0, 0.0)
        self.rules = RankRules(rank, self.config, self.budget, wall=lambda: 0.0)

    def see(self, now: float, **seen: Any) -> Verdict:
        seen.setdefault("unit", unit())
        return self.rules.judge(Look(now=now, **({"wanted": True} | seen)))

    def acts(self, times: Any, **seen: Any) -> list[tuple[float, str]]:
        """Return when the rules acted, and how, over looks that all show the same."""
        done = [(now, self.see(now, **seen)) for now in times]
        return [(now, verdict.remedy.value) for now, verdict in done if verdict.remedy]
