"""What one supervisor does at an edge of its own: no engine, no peer, no disk."""

import asyncio
import os
from pathlib import Path

import pytest
from pairs import pair_config, supervisor

from glm53ctl.config.schema import Config, Supervise
from glm53ctl.supervise import control
from glm53ctl.supervise import epoch as epoch_module
from glm53ctl.supervise import rank as rank_module
from glm53ctl.supervise.epoch import Epoch
from glm53ctl.supervise.ledger import Ledger
from glm53ctl.supervise.rank import RankSupervisor
from glm53ctl.supervise.report import Counters, Phase, RankReport
from glm53ctl.supervise.wire import Command

DEADLINE = 120.0


async def blocked(config: Config) -> RankReport:
    """Run a supervisor until its control socket says what blocks it."""
    rank = RankSupervisor(0, lambda: config)
    life = asyncio.create_task(rank.run())
    path = control.socket_path(Path(config.paths.run_dir), 0)
    try:
        async with asyncio.timeout(DEADLINE):
            while True:
                assert not life.done()
                answer = await asyncio.to_thread(
                    control.ask, path, control.Request(action="report")
                )
                if answer is not None and answer.report.phase is Phase.BLOCKED:
                    return answer.report
                await asyncio.sleep(0.02)
    finally:
        rank._stop()
        await life


@pytest.mark.parametrize("name", ["quick_digest", "engine_version", "check_start"])
def test_what_cannot_be_read_at_a_start_is_said_in_status(tmp_path, monkeypatch, name):
    def denied(*_):
        raise PermissionError(13, "Permission denied", "/models/one")

    monkeypatch.setattr(rank_module, name, denied)
    (tmp_path / "token").write_text("a" * 32)
    config = pair_config(tmp_path, link={"token_file": str(tmp_path / "token")})
    (found, *_) = asyncio.run(blocked(config)).findings
    assert (found.code, found.severity.value) == ("PROBE_UNKNOWN", "fail")
    assert "/models/one cannot be read: Permission denied" in found.message


def test_counters_that_cannot_be_kept_keep_nobody_from_a_start(tmp_path):
    (tmp_path / "file").touch()
    nowhere = Ledger(tmp_path / "file/state", 0, Supervise())
    nowhere.begin_epoch(3, "boot")
    assert nowhere.epoch == 3


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


def test_a_poll_that_fails_is_written_down_and_made_again(tmp_path, monkeypatch, caplog):
    """The wedge rule lives on what it reads."""
    answers = iter([RuntimeError("no counters"), Counters(generated_tokens=7)])

    async def read(_: object) -> Counters:
        answer = next(answers, Counters())
        if isinstance(answer, RuntimeError):
            raise answer
        return answer

    async def scenario() -> None:
        epoch.serve()
        async with asyncio.timeout(DEADLINE):
            while epoch.counters is None:
                await asyncio.sleep(0.01)
        await epoch.end(0.0)

    monkeypatch.setattr(epoch_module, "read_counters", read)
    monkeypatch.setattr(epoch_module, "FABRIC_SECONDS", 0.01)
    config = pair_config(tmp_path)
    epoch = Epoch.prepare(config, 0, 7, supervisor(config, 0).link, os.environ, ())
    asyncio.run(scenario())
    assert "no counters" in caplog.text


@pytest.mark.parametrize("phase", Phase)
def test_a_resume_waits_behind_no_epoch(tmp_path, phase):
    """There is nothing to resume, and an order that waits keeps a trial from being judged."""
    rank = supervisor(pair_config(tmp_path), 0)
    rank.phase = phase
    rank._receive(Command(action="resume"))
    assert (rank.order is None) is (phase in (Phase.STARTING, Phase.READY))
    rank._receive(Command(action="restart"))
    assert rank.order.action == "restart"
