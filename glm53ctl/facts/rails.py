"""The ports of the fabric and what they carried, from sysfs: cheap enough for every few seconds.

RDMA goes past the kernel: the network device's counters do not see it, the RDMA port's do.
"""

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Interface

import psutil

from glm53ctl.facts.host import HERE, Fact, Host, Unknown, known
from glm53ctl.facts.network import Interface
from glm53ctl.facts.rdma import CLASS

NET = "/sys/class/net"
RDMA_WORD_BYTES = 4
"""port_rcv_data and port_xmit_data count words of four bytes, on RoCE too."""
_NET_ERRORS = ("rx_errors", "tx_errors")
_RDMA_ERRORS = (
    "counters/symbol_error",
    "counters/port_rcv_errors",
    "counters/link_error_recovery",
    "hw_counters/packet_seq_err",
    "hw_counters/local_ack_timeout_err",
)
"""Damaged or lost packets, and answers that RDMA waited for in vain."""

Addresses = Mapping[str, Sequence[str]]
"""IPv4 addresses with their prefix ("192.168.100.1/24"), by device."""


class RailFacts(Fact):
    """One port. Counters count since the driver was loaded. None means nobody said."""

    name: str
    rdma: str | None = None
    addresses: tuple[str, ...] | None = None
    carrier: bool | None = None
    carrier_ups: int | None = None
    """How often a carrier came up; 0 where there never was a cable."""
    speed_mbit: int | None = None
    mtu: int | None = None
    received_bytes: int | None = None
    sent_bytes: int | None = None
    errors: int | None = None


def read_addresses() -> Addresses | Unknown:
    """Ask the kernel for the IPv4 addresses of all devices."""
    try:
        found = psutil.net_if_addrs()
    except OSError as error:  # a sandbox without AF_NETLINK
        return Unknown(unknown=f"addresses cannot be listed: {error.strerror}")
    return {
        device: [
            str(IPv4Interface(f"{entry.address}/{entry.netmask}"))
            for entry in entries
            if entry.family == socket.AF_INET and entry.netmask
        ]
        for device, entries in found.items()
    }


def probe_rails(
    own: IPv4Address,
    host: Host = HERE,
    addresses: Callable[[], Addresses | Unknown] = read_addresses,
) -> tuple[RailFacts, ...] | Unknown:
    """Read the devices that can be rails: with an RDMA port, named as one, or with `own`."""
    devices = host.names(NET)
    if isinstance(devices, Unknown):
        return devices
    rdma = _rdma_of_devices(host)
    listed = addresses()
    held = {} if isinstance(listed, Unknown) else listed
    return tuple(
        _rail(host, name, rdma.get(name), None if isinstance(listed, Unknown) else held.get(name))
        for name in devices
        if not (one := Interface(name=name)).loopback
        and (name in rdma or one.named_as_cx7 or _holds(held.get(name, ()), own))
    )


def _holds(addresses: Sequence[str], own: IPv4Address) -> bool:
    return any(IPv4Interface(address).ip == own for address in addresses)


def _rdma_of_devices(host: Host) -> dict[str, str]:
    """Return the RDMA device by network device: on a ConnectX-7 each PCI function has one of each.

    The GID tables say the same and take hundreds of reads.
    """
    return {
        net: device
        for device in known(host.names(CLASS)) or ()
        for net in known(host.names(f"{CLASS}/{device}/device/net")) or ()
    }


def _rail(host: Host, name: str, rdma: str | None, addresses: Sequence[str] | None) -> RailFacts:
    base = f"{NET}/{name}"
    port = f"{CLASS}/{rdma}/ports/1" if rdma else None
    errors = [f"{base}/statistics/{error}" for error in _NET_ERRORS]
    errors += [f"{port}/{error}" for error in _RDMA_ERRORS] if port else []
    carrier = _number(host, f"{base}/carrier")  # of a device that is down it answers EINVAL
    down = host.line(f"{base}/operstate") == "down"
    speed = _number(host, f"{base}/speed")
    return RailFacts(
        name=name,
        rdma=rdma,
        addresses=None if addresses is None else tuple(addresses),
        carrier=bool(carrier) if carrier is not None else (False if down else None),
        carrier_ups=_number(host, f"{base}/carrier_up_count"),
        speed_mbit=speed if speed is not None and speed > 0 else None,  # -1 is "no link"
        mtu=_number(host, f"{base}/mtu"),
        received_bytes=_carried(host, base, "rx_bytes", port, "port_rcv_data"),
        sent_bytes=_carried(host, base, "tx_bytes", port, "port_xmit_data"),
        errors=_sum(_number(host, path) for path in errors),
    )


def _carried(host: Host, base: str, ip: str, port: str | None, rdma: str) -> int | None:
    words = _number(host, f"{port}/counters/{rdma}") if port else None
    past_the_kernel = None if words is None else words * RDMA_WORD_BYTES
    return _sum((_number(host, f"{base}/statistics/{ip}"), past_the_kernel))


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of what is known; None where nothing is."""
    told = [number for number in numbers if number is not None]
    return sum(told) if told else None


def _number(host: Host, path: str) -> int | None:
    text = host.line(path)
    try:
        return int(text)
    except ValueError:
        return None
