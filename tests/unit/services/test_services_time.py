"""The units' spans of time against those of the code: no limit may fire before the code's own."""

import pytest
from unit_files import RANKS, Unit

from glm53ctl.config.schema import Link, Serve, StageLimits, Supervise
from glm53ctl.supervise import rank as supervisor
from glm53ctl.supervise.engine import KILL_WAIT_SECONDS
from glm53ctl.supervise.link import SEND_SECONDS
from glm53ctl.supervise.notify import EXTENSION_MARGIN_SECONDS

SLOWEST_TICK = max(supervisor.TICK_SECONDS, supervisor.CHECK_SECONDS)
COLD_START = 12 * 60
"""Seconds; the owners of the vLLM recipe are told to allow 10 to 12 minutes after a power cut."""


@pytest.fixture(params=RANKS)
def unit(request) -> Unit:
    return Unit(request.param)


def test_a_stop_has_time_to_drain_and_to_kill(unit):
    own = Serve().drain_seconds + Supervise().stop_grace_seconds
    assert unit.seconds("TimeoutStopSec") > own + KILL_WAIT_SECONDS + SEND_SECONDS


def test_the_watchdog_bites_a_hung_supervisor_and_not_a_slow_one(unit):
    assert unit.seconds("WatchdogSec") >= 10 * SLOWEST_TICK


def test_a_hung_supervisor_is_found_before_its_peer_gives_up(unit):
    found = unit.seconds("WatchdogSec") + unit.seconds("TimeoutAbortSec")
    assert found < Link().silence_grace_seconds


def test_a_start_is_extended_and_not_waited_for(unit):
    assert unit.seconds("TimeoutStartSec") < StageLimits().load
    assert EXTENSION_MARGIN_SECONDS > 10 * SLOWEST_TICK


def test_the_start_limit_stops_fast_and_slow_loops(unit):
    interval = unit.seconds("StartLimitIntervalSec", "Unit")
    burst = int(unit.one("StartLimitBurst", "Unit"))
    assert (burst - 1) * (unit.seconds("RestartSec") + COLD_START) <= interval
    assert burst * unit.seconds("RestartSec") < 60


def test_a_restart_is_faster_than_the_peer_s_patience(unit):
    assert unit.seconds("RestartSec") < Link().silence_grace_seconds
