"""Every fault of the bed as data: its name, what it takes, what does it and what undoes it.

What is not here, because two hosts on one kernel cannot have it:

- a jump of the clock: CLOCK_REALTIME belongs to the kernel; a time namespace (`unshare --time`)
  shifts the monotonic and boot clocks only, and only before its first process. Setting the real
  clock would set this machine's. It needs a virtual machine with a kernel of its own.
- loss and delay of packets, where the kernel has no netem;
- a full disk of its own: the disks share this machine's. Mount a small tmpfs over the folder in
  question: `bed.worker.exec("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/var/lib/glm53")`.
- MemoryMax and the like, where cgroup2 has no controllers (hybrid hierarchies). LimitAS works.
- udev and its .device units, kernel modules, RDMA.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .bed import Bed
from .host import Host
from .layout import PORTS, SPARKS, Port

Takes = Literal["host", "host port", "port"]


@dataclass(frozen=True)
class Fault:
    """One fault, or what undoes it."""

    name: str
    takes: Takes
    act: Callable[[Bed, Host, Port], object]
    help: str
    undo: str | None = None


FAULTS = (
    Fault(
        "cut", "host port", lambda b, h, p: b.network.cut(h.spark, p),
        "one port loses its carrier", undo="plug",
    ),
    Fault("plug", "host port", lambda b, h, p: b.network.plug(h.spark, p), "undo cut"),
    Fault("pull", "port", lambda b, h, p: b.network.pull(p), "a cable is out, at both ends",
          undo="push"),
    Fault("push", "port", lambda b, h, p: b.network.push(p), "undo pull"),
    Fault(
        "mute", "host port", lambda b, h, p: b.network.mute(h.spark, p),
        "a port drops every packet, its carrier stays up", undo="unmute",
    ),
    Fault(
        "swap", "host", lambda b, h, p: b.network.swap(h.spark),
        "the two cables of a host are in each other's port", undo="unswap",
    ),
    Fault("unswap", "host", lambda b, h, p: b.network.unswap(h.spark), "undo swap"),
    Fault("unmute", "host port", lambda b, h, p: b.network.unmute(h.spark, p), "undo mute"),
    Fault(
        "remove", "host port", lambda b, h, p: b.network.remove_card(h.spark, p),
        "a network card is gone from a running host", undo="insert",
    ),
    Fault("insert", "host port", lambda b, h, p: b.network.insert_card(h.spark, p), "undo remove"),
    Fault("power-loss", "host", lambda b, h, p: h.power_loss(),
          "a host dies and its peers hear nothing", undo="start"),
    Fault("crash", "host", lambda b, h, p: h.crash(),
          "all processes of a host die; its peers get FIN or RST", undo="start"),
    Fault("stop", "host", lambda b, h, p: h.stop(), "power off in order", undo="start"),
    Fault("reboot", "host", lambda b, h, p: b.reboot(h), "reboot in order, wait until it is up"),
    Fault("start", "host", lambda b, h, p: b.start(h), "boot a host that is down, on its disk"),
)  # fmt: skip


def host(bed: Bed, name: str) -> Host:
    """Return a host by its name, or by its role (`head`, `worker`)."""
    return next(host for host in bed.hosts.values() if name in (host.name, host.spark.short))


def port(name: str) -> Port:
    """Return a port by its name in the hosts, or by its network."""
    return next(port for port in PORTS if name in (port.name, port.network))


HOST_NAMES = [name for spark in SPARKS for name in (spark.short, spark.name)]
PORT_NAMES = [name for p in PORTS for name in (p.network, p.name)]
