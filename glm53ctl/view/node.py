"""A machine of the pair out of the facts about it."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from glm53ctl.facts.host import Unknown, known
from glm53ctl.facts.memory import MemoryFacts, gib
from glm53ctl.facts.nvml import GpuFacts
from glm53ctl.facts.rails import RailFacts
from glm53ctl.view.engine import RATE_SECONDS, WINDOW_SECONDS
from glm53ctl.view.model import GpuView, MemoryView, NodeView, RailView

ELSEWHERE = "seen on its own page: supervisors tell each other their state, not their sensors"


@dataclass(frozen=True)
class NodeReading:
    """What was read of this machine at monotonic `at`."""

    at: float
    memory: MemoryFacts | Unknown
    gpus: tuple[GpuFacts, ...] | Unknown
    rails: tuple[RailFacts, ...] | Unknown

    def rail(self, name: str) -> RailFacts | None:
        """Return a rail by the name of its device."""
        return next((rail for rail in known(self.rails) or () if rail.name == name), None)


@dataclass
class NodeHistory:
    """The newest readings of this machine, as far back as rates need."""

    readings: deque[NodeReading] = field(default_factory=deque)

    def add(self, reading: NodeReading) -> None:
        """Take a newer reading; keep one that is old enough for a rate and not too old."""
        self.readings.append(reading)
        while len(self.readings) > 1 and reading.at - self.readings[1].at >= RATE_SECONDS:
            self.readings.popleft()
        if reading.at - self.readings[0].at > WINDOW_SECONDS:
            self.readings.popleft()

    def view(self, rank: int, name: str, floor_gib: float) -> NodeView:
        """Return this machine as the one of a rank."""
        before, now = self.readings[0], self.readings[-1]
        facts = {"memory": now.memory, "gpus": now.gpus, "rails": now.rails}
        return NodeView(
            rank=rank,
            name=name,
            here=True,
            memory=None if isinstance(now.memory, Unknown) else memory(now.memory, floor_gib),
            gpus=None if isinstance(now.gpus, Unknown) else tuple(map(gpu, now.gpus)),
            rails=None
            if isinstance(now.rails, Unknown)
            else tuple(rail(before, now, one) for one in now.rails),
            unknown=_reasons(facts),
        )


def elsewhere(rank: int, name: str, available_gib: float | None, floor_gib: float) -> NodeView:
    """Return another machine: of its sensors only the memory is heard of, with its beats."""
    unknown = {"gpus": ELSEWHERE, "rails": ELSEWHERE}
    if available_gib is None:
        return NodeView(
            rank=rank,
            name=name,
            here=False,
            unknown=unknown | {"memory": "nothing is heard of its supervisor"},
        )
    told = MemoryView(available_gib=available_gib, floor_gib=floor_gib)
    return NodeView(rank=rank, name=name, here=False, memory=told, unknown=unknown)


def _reasons(facts: Mapping[str, object]) -> dict[str, str]:
    return {name: fact.unknown for name, fact in facts.items() if isinstance(fact, Unknown)}


def memory(facts: MemoryFacts, floor_gib: float) -> MemoryView:
    """Return memory in GiB."""
    return MemoryView(
        available_gib=gib(facts.available),
        total_gib=gib(facts.total),
        floor_gib=floor_gib,
        swap_used_gib=gib(facts.swap_used),
        swap_total_gib=gib(facts.swap_total),
        pressure_some_percent=facts.pressure_some,
        pressure_full_percent=facts.pressure_full,
    )


def gpu(facts: GpuFacts) -> GpuView:
    """Return what an owner wants to know of a GPU."""
    return GpuView(
        name=facts.name,
        temperature_c=facts.temperature_celsius,
        clock_mhz=facts.sm_clock_mhz,
        max_clock_mhz=facts.max_sm_clock_mhz,
        power_w=facts.power_watts,
        utilisation_percent=facts.utilisation_percent,
        throttled_by=facts.throttled_by,
    )


def rail(before: NodeReading, now: NodeReading, facts: RailFacts) -> RailView:
    """Return a rail with what it carried a second between two readings."""
    earlier = before.rail(facts.name) or RailFacts(name=facts.name)
    seconds = now.at - before.at
    return RailView(
        name=facts.name,
        rdma=facts.rdma,
        address=None if not facts.addresses else facts.addresses[0].partition("/")[0],
        carrier=facts.carrier,
        # A Spark has more ports than cables; an address may go with the carrier.
        lost=facts.carrier is False and bool(facts.addresses or facts.carrier_ups),
        speed_gbit_per_s=None if facts.speed_mbit is None else facts.speed_mbit / 1000,
        mtu=facts.mtu,
        receive_bytes_per_s=_rate(earlier.received_bytes, facts.received_bytes, seconds),
        transmit_bytes_per_s=_rate(earlier.sent_bytes, facts.sent_bytes, seconds),
        errors=facts.errors,
    )


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    """Return the rate; None without two readings, and when the driver began to count anew."""
    if before is None or now is None or seconds <= 0 or now < before:
        return None
    return (now - before) / seconds
