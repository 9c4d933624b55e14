"""Network devices, their addresses and neighbours, and whether full-size packets get through."""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Interface
from typing import Any

import psutil
from pydantic import TypeAdapter

from glm53ctl.facts.host import HERE, Fact, Host, Unknown

_OBJECTS = TypeAdapter(list[dict[str, Any]])
_CX7 = re.compile(r"en(P\d+)?p\d+s\d+f\d+np(?P<port>\d+)")

IP_AND_ICMP_BYTES = 28
"""Headers in front of the payload of a ping."""
SMALL_BYTES = 56
"""Payload that every MTU carries."""


class Address(Fact):
    """One address of a device."""

    address: str
    prefix: int

    @property
    def ipv4(self) -> IPv4Interface | None:
        """The address with its network, None for IPv6."""
        return None if ":" in self.address else IPv4Interface(f"{self.address}/{self.prefix}")

    @property
    def link_local(self) -> bool:
        """Whether it is an IPv6 link-local one; each takes two entries of the GID table."""
        return self.address.lower().startswith("fe80:")


class Interface(Fact):
    """One network device. None means that the source did not say."""

    name: str
    mtu: int | None = None
    carrier: bool | None = None
    mac: str = ""
    addresses: tuple[Address, ...] | None = None

    @property
    def loopback(self) -> bool:
        """Whether it is `lo`, which no cable and no RDMA device belongs to."""
        return self.name == "lo"

    @property
    def named_as_cx7(self) -> bool:
        """Whether udev named it as a port of a ConnectX-7; the LAN port has another name."""
        return _CX7.fullmatch(self.name) is not None

    def same_port(self, other: "Interface") -> bool:
        """Say whether the two are one device, or the two PCI functions of one ConnectX-7 port."""
        mine, its = _CX7.fullmatch(self.name), _CX7.fullmatch(other.name)
        return self.name == other.name or bool(mine and its and mine["port"] == its["port"])

    def ipv4(self) -> list[IPv4Interface]:
        """Return its IPv4 addresses."""
        found = (address.ipv4 for address in self.addresses or ())
        return [address for address in found if address is not None]


class Neighbour(Fact):
    """What the kernel knows of an address next door."""

    address: str
    device: str
    state: str
    mac: str = ""

    @property
    def there(self) -> bool:
        """Whether somebody on the cable has said to have the address."""
        return any(word in self.state for word in ("REACHABLE", "STALE", "DELAY", "PROBE"))


class RailProbe(Fact):
    """One full-size packet that must not be fragmented, sent out of one device.

    None means that nothing could be sent, and `why`. `small` is whether a packet of a common size
    was answered, where it was tried since the large one was not.
    """

    device: str
    target: str
    mtu: int
    answered: bool | None
    small: bool | None = None
    why: str = ""


class Network(Fact):
    """All of it."""

    interfaces: tuple[Interface, ...]
    neighbours: tuple[Neighbour, ...] = ()
    probes: tuple[RailProbe, ...] = ()

    def named(self, name: str) -> Interface | None:
        """Return a device by its name."""
        return next((one for one in self.interfaces if one.name == name), None)

    def asked(self, addresses: Sequence[IPv4Address]) -> bool:
        """Whether each of the addresses that is beside a device was asked."""
        done = {(probe.device, probe.target) for probe in self.probes}
        return all((device.name, str(ip)) in done for device, ip in to_ask(self, addresses))

    def holders(self, address: IPv4Address) -> list[Interface]:
        """Return the devices that hold an address; more than one is possible, and a mistake."""
        return [one for one in self.interfaces if any(i.ip == address for i in one.ipv4())]


def device_of(address: IPv4Address) -> str | None:
    """Return the device that has the address; None when no device of this host has it."""
    for device, addresses in psutil.net_if_addrs().items():
        if any(entry.address == str(address) for entry in addresses):
            return device
    return None


def _interface(entry: dict[str, Any]) -> Interface:
    flags, state = entry.get("flags"), entry.get("operstate")
    carrier = None if state not in ("UP", "DOWN") else state == "UP"
    if flags is not None:
        carrier = "LOWER_UP" in flags
    listed = entry.get("addr_info")
    return Interface(
        name=entry["ifname"],
        mtu=entry.get("mtu"),
        carrier=carrier,
        mac=entry.get("address", ""),
        addresses=None
        if listed is None
        else tuple(
            Address(address=one["local"], prefix=one["prefixlen"])
            for one in listed
            if "local" in one
        ),
    )


def parse_interfaces(text: str) -> tuple[Interface, ...] | Unknown:
    """Read what `ip -j address` (or `ip -j link`, without addresses) prints."""
    try:
        entries = _OBJECTS.validate_json(text)
        # Older iproute2 leaves an empty object for what a filter took out.
        return tuple(_interface(entry) for entry in entries if "ifname" in entry)
    except (ValueError, KeyError, TypeError) as error:
        return Unknown(unknown=f"no output of `ip -j address`: {error!r}")


def parse_neighbours(text: str) -> tuple[Neighbour, ...]:
    """Read what `ip -j neighbour` prints; nothing where it is something else."""
    try:
        return tuple(
            Neighbour(
                address=one["dst"],
                device=one["dev"],
                state=" ".join(one.get("state", ())),
                mac=one.get("lladdr", ""),
            )
            for one in _OBJECTS.validate_json(text)
        )
    except (ValueError, KeyError, TypeError):
        return ()


def probe_network(host: Host = HERE) -> Network | Unknown:
    """Read devices, addresses and neighbours, as iproute2 shows them."""
    text = host.run(("ip", "-j", "address"))
    if isinstance(text, Unknown):
        return text
    interfaces = parse_interfaces(text)
    if isinstance(interfaces, Unknown):
        return interfaces
    neighbours = host.run(("ip", "-j", "-4", "neighbour"))
    return Network(
        interfaces=interfaces,
        neighbours=() if isinstance(neighbours, Unknown) else parse_neighbours(neighbours),
    )


def probe_rail(device: str, target: IPv4Address, mtu: int, host: Host = HERE) -> RailProbe:
    """Send one packet of the full MTU with DF set; request and reply have the same size."""
    why = _ping(device, target, mtu - IP_AND_ICMP_BYTES, host)
    probe = RailProbe(device=device, target=str(target), mtu=mtu, answered=not why)
    if not why:
        return probe
    if not _unanswered(why):
        return probe.model_copy(update={"answered": None, "why": why})
    small = _ping(device, target, SMALL_BYTES, host)
    told = None if small and not _unanswered(small) else not small
    return probe.model_copy(update={"small": told, "why": why})


def _ping(device: str, target: IPv4Address, payload: int, host: Host) -> str:
    """Send one packet; return why there was no answer, "" if there was."""
    ping = ("ping", "-n", "-q", "-c", "1", "-W", "1", "-M", "do", "-s", str(payload))
    said = host.run((*ping, "-I", device, str(target)))
    return said.unknown if isinstance(said, Unknown) else ""


def _unanswered(why: str) -> bool:
    """Say whether nobody answered; anything else is no statement about the cable."""
    return why.startswith("ping ended with 1:")


def to_ask(
    network: Network, addresses: Sequence[IPv4Address]
) -> list[tuple[Interface, IPv4Address]]:
    """Return which address can be asked out of which device: beside its own, with a carrier."""
    return [
        (interface, address)
        for interface in network.interfaces
        for address in dict.fromkeys(addresses)
        if interface.carrier and interface.mtu and not interface.loopback
        if any(address in one.network and address != one.ip for one in interface.ipv4())
    ]


def probe_rails(
    network: Network,
    peers: Sequence[IPv4Address],
    host: Host = HERE,
) -> Network:
    """Return the network with a probe to each peer address that is in a network of a device."""

    def ask(rail: tuple[Interface, IPv4Address]) -> RailProbe:
        interface, address = rail
        return probe_rail(interface.name, address, interface.mtu or 0, host)

    rails = to_ask(network, peers)
    # At once: each that stays silent takes its whole second, or two.
    with ThreadPoolExecutor(max(1, len(rails))) as pool:
        return network.model_copy(update={"probes": tuple(pool.map(ask, rails))})
