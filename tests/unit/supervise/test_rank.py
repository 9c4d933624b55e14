"""What one supervisor does at an edge of its own: no engine, no peer, no disk."""

import asyncio
import os

from pairs import pair_config, supervisor

from glm53ctl.supervise import epoch as epoch_module
from glm53ctl.supervise.epoch import Epoch


def test_an_engine_that_cannot_be_started_is_a_loss(tmp_path, monkeypatch):
    async def refuses(*_):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(epoch_module.EngineProcess, "start", refuses)
    config = pair_config(tmp_path)
    rank = supervisor(config, 0)
    epoch = Epoch.prepare(config, 0, 7, rank.link, os.environ, ())
    loss = asyncio.run(rank._launch(epoch))
    assert (loss.code, loss.epoch, loss.rank) == ("LAUNCH_FAILED", 7, 0)
    assert "Resource temporarily unavailable" in loss.message


def test_old_logs_that_cannot_be_dropped_keep_nobody_from_a_start(tmp_path, monkeypatch):
    """A disk that has become read-only; where the engine has its caches may be another."""
    started = []

    async def start(*_):
        started.append(True)

    config = pair_config(tmp_path, supervise={"keep_logs": 1})
    (tmp_path / "state/logs/rank0-000001.log").mkdir(parents=True)  # no file: unlink refuses
    monkeypatch.setattr(epoch_module.EngineProcess, "start", start)
    rank = supervisor(config, 0)
    epoch = Epoch.prepare(config, 0, 7, rank.link, os.environ, ())
    assert asyncio.run(rank._launch(epoch)) is None
    assert started
