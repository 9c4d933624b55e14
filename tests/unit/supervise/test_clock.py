"""A clock that is set, by hand or by NTP after a long time without: nothing of the pair notices."""

import os
import signal
import time
from pathlib import Path

import pytest
from test_supervisor import Pair
from waiting import wait_for

HOUR = 3600.0
# A stand-in for the kernel's clock in all processes of a test that have it in PYTHONPATH.
SITE = """\
import time
from pathlib import Path
_clock, _jump = time.time, Path({file!r})
time.time = lambda: _clock() + float(_jump.read_text())
"""


@pytest.fixture
def set_clock(tmp_path, monkeypatch):
    """Return what sets the clock of processes that start from now on, while they run."""
    file = tmp_path / "jump"

    def jump(seconds: float) -> None:
        fresh = file.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.replace(file)

    jump(0)
    site = tmp_path / "site"
    site.mkdir()
    Path(site, "sitecustomize.py").write_text(SITE.format(file=str(file)))
    monkeypatch.setenv("PYTHONPATH", str(site))
    return jump


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_clock_that_jumps_costs_no_epoch_and_hides_no_loss(tmp_path, set_clock, seconds):
    pair = Pair(tmp_path)
    try:
        pair.start()
        first = pair.until_ready()
        set_clock(seconds)
        os.kill(first.ranks[1].engine.pid, signal.SIGKILL)
        after = pair.until_ready(first.epoch)
        assert after.epoch == first.epoch + 1  # the kill cost one, the clock none
        assert abs(after.last_loss.at - time.time() - seconds) < HOUR / 2
    finally:
        assert pair.stop() == 0


def test_a_clock_that_jumps_ahead_during_a_start_exhausts_no_limit(tmp_path, set_clock):
    pair = Pair(tmp_path)
    try:
        pair.start()
        # The state between may be over before it is seen.
        wait_for(lambda: pair.snapshot().state in ("starting", "ready"), "the start")
        set_clock(HOUR)
        assert pair.until_ready().epoch == 1
    finally:
        assert pair.stop() == 0
