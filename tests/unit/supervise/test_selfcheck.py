"""The kernels' check before a start: what a node makes of it. The engine's Python is a script."""

import asyncio
import json
from pathlib import Path

import psutil
import pytest
from pairs import pair_config, supervisor
from waiting import wait_for

from glm53ctl.facts.node import NodeFacts
from glm53ctl.supervise import selfcheck, survey
from glm53ctl.supervise.selfcheck import check_kernels
from glm53ctl.supervise.wire import Command, Launch

GOOD = {"name": "contract", "ok": True, "detail": "kept"}
BAD = {"name": "8 tokens", "ok": False, "detail": "relative error 1.4e+00 <= 0.005"}


def config_with(folder: Path, script: str, **engine: object):
    python = folder / "engine/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return pair_config(
        folder, engine={"prefix": str(folder / "engine"), "platform": "cuda", **engine}
    )


def printing(*checks: dict) -> str:
    return f"echo '{json.dumps({'checks': checks})}'"


def test_good_kernels_are_no_finding(tmp_path):
    assert asyncio.run(check_kernels(config_with(tmp_path, printing(GOOD)), 0)) is None


def test_a_wrong_kernel_is_named(tmp_path):
    found = asyncio.run(check_kernels(config_with(tmp_path, printing(GOOD, BAD)), 1))
    assert found.code == "OVERLAY_FAILED"
    assert "8 tokens: relative error" in found.message
    assert "contract" not in found.message


@pytest.mark.parametrize("script", ["exit 3", "echo nonsense", "echo no torch >&2; exit 1"])
def test_no_report_is_no_good_report(tmp_path, script):
    found = asyncio.run(check_kernels(config_with(tmp_path, script), 0))
    assert found.code == "OVERLAY_UNKNOWN"


def test_caches_and_no_secrets_are_in_its_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "api-key").write_text("hush-7711")
    config = config_with(tmp_path, f"env > {tmp_path}/seen; {printing(GOOD)}")
    assert asyncio.run(check_kernels(config, 0)) is None
    seen = (tmp_path / "seen").read_text()
    assert "TRITON_CACHE_DIR=" in seen
    assert "hush-7711" not in seen


def test_a_stop_ends_it_with_all_that_it_started(tmp_path):
    config = config_with(tmp_path, f"sleep 1007 & echo $! > {tmp_path}/pid; wait")

    async def scenario() -> None:
        task = asyncio.create_task(check_kernels(config, 0))
        file = tmp_path / "pid"
        await asyncio.to_thread(wait_for, lambda: file.exists() and file.read_text(), "its child")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not _runs(pid), "what it started to end")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("engine", "runs"),
    [({}, 1), ({"verify_overlay": False}, 0), ({"platform": "cpu"}, 0)],
)
def test_it_runs_once_for_an_engine_where_there_are_kernels(tmp_path, monkeypatch, engine, runs):
    config = config_with(tmp_path, f"echo once >> {tmp_path}/runs; {printing(BAD)}", **engine)
    looked = survey.Survey(0)
    for _ in range(2):
        asyncio.run(looked.take(config))
        looked.forget()
    counted = tmp_path / "runs"
    assert (len(counted.read_text().splitlines()) if counted.exists() else 0) == runs
    assert (looked.fault is not None) is bool(runs)
    assert selfcheck.is_wanted(config) is (engine.get("platform") != "cpu")
    looked.verify_again()
    assert looked.fault is None


def test_an_overlay_that_gave_no_report_is_asked_again(tmp_path):
    """A GPU that is not there yet, at a boot: what nobody compared has not passed."""
    config = config_with(tmp_path, f"echo $@ >> {tmp_path}/runs; echo no CUDA >&2; exit 1")
    looked = survey.Survey(0)
    for _ in range(2):
        asyncio.run(looked.take(config))
        assert looked.fault is not None
        assert looked.fault.code == "OVERLAY_UNKNOWN"
    runs = (tmp_path / "runs").read_text().splitlines()
    assert len(runs) == 2
    assert all("--device cuda" in run for run in runs)


def test_a_resume_has_the_kernels_checked_before_the_next_start(tmp_path, monkeypatch):
    """On this node, and on the others: what they told before is of another look."""
    monkeypatch.setattr(survey, "AGAIN_SECONDS", 3600.0)  # nothing else makes it due
    config = config_with(tmp_path, f"echo once >> {tmp_path}/runs; {printing(BAD)}")
    rank = supervisor(config, 0)
    asyncio.run(rank.survey.take(config))
    rank.link.peers[1].facts = NodeFacts(rank=1)
    assert not rank.survey.is_due(())
    asyncio.run(rank._carry_out(Command(action="resume")))
    assert rank.survey.fault is None
    assert rank.survey.is_due(())
    assert rank.link.peers[1].facts is None
    rank.launch = Launch(epoch=2)  # a head that has not heard of it yet
    asyncio.run(rank._look_around())
    assert rank.survey.fault is not None
    assert len((tmp_path / "runs").read_text().splitlines()) == 2
