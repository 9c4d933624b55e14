"""Silence: what stands still, in which stage, and what only takes its time."""

import pytest

from glm53ctl.diagnose import Exhibit, explain
from glm53ctl.diagnose.events import judge_events, judge_progress
from glm53ctl.diagnose.readings import Reading, judge_serving
from glm53ctl.findings import Severity

MEET = (
    "(W pid=1) INFO 09-20 10:00:05 [p.py:1] world_size=2 rank={} local_rank=0 "
    "distributed_init_method=tcp://10.0.0.1:29521 backend=nccl\n"
    "(W pid=1) INFO 09-20 10:00:07 [p.py:148] vLLM is using nccl==2.31.2\n"
)
LOADING = "(W pid=1) INFO 09-20 10:00:10 [m.py:1] Starting to load model /snap...\n"
READY = "INFO 09-20 10:05:00 Application startup complete.\n"


def judged(*texts: str, now: str):
    return explain([Exhibit.of(f"rank{n}.log", text) for n, text in enumerate(texts)], now)


def test_both_ranks_stand_in_the_collective():
    (one,) = judged(MEET.format(0), MEET.format(1), now="09-20 10:05:30")
    assert one.finding.code == "NCCL_INIT_STALL"
    for word in ("rank 0", "rank 1", "nccl-init", "323"):
        assert word in one.finding.message


def test_one_standing_rank_is_enough_and_is_named():
    (one,) = judged(MEET.format(0) + LOADING, MEET.format(1), now="09-20 10:03:30")
    assert one.finding.code == "NCCL_INIT_STALL"
    assert one.finding.message.startswith("rank 1 in stage nccl-init")


def test_a_later_stage_has_another_name():
    (one,) = judged(MEET.format(0) + LOADING, now="09-20 10:20:00")
    assert one.finding.code == "LOAD_STALLED"


@pytest.mark.parametrize("now", ["09-20 10:02:00", "09-20 10:00:08"])
def test_time_that_is_left_is_progress(now):
    (one,) = judged(MEET.format(0), now=now)
    assert (one.finding.code, one.finding.severity) == ("START_PROGRESS", Severity.OK)


def test_a_pair_that_came_up_is_not_judged_by_silence():
    assert judged(MEET.format(0) + LOADING + READY, now="09-20 23:00:00") == []


def test_silence_is_not_judged_without_a_time():
    assert explain([Exhibit.of("rank0.log", MEET.format(0))]) == []


def test_a_failure_is_named_instead_of_the_silence_after_it():
    (one,) = judged(
        MEET.format(0) + "OSError: [Errno 98] Address already in use\n", now="09-20 12:00:00"
    )
    assert one.finding.code == "PORT_IN_USE"


def shards(*seen: tuple[float, int]):
    return [{"t": at, "stage": "load", "shard": shard} for at, shard in seen]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (shards((0, 1), (599, 1)), "START_PROGRESS"),
        (shards((0, 1), (601, 1)), "LOAD_STALLED"),
        (shards((0, 1), (601, 2)), "START_PROGRESS"),
        ([{"t": 0, "stage": "nccl"}, {"t": 200, "stage": "nccl"}], "NCCL_INIT_STALL"),
        ([{"t": 0, "stage": "no such stage"}], None),
        ([], None),
    ],
)
def test_a_start_is_judged_by_its_shards(records, code):
    one = judge_progress(records)
    assert (one.finding.code if one else None) == code


def reading(t: float, tokens: int, *watts: float, running: int = 1) -> Reading:
    return Reading(t, running, tokens, 0, watts)


@pytest.mark.parametrize(
    ("readings", "code"),
    [
        ([reading(0, 5, 20, 20), reading(120, 5, 20, 20)], "ENGINE_WEDGED"),
        ([reading(0, 5, 20, 45), reading(120, 5, 20, 20)], "PREFILL_BUSY"),
        ([reading(0, 5, 20, 20), reading(120, 900, 20, 20)], "ENGINE_BUSY"),
        ([reading(0, 5, 11), reading(120, 5, 11, running=0)], "PREFILL_BUSY"),
        ([reading(0, 5, 11, running=0), reading(120, 5, 11, running=0)], "IDLE"),
        ([reading(0, 5, 20)], "PREFILL_BUSY"),
        ([reading(0, 5), reading(120, 5)], "ENGINE_WEDGED"),
        ([], None),
    ],
)
def test_a_wedge_needs_every_sign(readings, code):
    one = judge_serving(readings)
    assert (one.finding.code if one else None) == code


@pytest.mark.parametrize("watts", [(), (float("nan"),)])
def test_without_power_a_wedge_is_only_suspected(watts):
    one = judge_serving([reading(0, 5, *watts), reading(120, 5, *watts)])
    assert one.finding.severity is Severity.WARN
    assert "without the GPUs' power" in one.finding.message


def test_the_rank_that_went_first_is_named_whatever_the_order_of_records():
    exit_ = {"event": "exit", "code": "signal", "status": 9, "generation": 3, "node": "worker"}
    records = [
        {"t": 9, "unit": "glm53-rank0", **exit_},
        {"t": 5, "unit": "glm53-rank1", **exit_},
    ]
    one = judge_events(records)
    assert one is not None
    assert one.finding.message.startswith("rank 1 on worker ended first (signal 9)")
    assert "generation 4" in one.finding.fix


def test_records_without_an_exit_say_nothing():
    assert judge_events([{"t": 1, "unit": "glm53-rank0", "event": "running"}]) is None
