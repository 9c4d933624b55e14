"""The machines and the wire between them."""

from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from glm53ctl.config.schema.base import Knob, Section

Port = Annotated[int, Field(ge=1, le=65535)]


class Node(Section):
    """One machine. Its place in `nodes` is its rank: the first is the head and serves the API."""

    name: Annotated[
        str,
        Field(max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*$", examples=["spark-head"]),
    ]
    """What the machine is called in status, logs and findings."""
    address: IPv4Address
    """IPv4 address on the fabric (the ConnectX-7 cable), not on the LAN."""
    interface: str | None = None
    """Fabric network device; left out, the one that holds `address`."""
    hcas: tuple[str, ...] = ()
    """RDMA devices (one a rail); left out, NCCL chooses."""
    gid_index: Annotated[int | None, Field(ge=0, le=255)] = None
    """RoCE v2 GID index; left out, NCCL chooses."""
    cpus: Annotated[
        str | None,
        Field(
            pattern=r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$", examples=["0-3,8"]
        ),
    ] = None
    """Cores of a CPU rank, in `taskset` syntax. The CUDA engine ignores it."""


def _whole(value: object) -> object:
    """Return digits as the number they are: every source is text, and a literal is not parsed."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class Fabric(Section):
    """Ports on the fabric, and what NCCL is told about it."""

    master_port: Annotated[
        Port, Knob(flag="--master-port", vllm_recipe="MASTER_PORT", tensorfold="MASTER_PORT")
    ] = 29521
    """Port on the head where the ranks of the engine meet."""
    link_port: Port = 29520
    """Port on the head where the supervisors meet."""
    rails: Annotated[
        Literal["auto", 1, 2], BeforeValidator(_whole), Knob(tensorfold="NCCL_RAILS")
    ] = "auto"
    """How many of the cable's two links are used. auto: both where the second one works on both
    nodes, else one. 2: no start without the second one."""
    nccl_debug: Annotated[
        Literal["VERSION", "WARN", "INFO", "TRACE"], Knob(vllm_recipe="NCCL_DEBUG")
    ] = "WARN"
    """NCCL's log level; INFO names the network that it took."""


class Link(Section):
    """The pair link: how the supervisors know and watch each other."""

    token_file: Annotated[str | None, Knob(node_local=True)] = None
    """File with the secret both nodes share; left out, the systemd credential `pair-token`."""
    beat_seconds: Annotated[float, Field(gt=0, le=10)] = 0.5
    """How often each side says it is alive."""
    closed_grace_seconds: Annotated[float, Field(ge=0, le=60)] = 1.0
    """How long a closed connection may take to come back before the epoch ends. The kernel closes
    a dead supervisor's connection at once, so this decides how soon a death is noticed."""
    silence_grace_seconds: Annotated[float, Field(gt=0, le=3600)] = 90.0
    """How long a peer may be silent on an open connection (a cable pulled, a host without power)
    before the epoch ends. Requests survive an interruption of a minute, so this is longer."""
