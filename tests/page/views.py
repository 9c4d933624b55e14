"""Recorded views of a pair of Sparks: made up for the tests, in the shape of the real ones."""

import math
from collections.abc import Callable
from typing import Any

from glm53ctl.bench.result import Acceptance as BenchAcceptance
from glm53ctl.bench.result import Case, Identity, Result
from glm53ctl.config.schema import Config
from glm53ctl.findings import Finding, Severity
from glm53ctl.status.snapshot import Snapshot, assemble
from glm53ctl.supervise.ledger import Incident
from glm53ctl.supervise.report import EngineReport, Phase, RankReport
from glm53ctl.supervise.stages import Stage
from glm53ctl.view.model import (
    Acceptance,
    EngineView,
    GpuView,
    MemoryView,
    NodeView,
    PairView,
    RailView,
    Spread,
)
from glm53ctl.watchdog.report import WatchdogReport

NOW = 1_796_000_000.0
NAMES = ("spark-head", "spark-worker")
CONFIG = Config.model_validate(
    {
        "nodes": [
            {"name": NAMES[0], "address": "192.168.100.1"},
            {"name": NAMES[1], "address": "192.168.100.2"},
        ],
        "licenses": {"accept": ["ShapleyMCG-1.0", "CC-BY-NC-ND-4.0"]},
    }
)
SECRET_LINE = "a line of the log that quotes what a client sent"


def report(rank: int, phase: Phase = Phase.READY, **changes: Any) -> RankReport:
    ready = {"ready_at": NOW - 7_800, "start_seconds": 412.0} if phase is Phase.READY else {}
    values = {
        "node": NAMES[rank],
        "pid": 900 + rank,
        "since": NOW - 7_800,
        "epoch": 12,
        "engine": EngineReport(pid=1200 + rank, version="0.33.0"),
    }
    return RankReport(rank=rank, phase=phase, **(values | ready | changes))


def snapshot(*reports: RankReport, extra: tuple[Finding, ...] = (), **changes: Any) -> Snapshot:
    made = assemble(CONFIG, {one.rank: one for one in reports}, NOW, **changes)
    return made.model_copy(update={"findings": (*made.findings, *extra)})


def engine(second: int = 0, **changes: Any) -> EngineView:
    wave = math.sin(second / 9) + 0.4 * math.sin(second / 2.3)
    values = {
        "running": 3,
        "waiting": 1,
        "kv_pool_tokens": 982_612,
        "kv_pool_used": 0.31 + 0.02 * math.sin(second / 40),
        "generation_tokens_per_s": 46.0 + 6 * wave,
        "prompt_tokens_per_s": max(0.0, 900 * math.sin((second + 25) / 14) + 350 * wave),
        "ttft_s": Spread(p50=0.82 + 0.05 * wave, p95=6.4),
        "itl_s": Spread(p50=0.061, p95=0.094),
        "prefix_hit_rate": 0.72,
        "acceptance": Acceptance(
            draft="dflash", length=3.41, by_position=(0.83, 0.62, 0.44, 0.27, 0.14, 0.07, 0.04)
        ),
        "preemptions": 0,
        "window_seconds": 300.0,
    }
    return EngineView(**(values | changes))


def rails(up: bool = True, busy: bool = True, errors: int = 0) -> tuple[RailView, ...]:
    rate = 8.4e8 if busy else 0.0
    return (
        RailView(
            name="enp1s0f0np0",
            rdma="rocep1s0f0",
            address="192.168.100.1",
            carrier=True,
            speed_gbit_per_s=200,
            mtu=9000,
            receive_bytes_per_s=rate,
            transmit_bytes_per_s=rate * 1.02,
            errors=0,
        ),
        RailView(
            name="enP2p1s0f0np0",
            rdma="roceP2p1s0f0",
            address="192.168.101.1",
            carrier=up,
            lost=not up,
            speed_gbit_per_s=200 if up else None,
            mtu=9000,
            receive_bytes_per_s=rate if up else 0.0,
            transmit_bytes_per_s=rate * 0.98 if up else 0.0,
            errors=errors,
        ),
    )


def node(rank: int = 0, available: float = 14.6, second: int = 0, **changes: Any) -> NodeView:
    values = {
        "memory": MemoryView(
            available_gib=available,
            total_gib=119.7,
            floor_gib=CONFIG.memory.floor_gib,
            swap_used_gib=0.0,
            swap_total_gib=0.0,
            pressure_some_percent=0.0,
            pressure_full_percent=0.0,
        ),
        "gpus": (
            GpuView(
                name="NVIDIA GB10",
                temperature_c=67 + round(4 * math.sin(second / 50)),
                clock_mhz=2405,
                max_clock_mhz=3003,
                power_w=41.2,
                utilisation_percent=94,
                throttled_by=(),
            ),
        ),
        "rails": rails(),
    }
    return NodeView(rank=rank, name=NAMES[rank], here=True, **(values | changes))


def elsewhere(rank: int = 1, available: float | None = 15.1) -> NodeView:
    why = "seen on its own page: supervisors tell each other their state, not their sensors"
    return NodeView(
        rank=rank,
        name=NAMES[rank],
        here=False,
        memory=None
        if available is None
        else MemoryView(available_gib=available, floor_gib=CONFIG.memory.floor_gib),
        unknown={"gpus": why, "rails": why},
    )


def incident(at: float, **changes: Any) -> Incident:
    values = {
        "code": "RANK_LOST",
        "message": "spark-worker has said nothing for 2.0 s.",
        "rank": 1,
        "epoch": 11,
        "evidence": (SECRET_LINE,),
        "seen_by": "rank 0",
        "action": "epoch ended on both sides",
        "cause": Finding(
            code="HOST_POWER",
            severity=Severity.FAIL,
            message="spark-worker went down without a shutdown.",
            fix="Look at its power supply and at `journalctl -b -1` there.",
            evidence=(SECRET_LINE,),
        ),
    }
    return Incident(at=at, **(values | changes))


INCIDENTS = (
    incident(NOW - 8_260),
    incident(
        NOW - 93_000,
        code="OPERATOR_RESTART",
        message="restart was ordered on the head.",
        rank=0,
        epoch=10,
        commanded=True,
        cause=None,
        action="",
    ),
)

BENCH = Result(
    kind="decode",
    at="2026-11-29T21:14:05+00:00",
    identity=Identity(engine="0.33.0", config_digest="5a1b"),
    cases=(
        Case(
            name="structured, 1 at once",
            unit="tok/s",
            values=(61.2, 60.7, 61.9),
            baseline={"vllm-recipe": 60.1},
            acceptance=BenchAcceptance(drafts=900, length=4.2, by_position=(0.9, 0.8)),
        ),
        Case(name="prose, 1 at once", unit="tok/s", values=(32.4, 31.8, 32.9)),
        Case(
            name="structured, 4 at once",
            unit="tok/s",
            values=(128.0, 131.5),
            baseline={"vllm-recipe": 126.3},
        ),
    ),
)


def view(picture: Snapshot, second: int = 0, **changes: Any) -> PairView:
    values = {
        "at": NOW + second,
        "snapshot": picture,
        "engine": engine(second),
        "nodes": (node(second=second), elsewhere()),
        "incidents": INCIDENTS,
        "bench": BENCH,
    }
    return PairView(**(values | changes))


def ready(second: int = 0) -> PairView:
    return view(snapshot(report(0), report(1)), second)


def loading(second: int = 0) -> PairView:
    """The start after a loss: rank 1 is a little ahead, as it begins first."""
    if second < -140:
        return ready(second)
    done = max(0, min(99, 38 + second * 38 // 95))
    starting = {"since": NOW - 95, "epoch": 13, "stage": Stage.LOAD, "stage_seconds_left": 598.0}
    ranks = (
        report(0, Phase.STARTING, percent=done, **starting),
        report(1, Phase.STARTING, percent=min(99, done + 3), **starting),
    )
    idle = GpuView(name="NVIDIA GB10", temperature_c=48, clock_mhz=2405, power_w=14.8)
    here = node(available=76 - second / 3, gpus=(idle,), rails=rails(busy=False))
    return view(
        snapshot(*ranks),
        second,
        engine=None,
        engine_unknown="the engine does not tell its metrics (All connection attempts failed)",
        nodes=(here, elsewhere(available=74.2 - second / 3)),
        incidents=(incident(NOW - 140, epoch=12), *INCIDENTS),
    )


def degraded(second: int = 0) -> PairView:
    """It serves, on one rail of two, hot, and near the floor of its memory."""
    findings = (
        Finding(
            code="MEM_REFUSING",
            severity=Severity.WARN,
            message="3.1 GiB of memory are available, the floor is 2.0.",
            fix="Stop what else runs on this machine, or send less at once.",
            node="spark-head",
        ),
        Finding(
            code="NET_RAIL_DOWN",
            severity=Severity.WARN,
            message="Rail enP2p1s0f0np0 has no carrier: the pair runs on one rail of two.",
            fix="Check the cable between the two second ports.",
            node="spark-head",
        ),
    )
    hot = GpuView(
        name="NVIDIA GB10",
        temperature_c=89,
        clock_mhz=1650,
        max_clock_mhz=3003,
        power_w=58.0,
        utilisation_percent=99,
        throttled_by=("hardware thermal slowdown",),
    )
    floor = CONFIG.memory.floor_gib
    here = node(available=floor + 1.1, gpus=(hot,), rails=rails(up=False, errors=1_284))
    watchdog = WatchdogReport(pid=800, beat=0.0, watches=(0,), memory="refuse")
    return view(
        snapshot(report(0), report(1), extra=findings, watchdog=watchdog),
        second,
        engine=engine(second, running=4, waiting=9, kv_pool_used=0.93, preemptions=7),
        nodes=(here, elsewhere()),
    )


def held(second: int = 0) -> PairView:
    reason = Finding(
        code="HELD",
        severity=Severity.FAIL,
        message="3 crashes within 60 minutes; the last: the GPU fell off the bus (Xid 79).",
        fix="Look at the incidents, mend the cause, then `glm53ctl resume`.",
        node="spark-head",
    )
    ranks = (
        report(
            0, Phase.HELD, since=NOW - 660, engine=EngineReport(), findings=(reason,), crashes=3
        ),
        report(1, Phase.HELD, since=NOW - 659, engine=EngineReport(), crashes=0),
    )
    fallen = Finding(
        code="GPU_LOST",
        severity=Severity.FAIL,
        message="The GPU fell off the bus (Xid 79).",
        fix="Power the machine off for a minute; if it comes back, have it looked at.",
        evidence=(SECRET_LINE,),
    )
    losses = tuple(
        incident(
            NOW - 660 - 400 * number,
            code="ENGINE_EXIT",
            message=f"the engine of rank 0 ended with status {1 if number else 134}.",
            rank=0,
            epoch=15 - number,
            cause=fallen,
        )
        for number in range(6)
    )
    return view(
        snapshot(*ranks),
        second,
        engine=None,
        engine_unknown="no engine runs on the head",
        nodes=(
            node(
                available=108.9,
                rails=rails(busy=False),
                gpus=None,
                unknown={"gpus": "NVML says: GPU is lost"},
            ),
            elsewhere(available=109.3),
        ),
        incidents=losses,
    )


STATES: dict[str, Callable[[int], PairView]] = {
    "ready": ready,
    "loading": loading,
    "degraded": degraded,
    "held": held,
}
