"""Network devices, their addresses and neighbours, and whether full-size packets get through."""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Interface
from typing import Any

import psutil
from pydantic import TypeAdapter

from glm53ctl.facts.host import HERE, Fact, Host, Unknown

_OBJECTS = TypeAdapter(list[dict[str, Any]])
_CX7 = re.compile(r"en(P\d+)?p\d+s\d+f\d+np\d+")

IP_AND_ICMP_BYTES = 28
"""Headers in front of the payload of a ping."""


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
    addresses: tuple[Address, ...] | None = None

    @property
    def loopback(self) -> bool:
        """Whether it is `lo`, which no cable and no RDMA device belongs to."""
        return self.name == "lo"

    @property
    def named_as_cx7(self) -> bool:
        """Whether udev named it as a port of a ConnectX-7; the LAN port has another name."""
        return _CX7.fullmatch(self.name) is not None

    def ipv4(self) -> list[IPv4Interface]:
        """Return its IPv4 addresses."""
        found = (address.ipv4 for address in self.addresses or ())
        return [address for address in found if address is not None]


class Neighbour(Fact):
    """What the kernel knows of an address next door."""

    address: str
    device: str
    state: str


class RailProbe(Fact):
    """One full-size packet that must not be fragmented, sent out of one device."""

    device: str
    target: str
    mtu: int
    answered: bool
    why: str = ""


class Network(Fact):
    """All of it."""

    interfaces: tuple[Interface, ...]
    neighbours: tuple[Neighbour, ...] = ()
    probes: tuple[RailProbe, ...] = ()

    def named(self, name: str) -> Interface | None:
        """Return a device by its name."""
        return next((one for one in self.interfaces if one.name == name), None)

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
            Neighbour(address=one["dst"], device=one["dev"], state=" ".join(one.get("state", ())))
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


def probe_rail(
    device: str,
    target: IPv4Address,
    mtu: int,
    host: Host = HERE,
) -> RailProbe | Unknown:
    """Send one packet of the full MTU with DF set; request and reply have the same size."""
    payload = mtu - IP_AND_ICMP_BYTES
    ping = ("ping", "-n", "-q", "-c", "1", "-W", "1", "-M", "do", "-s", str(payload))
    said = host.run((*ping, "-I", device, str(target)))
    if isinstance(said, Unknown) and not said.unknown.startswith("ping ended with 1:"):
        return said  # 1 is "no answer"; anything else is no statement about the cable
    return RailProbe(
        device=device,
        target=str(target),
        mtu=mtu,
        answered=not isinstance(said, Unknown),
        why=said.unknown if isinstance(said, Unknown) else "",
    )


def probe_rails(
    network: Network,
    peers: Sequence[IPv4Address],
    host: Host = HERE,
) -> Network:
    """Return the network with a probe to each peer address that is in a network of a device."""
    probes = []
    for interface in network.interfaces:
        for peer in peers:
            beside = any(peer in one.network and peer != one.ip for one in interface.ipv4())
            if beside and interface.carrier and interface.mtu and not interface.loopback:
                probes.append(probe_rail(interface.name, peer, interface.mtu, host))
    told = tuple(probe for probe in probes if isinstance(probe, RailProbe))
    return network.model_copy(update={"probes": told})
