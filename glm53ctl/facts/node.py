"""Everything that is known of one node, as one value: it is judged, recorded and sent."""

import os
import pwd
import time
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue

from glm53ctl import __version__
from glm53ctl.config.schema import Config, Paths
from glm53ctl.facts.host import HERE, Fact, Host, Unknown, known
from glm53ctl.facts.memory import MemoryFacts, probe_memory
from glm53ctl.facts.network import Network, probe_network, probe_rails
from glm53ctl.facts.nvml import GpuFacts, probe_gpus
from glm53ctl.facts.processes import Listener, Process, probe_listeners, probe_processes
from glm53ctl.facts.rdma import RdmaPort, probe_rdma
from glm53ctl.facts.system import (
    Clock,
    Device,
    Disk,
    Kernel,
    Libraries,
    Limits,
    Owner,
    Unit,
    probe_clock,
    probe_devices,
    probe_disks,
    probe_kernel,
    probe_libraries,
    probe_limits,
    probe_owners,
    probe_units,
)

FORMAT: Literal["glm53-facts/1"] = "glm53-facts/1"
SERVICE_USER = "glm53"
UNIT_DIRS = ("/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
NOT_RECORDED = Unknown(unknown="not recorded")


class Software(Fact):
    """What is installed, as far as both nodes must agree on it."""

    version: str
    closure: str = ""
    engine_prefix: str = ""


class ClockCap(Fact):
    """The limit of the GPU clock: what was asked for, and the highest clock that was seen."""

    cap_mhz: int
    low_mhz: int = 0
    seen_mhz: int | None = None
    boot_id: str = ""
    """The boot in which it was set."""


class Boot(Fact):
    """A boot that ended while something was going on, by the supervisor's own marks."""

    boot_id: str
    stage: str


class PeerState(Fact):
    """What the peer last said about itself."""

    name: str
    state: str
    reason: str = ""


class WeightsFacts(Fact):
    """What is in the cache of weights. None means that the source did not say."""

    total_bytes: int | None = None
    valid_bytes: int = 0
    orphans: dict[str, int] = Field(default_factory=dict)
    model: str = ""
    """What the engine is given: a path, or the id of a repository."""
    offline: bool = False
    revision: str = ""
    snapshots: tuple[str, ...] = ()
    main: str = ""
    """The revision that refs/main names."""
    drafts: dict[str, str] = Field(default_factory=dict)
    """Revision of the draft, by node."""


class NodeFacts(Fact):
    """The facts of one node. What was not read says why."""

    format: Literal["glm53-facts/1"] = FORMAT
    node: str = ""
    rank: int | None = None
    at: float = 0.0
    software: Software | Unknown = NOT_RECORDED
    network: Network | Unknown = NOT_RECORDED
    rdma: tuple[RdmaPort, ...] | Unknown = NOT_RECORDED
    gpus: tuple[GpuFacts, ...] | Unknown = NOT_RECORDED
    memory: MemoryFacts | Unknown = NOT_RECORDED
    processes: tuple[Process, ...] | Unknown = NOT_RECORDED
    listeners: tuple[Listener, ...] | Unknown = NOT_RECORDED
    kernel: Kernel | Unknown = NOT_RECORDED
    units: tuple[Unit, ...] | Unknown = NOT_RECORDED
    clock: Clock | Unknown = NOT_RECORDED
    disks: tuple[Disk, ...] | Unknown = NOT_RECORDED
    owners: tuple[Owner, ...] | Unknown = NOT_RECORDED
    service_uid: int | Unknown = NOT_RECORDED
    devices: tuple[Device, ...] | Unknown = NOT_RECORDED
    limits: Limits | Unknown = NOT_RECORDED
    libraries: Libraries | Unknown = NOT_RECORDED
    clock_cap: ClockCap | Unknown = NOT_RECORDED
    boots: tuple[Boot, ...] | Unknown = NOT_RECORDED
    peer: PeerState | Unknown = NOT_RECORDED
    weights: WeightsFacts | Unknown = NOT_RECORDED
    texts: dict[str, str] = Field(default_factory=dict)
    """Settings as text, by file name: unit files, command lines, a recipe's `.env`."""
    config: dict[str, JsonValue] | None = None
    """The configuration that holds here, without secrets."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """How long each probe took."""

    def unknowns(self) -> dict[str, str]:
        """Return what could not be read here, with the reasons; not what was never looked for."""
        facts = ((name, getattr(self, name)) for name in type(self).model_fields)
        found = {
            name: fact.unknown
            for name, fact in facts
            if isinstance(fact, Unknown) and fact != NOT_RECORDED
        }
        network = known(self.network)
        unasked = (p.why for p in (network.probes if network else ()) if p.answered is None)
        if why := next(unasked, ""):
            found["network.probes"] = why
        return found

    def is_empty(self) -> bool:
        """Say whether there is nothing to judge."""
        told = self.model_dump(exclude={"node"})
        return told == NodeFacts().model_dump(exclude={"node"})


def _uid() -> int | Unknown:
    try:
        return pwd.getpwnam(SERVICE_USER).pw_uid
    except KeyError:
        return Unknown(unknown=f"this host has no user {SERVICE_USER}")


def _unit_texts(host: Host) -> dict[str, str]:
    """Return the unit files of the appliance; of two with one name, the one systemd takes."""
    found: dict[str, str] = {}
    for directory in UNIT_DIRS:
        for path in sorted(host.path(directory).glob("glm53-rank*.service")):
            text = host.read(f"{directory}/{path.name}")
            if isinstance(text, str):
                found.setdefault(path.name, text)
    return found


def _network(
    config: Config, rank: int, host: Host, far: Sequence[IPv4Address] = ()
) -> Network | Unknown:
    network = probe_network(host)
    if isinstance(network, Unknown):
        return network
    peers = [node.address for node in config.nodes if node is not config.nodes[rank]]
    probed = probe_rails(network, [*peers, *(far or _neighbours(network, peers))], host)
    after = probe_network(host)  # neighbours are known only when something was sent to them
    seen = network if isinstance(after, Unknown) else after
    return probed.model_copy(update={"neighbours": seen.neighbours})


def _neighbours(network: Network, peers: Sequence[IPv4Address]) -> list[IPv4Address]:
    """Return the only neighbour of each device that is no peer's: the second rail's far end."""
    by_device: dict[str, list[IPv4Address]] = {}
    for one in network.neighbours:
        by_device.setdefault(one.device, []).append(IPv4Address(one.address))
    return [
        addresses[0]
        for device, addresses in by_device.items()
        if len(addresses) == 1
        and addresses[0] not in peers
        and (found := network.named(device)) is not None
        and (found.mtu or 0) > 1500  # a LAN has other neighbours, and is none of our business
    ]


def probe_fabric(
    config: Config, rank: int, far: Sequence[IPv4Address] = (), host: Host = HERE
) -> NodeFacts:
    """Read what the fabric depends on, and nothing else: for the head, who judges all nodes'.

    `far` are the addresses of the other nodes' rails, where they have told them.
    """
    return NodeFacts(
        node=config.nodes[rank].name,
        rank=rank,
        at=time.time(),
        network=_network(config, rank, host, far),
        rdma=probe_rdma(host),
        kernel=probe_kernel(host),
        units=probe_units(host),
    )


def probe_links(
    config: Config, rank: int, far: Sequence[IPv4Address] = (), host: Host = HERE
) -> NodeFacts:
    """Read what `drift` compares: devices, GID tables, and whether the far ends answer."""
    network = _network(config, rank, host, far)
    name = config.nodes[rank].name
    return NodeFacts(node=name, rank=rank, network=network, rdma=probe_rdma(host))


def probe_node(config: Config, rank: int, host: Host = HERE) -> NodeFacts:
    """Read everything that can be judged on this host, which is the one of `rank`."""
    state, weights = config.paths.state_dir, config.weights.model_dir
    probes: dict[str, Callable[[], Any]] = {
        "network": lambda: _network(config, rank, host),
        "rdma": lambda: probe_rdma(host),
        "gpus": probe_gpus,
        "memory": lambda: probe_memory(host),
        "processes": probe_processes,
        "listeners": probe_listeners,
        "kernel": lambda: probe_kernel(host),
        "units": lambda: probe_units(host),
        "clock": lambda: probe_clock(host),
        "disks": lambda: probe_disks((state, weights), host),
        "owners": lambda: probe_owners((state, f"{state}/cache"), host),
        "service_uid": _uid,
        "devices": lambda: probe_devices(host),
        "limits": probe_limits,
        "libraries": lambda: probe_libraries(os.environ.get("LD_LIBRARY_PATH", ""), host),
        "clock_cap": lambda: probe_clock_cap(config, host),
        "texts": lambda: _unit_texts(host),
    }
    facts: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for name, probe in probes.items():
        began = time.monotonic()
        facts[name] = probe()
        seconds[name] = round(time.monotonic() - began, 3)
    return NodeFacts(
        node=config.nodes[rank].name,
        rank=rank,
        at=time.time(),
        software=Software(
            version=__version__,
            closure=os.environ.get("GLM53_CLOSURE", ""),
            engine_prefix=config.engine.prefix,
        ),
        seconds=seconds,
        **facts,
    )


def preparation_dir(paths: Paths) -> Path:
    """Return where the host preparation writes what it did; root's, readable by all."""
    return Path(paths.run_dir).parent / "glm53-prepare"


def probe_clock_cap(config: Config, host: Host = HERE) -> ClockCap | Unknown:
    """Read what the host preparation wrote when it set the cap: a cap does not outlive a boot."""
    cap = config.power.max_gpu_clock_mhz
    if cap is None:
        return NOT_RECORDED
    text = host.read(str(preparation_dir(config.paths) / "clock_cap.json"))
    if isinstance(text, Unknown):
        return ClockCap(cap_mhz=cap)
    try:
        return ClockCap.model_validate_json(text)
    except ValueError as error:
        return Unknown(unknown=f"the record of the clock cap: {error}")
