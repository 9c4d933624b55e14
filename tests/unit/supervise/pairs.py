"""Configurations and identities that the tests of this folder share."""

import socket

from glm53ctl.config.schema import Config
from glm53ctl.supervise.identity import Identity, identify
from glm53ctl.supervise.report import Phase, RankReport


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pair_config(tmp_path, **changes) -> Config:
    values = {
        "nodes": [{"name": "a", "address": "127.0.0.1"}, {"name": "b", "address": "127.0.0.1"}],
        "fabric": {"link_port": free_port(), "master_port": free_port()},
        "api": {"port": free_port()},
        "link": {"beat_seconds": 0.05, "closed_grace_seconds": 0.2, "silence_grace_seconds": 5},
        "paths": {"state_dir": str(tmp_path / "state"), "run_dir": str(tmp_path / "run")},
    }
    return Config.model_validate(values | changes)


def identity(config: Config, rank: int, **changes) -> Identity:
    made = identify(config, rank, f"run-{rank}", engine_version="0.33.0", closure="c", weights="w")
    return made.model_copy(update=changes)


def report(rank: int, phase: Phase = Phase.WAITING, **changes) -> RankReport:
    return RankReport(rank=rank, node="ab"[rank], pid=1, phase=phase, since=0.0, **changes)
