"""The stages of the memory guard, and how often it may interfere at all."""

import pytest
from looks import config

from glm53ctl.watchdog.budget import Budget
from glm53ctl.watchdog.memory import MemoryGuard, MemoryStage, Reading

FLOOR = 2.0


@pytest.fixture
def guard():
    return MemoryGuard(config())


@pytest.mark.parametrize(
    ("gib", "stalled", "stage"),
    [
        (60.0, 0.0, MemoryStage.OK),
        (60.0, 99.0, MemoryStage.OK),  # somebody else's wait for memory, and there is enough
        (6.0, 0.0, MemoryStage.OK),
        (5.9, 0.0, MemoryStage.WARN),
        (3.9, 0.0, MemoryStage.REFUSE),
        (3.9, None, MemoryStage.REFUSE),
        (3.9, 40.0, MemoryStage.STOP),
        (1.9, 0.0, MemoryStage.STOP),
    ],
)
def test_stages(guard, gib, stalled, stage):
    assert guard.feed(Reading(gib, stalled), 0.0) is stage


def test_it_rises_at_once_and_falls_only_after_a_calm_time(guard):
    readings = [(0, 1.0), (1, 60.0), (30, 60.0), (31, 60.0)]
    stages = [guard.feed(Reading(gib), now) for now, gib in readings]
    assert stages == [MemoryStage.STOP] * 3 + [MemoryStage.OK]


def test_how_long_memory_is_short_is_told_by_the_readings_and_not_by_the_stage(guard):
    readings = [(0, 60.0), (1, 1.0), (2, 1.5), (3, 60.0), (4, 60.0), (5, 1.0)]
    since = [(guard.feed(Reading(gib), now), guard.short_since)[1] for now, gib in readings]
    assert since == [None, 1, 1, None, None, 5]


def test_a_dip_starts_the_calm_time_anew(guard):
    readings = [(0, 3.5), (10, 60.0), (30, 3.5), (41, 60.0), (70, 60.0), (71, 60.0)]
    stages = [guard.feed(Reading(gib), now) for now, gib in readings]
    assert stages == [MemoryStage.REFUSE] * 5 + [MemoryStage.OK]


def test_memory_that_swings_around_a_threshold_does_not_swing_the_stage(guard):
    stages = {guard.feed(Reading(3.9 if n % 2 else 4.3), 20.0 * n) for n in range(1, 200)}
    assert stages == {MemoryStage.REFUSE}


def test_a_little_more_than_the_threshold_is_not_enough_to_leave_it(guard):
    readings = [(0, 3.9), (100, 4.4), (200, 4.4), (300, 4.6), (400, 4.6)]
    stages = [guard.feed(Reading(gib), now) for now, gib in readings]
    assert stages == [MemoryStage.REFUSE] * 4 + [MemoryStage.WARN]


def test_it_falls_one_threshold_at_a_time(guard):
    guard.feed(Reading(1.0), 0)
    guard.feed(Reading(5.0), 10)
    assert guard.feed(Reading(5.0), 40) is MemoryStage.WARN


def budget(folder, now=0.0, wall=1000.0):
    return Budget(config().watchdog, folder / "watchdog.json", now, wall)


def test_attempts_survive_the_watchdog(tmp_path):
    first = budget(tmp_path)
    first.spend(0.0, 1000.0)
    first.spend(60.0, 1060.0)
    again = budget(tmp_path, now=5.0, wall=1100.0)
    assert again.attempts == 2
    assert not again.allows(84.0)  # 120 s after the second
    assert again.allows(85.0)


@pytest.mark.parametrize("wall", [0.0, 1e9])
def test_a_clock_that_jumps_costs_no_more_than_the_pause(tmp_path, wall):
    budget(tmp_path).spend(0.0, 1000.0)
    assert budget(tmp_path, now=5.0, wall=wall).allows(65.0)


@pytest.mark.parametrize("text", ["", "{", '{"attempts": "many"}'])
def test_a_torn_file_costs_the_memory_only(tmp_path, text):
    (tmp_path / "watchdog.json").write_text(text)
    assert budget(tmp_path).allows(0.0)


def test_a_disk_that_takes_nothing_costs_the_memory_only(tmp_path):
    lost = budget(tmp_path / "gone")
    lost.spend(0.0, 1000.0)
    assert lost.attempts == 1
    assert not lost.allows(59.0)
