"""Configurations and identities that the tests of this folder share."""

from glm53ctl.config.schema import Config
from glm53ctl.facts.ports import free_ports
from glm53ctl.supervise.identity import Identity, identify
from glm53ctl.supervise.report import Phase, RankReport


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
