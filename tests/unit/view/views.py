"""Views as the tests of the page's data and of its metrics make them up."""

from typing import Any

from unit.status.pictures import NOW, config, finding, loss, report

from glm53ctl.bench.result import Identity, Result
from glm53ctl.status.snapshot import assemble
from glm53ctl.supervise.report import Phase
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

ENGINE = EngineView(
    running=2,
    waiting=1,
    kv_pool_tokens=982_612,
    kv_pool_used=0.25,
    generation_tokens_per_s=41.5,
    prompt_tokens_per_s=812.0,
    ttft_s=Spread(p50=0.4, p95=2.5),
    itl_s=Spread(p50=0.02, p95=0.06),
    prefix_hit_rate=0.8,
    acceptance=Acceptance(draft="dflash", length=3.5, by_position=(0.9, 0.7, 0.5)),
    preemptions=4,
    window_seconds=300.0,
)
HEAD = NodeView(
    rank=0,
    name="a",
    here=True,
    memory=MemoryView(
        available_gib=7.5,
        total_gib=121.0,
        floor_gib=2.0,
        swap_used_gib=0.5,
        swap_total_gib=16.0,
        pressure_some_percent=3.0,
        pressure_full_percent=1.0,
    ),
    gpus=(
        GpuView(
            name="GB10",
            temperature_c=66,
            clock_mhz=2100,
            max_clock_mhz=3000,
            power_w=61.5,
            utilisation_percent=97,
            throttled_by=("power cap",),
        ),
    ),
    rails=(
        RailView(
            name="enp1s0f0np0",
            rdma="rocep1s0f0",
            address="192.168.177.11",
            carrier=True,
            speed_gbit_per_s=200.0,
            mtu=9000,
            receive_bytes_per_s=1.5e9,
            transmit_bytes_per_s=1.25e9,
            errors=3,
        ),
        RailView(name="enp1s0f1np1", carrier=False, mtu=1500),
    ),
)
WORKER = NodeView(
    rank=1,
    name="b",
    here=False,
    memory=MemoryView(available_gib=9.0, floor_gib=2.0),
    unknown={"gpus": "elsewhere", "rails": "elsewhere"},
)
BENCH = Result(kind="decode", at="2026-10-01T12:00:00+00:00", identity=Identity(), cases=())


def view(**changes: Any) -> PairView:
    """Return a head that serves and has much to tell."""
    ranks = {
        rank: report(rank, start_seconds=500.0, crashes=rank, last_loss=loss(NOW - 50))
        for rank in (0, 1)
    }
    values = {
        "at": NOW,
        "snapshot": assemble(config(), ranks, NOW),
        "engine": ENGINE,
        "nodes": (HEAD, WORKER),
        "bench": BENCH,
    }
    return PairView(**(values | changes))


def starting() -> PairView:
    """Return a worker's view of a start: no engine, one rank unheard of, and a finding."""
    worker = report(
        1, Phase.STARTING, stage="load", percent=40, findings=(finding("MEM_FOREIGN", node="b"),)
    )
    return view(
        snapshot=assemble(config(), {1: worker}, NOW),
        engine=None,
        nodes=(WORKER.model_copy(update={"here": True}),),
        bench=None,
    )
