"""A machine out of its facts."""

import pytest

from glm53ctl.facts.host import Unknown
from glm53ctl.facts.memory import KIB_IN_GIB, MemoryFacts
from glm53ctl.facts.nvml import GpuFacts
from glm53ctl.facts.rails import RailFacts
from glm53ctl.view.engine import RATE_SECONDS, WINDOW_SECONDS
from glm53ctl.view.node import NodeHistory, NodeReading, elsewhere

MEMORY = MemoryFacts(
    total=128 * KIB_IN_GIB,
    free=0,
    available=7 * KIB_IN_GIB,
    swap_total=16 * KIB_IN_GIB,
    swap_free=15 * KIB_IN_GIB,
    pressure_some=3.5,
    pressure_full=1.5,
)
GPU = GpuFacts(name="GB10", sm_clock_mhz=2100, power_watts=61.5, throttled_by=("power cap",))
NO_GPU = Unknown(unknown="no NVIDIA driver answers")


def rail(received: int | None = 0, sent: int | None = 0, **facts) -> RailFacts:
    values = {"name": "enp1s0f0np0", "carrier": True, "speed_mbit": 200_000, "mtu": 9000} | facts
    return RailFacts(received_bytes=received, sent_bytes=sent, **values)


def reading(at: float, *rails: RailFacts, memory=MEMORY, gpus=(GPU,)) -> NodeReading:
    return NodeReading(at=at, memory=memory, gpus=gpus, rails=rails)


def node(*readings: NodeReading):
    history = NodeHistory()
    for one in readings:
        history.add(one)
    return history.view(1, "spark-worker", 2.0)


def test_memory_and_gpu():
    view = node(reading(0.0))
    assert view.memory is not None
    assert (view.memory.available_gib, view.memory.total_gib) == (7.0, 128.0)
    assert (view.memory.swap_used_gib, view.memory.floor_gib) == (1.0, 2.0)
    assert view.memory.pressure_full_percent == 1.5
    assert view.gpus is not None
    (gpu,) = view.gpus
    assert (gpu.clock_mhz, gpu.power_w, gpu.throttled_by) == (2100, 61.5, ("power cap",))
    assert gpu.temperature_c is None
    assert (view.rank, view.name, view.here, view.unknown) == (1, "spark-worker", True, {})


def test_what_is_unknown_says_why():
    view = node(reading(0.0, gpus=NO_GPU))
    assert view.gpus is None
    assert view.unknown == {"gpus": "no NVIDIA driver answers"}


def test_a_rail_has_rates_from_the_second_reading_on():
    first, second = (
        reading(0.0, rail(100, 50)),
        reading(4.0, rail(4_100, 250, addresses=("192.168.177.11/24",), rdma="rocep1s0f0")),
    )
    (lone,) = node(first).rails
    assert (lone.receive_bytes_per_s, lone.transmit_bytes_per_s) == (None, None)
    (view,) = node(first, second).rails
    assert (view.receive_bytes_per_s, view.transmit_bytes_per_s) == (1000.0, 50.0)
    assert (view.speed_gbit_per_s, view.mtu, view.carrier) == (200.0, 9000, True)
    assert (view.address, view.rdma) == ("192.168.177.11", "rocep1s0f0")


@pytest.mark.parametrize(
    "now", [rail(50, 60), rail(None, None), rail(9_000, 9_000, name="enp1s0f1np1")]
)
def test_a_rate_never_comes_of_what_cannot_be_compared(now):
    before = reading(0.0, rail(100, 100))
    (view,) = node(before, reading(4.0, now)).rails
    assert view.receive_bytes_per_s is None


@pytest.mark.parametrize(
    ("facts", "lost"),
    [
        ({"carrier": False}, False),
        ({"carrier": False, "carrier_ups": 0, "addresses": ()}, False),
        ({"carrier": False, "addresses": ("192.168.177.11/24",)}, True),
        ({"carrier": False, "carrier_ups": 1}, True),
        ({"carrier": None, "carrier_ups": 1}, False),
        ({"carrier": True, "carrier_ups": 1}, False),
    ],
)
def test_a_carrier_is_lost_where_one_was_or_is_meant_to_be(facts, lost):
    (view,) = node(reading(0.0, rail(**facts))).rails
    assert view.lost is lost


def test_a_rate_reaches_back_far_enough():
    readings = [reading(float(at), rail(at * 10, 0)) for at in range(30)]
    readings.append(reading(29.1, rail(290, 0)))
    (view,) = node(*readings).rails
    assert view.receive_bytes_per_s == pytest.approx(40 / 4.1)
    assert RATE_SECONDS <= 29.1 - 25


def test_the_past_is_no_rate_of_now():
    readings = (reading(0.0, rail(0, 0)), reading(WINDOW_SECONDS + 1, rail(900, 900)))
    (view,) = node(*readings).rails
    assert view.receive_bytes_per_s is None


def test_of_another_machine_the_memory_is_heard_of():
    view = elsewhere(1, "spark-worker", 7.5, 2.0)
    assert view.memory is not None
    assert (view.memory.available_gib, view.memory.total_gib) == (7.5, None)
    assert (view.here, view.gpus, view.rails) == (False, None, None)
    assert view.unknown.keys() == {"gpus", "rails"}


def test_of_a_silent_machine_nothing_is_known():
    view = elsewhere(1, "spark-worker", None, 2.0)
    assert view.memory is None
    assert view.unknown.keys() == {"memory", "gpus", "rails"}
