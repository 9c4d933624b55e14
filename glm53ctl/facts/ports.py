"""Who holds a TCP port."""

import contextlib
import random
import socket
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import psutil

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared, never bound
_HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
"""Below are ports with names, and a user may not have all of them."""


@dataclass(frozen=True)
class PortHolder:
    """The process that listens on a port; pid and name are None where they may not be read."""

    pid: int | None
    name: str | None

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        return f"{self.name or 'process'} (pid {self.pid})"


def why_not(address: str, port: int) -> OSError | None:
    """Return what a server that wants to listen there would get now (with SO_REUSEADDR)."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            return error
    return None


def can_listen(address: str, port: int) -> bool:
    """Say whether a server could listen there now."""
    return why_not(address, port) is None


def free_ports(count: int) -> list[int]:
    """Return different TCP ports of 127.0.0.1 that nobody uses just now.

    None of those that the kernel hands out by itself, unless it hands out all: until a server
    listens there, and each time it starts anew, such a port may become any client's.
    """
    first = int(_HANDED_OUT.read_text().split()[0])
    ports = range(_LOWEST, first) if first >= 2 * _LOWEST else range(_LOWEST, 1 << 16)
    drawn = random.sample(ports, len(ports))
    return list(islice((port for port in drawn if can_listen("127.0.0.1", port)), count))


def holder(address: str, port: int) -> PortHolder:
    """Return who listens on `port` of `address`, as far as this user may see."""
    with contextlib.suppress(psutil.AccessDenied):
        for found in psutil.net_connections("tcp"):
            listens = found.status == psutil.CONN_LISTEN and found.pid is not None
            if not (listens and found.laddr and found.laddr.port == port):
                continue
            if address in _EVERYWHERE or found.laddr.ip in (address, *_EVERYWHERE):
                with contextlib.suppress(psutil.NoSuchProcess):
                    return PortHolder(found.pid, psutil.Process(found.pid).name())
    return PortHolder(None, None)
