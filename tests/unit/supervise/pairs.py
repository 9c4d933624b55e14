"""Configurations and identities that the tests of this folder share."""

import asyncio
from pathlib import Path

from glm53ctl.config.schema import Config
from glm53ctl.facts.ports import free_ports
from glm53ctl.supervise.identity import Identity, identify
from glm53ctl.supervise.ledger import Ledger
from glm53ctl.supervise.link import PairLink
from glm53ctl.supervise.rank import RankSupervisor
from glm53ctl.supervise.report import Phase, RankReport
from glm53ctl.supervise.survey import Survey
from glm53ctl.supervise.trial import Trials


def pair_config(tmp_path, **changes) -> Config:
    api, master, link = free_ports(3)
    values = {
        "nodes": [{"name": "a", "address": "127.0.0.1"}, {"name": "b", "address": "127.0.0.1"}],
        "fabric": {"link_port": link, "master_port": master},
        "api": {"port": api},
        "link": {"beat_seconds": 0.05, "closed_grace_seconds": 0.2, "silence_grace_seconds": 5},
        "paths": {"state_dir": str(tmp_path / "state"), "run_dir": str(tmp_path / "run")},
    }
    return Config.model_validate(values | changes)


def identity(config: Config, rank: int, **changes) -> Identity:
    made = identify(config, rank, f"run-{rank}", engine_version="0.33.0", closure="c", weights="w")
    return made.model_copy(update=changes)


def report(rank: int, phase: Phase = Phase.WAITING, **changes) -> RankReport:
    return RankReport(rank=rank, node="ab"[rank], pid=1, phase=phase, since=0.0, **changes)


def supervisor(config: Config, rank: int) -> RankSupervisor:
    """Return one as it is after its start, alone and with its link closed."""
    made = RankSupervisor(rank, lambda: config)
    state = Path(config.paths.state_dir)
    made.config, made.survey, made.trials = config, Survey(rank), Trials(state)
    made.identity = identity(config, rank)
    made.link = PairLink(config, rank, b"t" * 32, made.identity, made._own_report, asyncio.Event())
    made.ledger = Ledger(state, rank, config.supervise)
    return made
