"""What the settings ask of one node: our configuration, or a recipe's `.env` in a report."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address
from typing import Literal

from glm53ctl.config.recipes.shell import read_shell
from glm53ctl.config.schema import Config
from glm53ctl.facts.memory import MemoryFacts, gib
from glm53ctl.plan.env import over_rdma

Rails = Literal["auto", 1, 2]

GPU_SPARE_GIB = 1.5
"""What must be free beyond the share that vLLM takes, on top of it."""


@dataclass(frozen=True)
class Wanted:
    """The settings of one node as checks need them. None and () mean: not said.

    `names` are what the owner calls a setting, for a fix that can be copied.
    """

    rank: int = 0
    world_size: int = 2
    address: IPv4Address | None = None
    peers: tuple[IPv4Address, ...] = ()
    interface: str | None = None
    hcas: tuple[str, ...] = ()
    gid_index: int | None = None
    rails: Rails = "auto"
    rdma: bool = True
    ports: Mapping[str, int] = field(default_factory=dict)
    utilisation: float | None = None
    floor_gib: float = 2.0
    names: Mapping[str, str] = field(default_factory=dict)

    def assign(self, setting: str, value: object) -> str:
        """Return a setting as the owner would write it."""
        name = self.names.get(setting, setting)
        return f"{name}={value}" if name.isupper() else f"{name}: {value}"


def share_gib(utilisation: float, memory: MemoryFacts) -> float:
    """Return what must be free before vLLM takes its share of the GPU's memory, in GiB."""
    return utilisation * gib(memory.total) + GPU_SPARE_GIB


def load_gib(config: Config, memory: MemoryFacts) -> float:
    """Return what must be free before a load: the GPU's share and more, or the CPU engine's."""
    if config.engine.platform != "cuda":
        return config.memory.start_gib
    return share_gib(config.kv.gpu_memory_utilization, memory)


DEFAULT_PORTS = {"api.port": 8888, "fabric.master_port": 29521}


def from_config(config: Config, rank: int) -> Wanted:
    """Return what a configuration asks of the node of a rank."""
    node = config.nodes[rank]
    head_ports = {"api.port": config.api.port, "fabric.master_port": config.fabric.master_port}
    on_cuda = config.engine.platform == "cuda"
    return Wanted(
        rank=rank,
        world_size=config.world_size,
        address=node.address,
        peers=tuple(other.address for other in config.nodes if other is not node),
        interface=node.interface,
        hcas=node.hcas,
        gid_index=node.gid_index,
        rails=config.fabric.rails,
        rdma=over_rdma(config),
        ports=head_ports if rank == 0 else {},
        utilisation=config.kv.gpu_memory_utilization if on_cuda else None,
        floor_gib=config.memory.floor_gib,
        names={key: f"nodes[{rank}].{key}" for key in ("address", "interface", "hcas", "gid_index")}
        | {"rails": "fabric.rails"},
    )


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text.strip()) else None


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text.strip()) else None


def _address(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(text)
    except AddressValueError:
        return None


def from_texts(node: str, texts: Mapping[str, str]) -> Wanted:
    """Return what recorded texts ask of a node: a recipe's `.env`, and `util.txt`."""
    said: dict[str, str] = {}
    for name, text in texts.items():
        if name.endswith(".env"):
            said.update({n: v.value for n, v in read_shell(text).assigned.items()})
    worker = node == "worker" or ("WORKER_IP" in said and "HEAD_IP" not in said)
    side = "WORKER" if worker else "HEAD"
    index = said.get(f"{side}_GID") or said.get("NCCL_IB_GID_INDEX", "")
    rails = said.get("RAILS", "auto")
    named = {"fabric.master_port": said.get("MASTER_PORT"), "api.port": said.get("PORT")}
    ports = {key: _whole(named[key] or str(port)) for key, port in DEFAULT_PORTS.items()}
    return Wanted(
        rank=int(worker),
        address=_address(said.get(f"{side}_IP", "")),
        interface=said.get(f"{side}_CX7_IF"),
        hcas=tuple(filter(None, said.get(f"{side}_CX7_IB", "").split(","))),
        gid_index=_whole(index),
        rails=2 if rails == "2" else 1 if rails == "1" else "auto",
        ports={key: port for key, port in ports.items() if port is not None and not worker},
        utilisation=_number(texts.get("util.txt", said.get("GPU_MEM_UTIL", ""))),
        names={
            "address": f"{side}_IP",
            "interface": f"{side}_CX7_IF",
            "hcas": f"{side}_CX7_IB",
            "gid_index": f"{side}_GID",
            "rails": "RAILS",
        },
    )
