"""RDMA ports and their GID tables, from sysfs: the same on every distribution."""

import os
import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address

from glm53ctl.facts.host import HERE, Fact, Host, Unknown, known

CLASS = "/sys/class/infiniband"
ROCE_V2 = "RoCE v2"
_ROCE_NAME = re.compile(r"roce(?P<path>(?:P\d+)?p\d+s\d+f(?P<function>\d+))")


class Gid(Fact):
    """One entry of a GID table that is not empty."""

    index: int
    value: str
    type: str

    @property
    def ipv4(self) -> IPv4Address | None:
        """The IPv4 address that the entry stands for (::ffff:a.b.c.d)."""
        return IPv6Address(self.value).ipv4_mapped

    @property
    def link_local(self) -> bool:
        """Whether the entry stands for a link-local address."""
        return IPv6Address(self.value).is_link_local


class RdmaPort(Fact):
    """One port of one RDMA device. None means that the source did not say."""

    device: str
    port: int = 1
    state: str | None = None
    netdev: str | None = None
    pci: str | None = None
    active_mtu: int | None = None
    gids: tuple[Gid, ...] | None = None

    @property
    def active(self) -> bool | None:
        """Whether it can carry anything."""
        return None if self.state is None else self.state.upper() == "ACTIVE"

    @property
    def interface(self) -> str | None:
        """The network device of the port: as read, or what udev's names say."""
        if self.netdev is not None:
            return self.netdev
        named = _ROCE_NAME.fullmatch(self.device)
        return f"en{named['path']}np{named['function']}" if named else None

    def indexes(self, address: IPv4Address | None) -> list[int]:
        """Return the indexes that hold an address as RoCE v2; without one, any IPv4 address."""
        return [
            gid.index
            for gid in self.gids or ()
            if gid.type == ROCE_V2
            and gid.ipv4 is not None
            and (address is None or gid.ipv4 == address)
        ]

    def at(self, index: int) -> Gid | None:
        """Return the entry at an index, None where it is empty."""
        return next((gid for gid in self.gids or () if gid.index == index), None)


def gid_of(index: int, value: str, kind: str) -> Gid | None:
    """Return a GID from its texts; None for an empty one or for what is none."""
    try:
        address = IPv6Address(value.strip())
    except ValueError:
        return None
    if int(address) == 0:
        return None
    # One spelling for IPv4: `str` of a mapped address changed in Python 3.13.
    mapped = address.ipv4_mapped
    text = f"::ffff:{mapped}" if mapped else str(address)
    return Gid(index=index, value=text, type=kind.strip())


def _gids(host: Host, port: str) -> Iterator[Gid]:
    listed = known(host.names(f"{port}/gids")) or ()
    for index in sorted(int(name) for name in listed if name.isdigit()):
        value = host.line(f"{port}/gids/{index}")
        if not value.strip("0:"):
            continue  # empty, as most of 1024 may be, or just changing: its type answers EINVAL
        found = gid_of(index, value, host.line(f"{port}/gid_attrs/types/{index}"))
        if found is not None:
            yield found


def _netdev(host: Host, device: str, port: str) -> str | None:
    """Return the port's network device: of a GID, else the only one of the PCI function."""
    for index in known(host.names(f"{port}/gid_attrs/ndevs")) or ():
        if name := host.line(f"{port}/gid_attrs/ndevs/{index}"):
            return name
    beside = known(host.names(f"{CLASS}/{device}/device/net")) or ()
    return beside[0] if len(beside) == 1 else None


def _port(host: Host, device: str, number: str) -> RdmaPort:
    port = f"{CLASS}/{device}/ports/{number}"
    try:
        pci = os.path.basename(os.readlink(host.path(f"{CLASS}/{device}/device")))
    except OSError:
        pci = None
    state = host.line(f"{port}/state").partition(":")[2].strip()  # "4: ACTIVE"
    return RdmaPort(
        device=device,
        port=int(number),
        state=state or None,
        netdev=_netdev(host, device, port),
        pci=pci,
        gids=tuple(_gids(host, port)),
    )


def probe_rdma(host: Host = HERE) -> tuple[RdmaPort, ...] | Unknown:
    """Read every RDMA port; an empty tuple where the kernel knows none."""
    devices = host.names(CLASS)
    if isinstance(devices, Unknown):
        return devices if host.path(CLASS).exists() else ()
    return tuple(
        _port(host, device, number)
        for device in devices
        for number in known(host.names(f"{CLASS}/{device}/ports")) or ()
        if number.isdigit()
    )
