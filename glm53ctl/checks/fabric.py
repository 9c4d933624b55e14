"""Which cable, which RDMA device, which GID: from the facts to what each rank is told.

`resolve_fabric` looks at one node, `resolve_pair` at all. Both return a plan that can be used, or
the reasons why there is none, never a guess: a wrong device or index hangs the ranks without a
word (ncclCommInitRank) or kills them a minute later (errno 61).

A Spark shows four network devices and four RDMA devices for two ports: each port hangs on two PCI
functions. One rail is one function; the two of one port are rails of their own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network

from glm53ctl.checks.registry import Node, fail, warn
from glm53ctl.checks.wanted import Wanted
from glm53ctl.config.schema import Config
from glm53ctl.facts.host import Unknown, known
from glm53ctl.facts.network import Interface, Network
from glm53ctl.facts.node import NodeFacts
from glm53ctl.facts.rdma import RdmaPort
from glm53ctl.findings import Finding, Severity


@dataclass(frozen=True)
class Rail:
    """One way between the nodes, seen from one end. Without RDMA there is no `hca`."""

    interface: str
    address: IPv4Address
    network: IPv4Network
    mtu: int | None = None
    hca: str | None = None
    indexes: tuple[int, ...] = ()
    """GID indexes that hold the address as RoCE v2."""


@dataclass(frozen=True)
class Fabric:
    """What a rank is told: the rails, the first of which carries the rendezvous."""

    rails: tuple[Rail, ...]
    gid_index: int | None = None

    @property
    def interface(self) -> str:
        """The device for GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME."""
        return self.rails[0].interface

    @property
    def hcas(self) -> tuple[str, ...]:
        """The devices for NCCL_IB_HCA, in the order of the rails."""
        return tuple(rail.hca for rail in self.rails if rail.hca is not None)


@dataclass(frozen=True)
class Resolution:
    """A plan, or None; and what was found on the way."""

    fabric: Fabric | None
    findings: tuple[Finding, ...] = ()

    def applied_to(self, config: Config, rank: int) -> Config:
        """Return the configuration with what was found in the place of what it leaves out.

        Without a plan it is returned as it is: the engine then chooses, as it would by itself.
        """
        if self.fabric is None:
            return config
        node = config.nodes[rank]
        pinned = node.model_copy(
            update={
                "interface": node.interface or self.fabric.interface,
                "hcas": self.fabric.hcas or node.hcas,
                "gid_index": self.fabric.gid_index if self.fabric.hcas else node.gid_index,
            }
        )
        nodes = (*config.nodes[:rank], pinned, *config.nodes[rank + 1 :])
        return config.model_copy(update={"nodes": nodes})


@dataclass
class _Search:
    """The state of resolving one node: its facts, and the findings so far."""

    network: Network
    rdma: tuple[RdmaPort, ...] | None
    wanted: Wanted
    findings: list[Finding] = field(default_factory=list)

    def refuse(self, code: str, message: str, fix: str, *evidence: str, where: str = "") -> None:
        self.findings.append(fail(code, message, fix, *evidence, where=where))

    def mind(self, code: str, message: str, fix: str, *evidence: str, where: str = "") -> None:
        self.findings.append(warn(code, message, fix, *evidence, where=where))

    def ports_on(self, interface: str) -> list[RdmaPort]:
        return [port for port in self.rdma or () if port.interface == interface]

    def live(self) -> list[Interface]:
        """Return what has a cable and an IPv4 address and could be the fabric, RDMA first."""
        found = [
            one
            for one in self.network.interfaces
            if one.carrier and one.ipv4() and (one.named_as_cx7 or self.ports_on(one.name))
        ]
        return sorted(found, key=lambda one: (not self.ports_on(one.name), one.name))


# --- one node ------------------------------------------------------------------------------------


def resolve_fabric(
    network: Network | Unknown, rdma: tuple[RdmaPort, ...] | Unknown, wanted: Wanted
) -> Resolution:
    """Return the fabric of one node: the rail with its address, and others that are pinned.

    A second rail that is not pinned needs the other node's facts: see `resolve_pair`.
    """
    if isinstance(network, Unknown):
        return Resolution(None)
    search = _Search(network, known(rdma), wanted)
    primary = _primary(search)
    if primary is None:
        return Resolution(None, tuple(search.findings))
    rails = [primary, *_pinned_rails(search, primary)]
    if any(finding.severity is Severity.FAIL for finding in search.findings):
        return Resolution(None, tuple(search.findings))
    fabric = _agree(search, rails)
    return Resolution(fabric, tuple(search.findings))


def _primary(search: _Search) -> Rail | None:
    """Find the device that holds the node's address, and judge it."""
    address = search.wanted.address
    if address is None:
        return _by_pins(search)
    holders = search.network.holders(address)
    if address.is_loopback:
        return _rail(search, holders[0], address) if holders else None
    on_cable = [one for one in holders if not one.loopback]
    if holders and not on_cable:
        _on_loopback(search, address)
        return None
    wanted = search.wanted.interface
    chosen = next((one for one in on_cable if one.name == wanted), None)
    if chosen is None and on_cable and wanted is None:
        chosen = on_cable[0]
    if chosen is None or chosen.carrier is False:
        _no_link(search, chosen or search.network.named(wanted or ""), on_cable)
        return None
    return _with_rdma(search, chosen, address)


def _by_pins(search: _Search) -> Rail | None:
    """Without an address in the settings, take that of the pinned device."""
    device = search.network.named(search.wanted.interface or "")
    if device is None or not device.carrier or not device.ipv4():
        return None
    return _with_rdma(search, device, device.ipv4()[0].ip)


def _on_loopback(search: _Search, address: IPv4Address) -> None:
    cables = [one for one in search.live() if search.wanted.interface in (None, one.name)]
    where = cables[0].name if cables else search.wanted.interface or "the ConnectX-7 port"
    there = f" ({cables[0].ipv4()[0]})" if cables else ""
    search.refuse(
        "NET_MASTER_LOOPBACK",
        f"{address} is an address of lo, not of {where}{there}: TCP would work, and RoCE has no "
        "GID for it, so the ranks would hang when they meet.",
        f"Remove {address} from lo and give the node's address on {where} in the settings.",
        where="lo",
    )


def _no_link(search: _Search, device: Interface | None, holders: Sequence[Interface]) -> None:
    """Say that the device is missing, dark or without the address, and which one is right."""
    wanted, address = search.wanted, search.wanted.address
    others = [one for one in holders if one.carrier] or search.live()[:1]
    better = others[0] if others else None
    hint = _hint(search, better)
    if device is not None and device.carrier is False:
        search.refuse(
            "NET_IF_DOWN",
            f"{device.name}, which shall carry {address}, has no carrier"
            + (f"; {better.name} has one and holds {better.ipv4()[0].ip}." if better else "."),
            hint or "Plug in the cable on both ends.",
            where=device.name,
        )
    elif wanted.interface is not None and device is None:
        search.refuse(
            "NET_IF_DOWN",
            f"there is no network device {wanted.interface}"
            + (f"; {better.name} has a carrier." if better else "."),
            hint or "Name the device that the cable is in.",
            where=wanted.interface,
        )
    else:
        search.refuse(
            "NET_ADDRESS_MISSING",
            f"no network device here has {address} ({wanted.names.get('address', 'the address')})"
            + (f"; {better.name} has a carrier and {better.ipv4()[0]}." if better else "."),
            "Plug in the cable and give its port that address, or correct the configuration.",
            where=device.name if device else "",
        )


def _hint(search: _Search, better: Interface | None) -> str:
    """Return the settings to change, as the owner would write them."""
    if better is None:
        return ""
    lines = [search.wanted.assign("interface", better.name)]
    lines += [search.wanted.assign("hcas", port.device) for port in search.ports_on(better.name)]
    return f"Set {' and '.join(lines)}, or move the cable."


def _rail(search: _Search, device: Interface, address: IPv4Address) -> Rail:
    network = next((i.network for i in device.ipv4() if i.ip == address), None)
    return Rail(device.name, address, network or IPv4Network(f"{address}/32"), device.mtu)


def _with_rdma(search: _Search, device: Interface, address: IPv4Address) -> Rail | None:
    """Add the RDMA device of a network device; None, with the reason, where it is of no use."""
    rail = _rail(search, device, address)
    if not search.wanted.rdma or search.rdma is None:
        return rail
    ports = search.ports_on(device.name)
    if not ports:
        search.refuse(
            "NET_HCA_DOWN",
            f"no RDMA device belongs to {device.name}: NCCL could only use TCP.",
            "Load mlx5_ib (rdma-core), or choose the ConnectX-7 port.",
            f"RDMA devices: {', '.join(port.device for port in search.rdma) or 'none'}",
            where=device.name,
        )
        return None
    port = next((one for one in ports if one.active is not False), None)
    if port is None:
        _down(search, ports[0])
        return None
    return _with_gid(search, port, rail)


def _down(search: _Search, port: RdmaPort) -> None:
    search.refuse(
        "NET_HCA_DOWN",
        f"{port.device} port {port.port} is {port.state}"
        + (f" (its network device is {port.interface})." if port.interface else "."),
        _hint(search, next(iter(search.live()), None)) or "Plug in the cable on both ends.",
        where=port.device,
    )


def _with_gid(search: _Search, port: RdmaPort, rail: Rail) -> Rail | None:
    if port.gids is None:
        return replace(rail, hca=port.device)
    indexes = tuple(port.indexes(rail.address))
    if not indexes:
        search.refuse(
            "RDMA_GID_EMPTY",
            f"{port.device} has no RoCE v2 GID for {rail.address}.",
            f"Bring {rail.interface} down and up; if that does not help, rebind its driver.",
            *_table(port),
            where=port.device,
        )
        return None
    return replace(rail, hca=port.device, indexes=indexes)


def _table(port: RdmaPort) -> list[str]:
    return [f"{port.device} index {g.index}: {g.value} {g.type or '-'}" for g in port.gids or ()]


# --- pinned devices and the index ----------------------------------------------------------------


def _pinned_rails(search: _Search, primary: Rail) -> Iterator[Rail]:
    """Yield the rails of the pinned RDMA devices beside the primary one."""
    if not search.wanted.rdma or search.rdma is None:
        return
    pins = search.wanted.hcas
    if pins and primary.hca is not None and primary.hca not in pins:
        search.refuse(
            "NET_HCA_DOWN",
            f"{', '.join(pins)} does not belong to {primary.interface}; {primary.hca} does.",
            f"Set {search.wanted.assign('hcas', primary.hca)}.",
            where=pins[0],
        )
    for pin in pins:
        if pin != primary.hca:
            rail = _pinned(search, pin)
            if rail is not None:
                yield rail


def _pinned(search: _Search, pin: str) -> Rail | None:
    port = next((one for one in search.rdma or () if one.device == pin), None)
    device = search.network.named(port.interface or "") if port else None
    if port is None or port.active is False:
        problem = f"{pin} is {port.state}" if port else f"there is no RDMA device {pin}"
    elif device is None or device.carrier is False:
        problem = f"{pin} has no network device with a carrier"
    elif not device.ipv4():
        problem = f"{device.name} ({pin}) has no IPv4 address"
    else:
        rail = _rail(search, device, device.ipv4()[0].ip)
        indexes = tuple(port.indexes(rail.address))
        if indexes:
            return replace(rail, hca=pin, indexes=indexes)
        problem = f"{pin} has no RoCE v2 GID for {rail.address}"
    _without_second(search, problem, port.device if port else pin)
    return None


def _without_second(search: _Search, problem: str, where: str) -> None:
    """Say that the second rail is out: a refusal where two are asked for, else a warning."""
    fix = "Mend it, or set " + search.wanted.assign("rails", "auto") + "."
    if search.wanted.rails == 2:
        search.refuse("NET_RAIL_DOWN", f"{problem}, and two rails are asked for.", fix, where=where)
    else:
        search.mind("NET_RAIL_DOWN", f"{problem}: one rail is left.", "Mend it.", where=where)


def common_index(rails: Iterable[Rail], pinned: int | None = None) -> int | None:
    """Return the lowest index that is right for every rail: NCCL takes one for the whole rank."""
    sets = [set(rail.indexes) for rail in rails if rail.hca is not None]
    common = set.intersection(*sets) if sets else set()
    if pinned is not None:
        return pinned if pinned in common else None
    return min(common, default=None)


def _agree(search: _Search, rails: list[Rail]) -> Fabric | None:
    """Return the fabric with one index for all rails; drop the second rail where none fits."""
    wanted = search.wanted
    rails = rails[: 1 if wanted.rails == 1 else 2]
    if not rails[0].indexes:  # no RDMA, or a table that nobody told: nothing to agree on
        return Fabric(tuple(rails[:1]), wanted.gid_index)
    index = common_index(rails, wanted.gid_index)
    if index is None and wanted.gid_index is not None:
        wrong = next(rail for rail in rails if wanted.gid_index not in rail.indexes)
        _wrong_index(search, wrong, wanted.gid_index)
        return None
    if index is None:
        sets = " vs ".join(f"{{{', '.join(map(str, r.indexes))}}} on {r.hca}" for r in rails)
        if wanted.rails == 2:
            search.refuse(
                "NET_FABRIC_DEGRADED",
                f"the rails have no GID index in common ({sets}), and two rails are asked for.",
                f"{EUI64.format(device=rails[0].interface)}, or set "
                f"{wanted.assign('rails', 'auto')}.",
            )
            return None
        search.mind(
            "NET_FABRIC_DEGRADED",
            f"the rails have no GID index in common ({sets}): only {rails[0].hca} is used.",
            f"{EUI64.format(device=rails[0].interface)}.",
        )
        return Fabric(tuple(rails[:1]), common_index(rails[:1]))
    return Fabric(tuple(rails), index)


EUI64 = (
    "Leave {device} one link-local address (networkd: IPv6LinkLocalAddressGenerationMode=eui64; "
    "NetworkManager: ipv6.addr-gen-mode eui64), then rebind its driver"
)


def _wrong_index(search: _Search, rail: Rail, index: int) -> None:
    port = next(one for one in search.rdma or () if one.device == rail.hca)
    there = port.at(index)
    what = "empty" if there is None else f"{there.value} ({there.type or 'no type'})"
    right = ", ".join(map(str, rail.indexes))
    search.refuse(
        "RDMA_GID_EMPTY",
        f"GID index {index} of {rail.hca} is {what}; {rail.address} is at index {right}.",
        f"Leave {search.wanted.names.get('gid_index', 'gid_index')} out: the index is found at "
        "every start.",
        *_table(port),
        where=rail.hca or "",
    )


# --- the pair ------------------------------------------------------------------------------------


def resolve_pair(nodes: Sequence[Node]) -> tuple[Resolution, ...]:
    """Return the fabric of each node, in their order: the same number of rails on all.

    A second rail counts when every node has it in the same network, at the same MTU and with a GID
    index that it shares with the first, and when no probe of it went unanswered.
    """
    found = [resolve_fabric(n.facts.network, n.facts.rdma, n.wanted) for n in nodes]
    plans = [one.fabric for one in found]
    if len(nodes) < 2 or any(plan is None for plan in plans):
        return tuple(found)
    resolved = [plan for plan in plans if plan is not None]
    seconds = _seconds(nodes, resolved)
    return tuple(
        Resolution(_with_second(plan, second, node.wanted.gid_index), one.findings)
        for plan, second, node, one in zip(resolved, seconds, nodes, found, strict=True)
    )


def _with_second(plan: Fabric, second: Rail | None, pinned: int | None) -> Fabric:
    first = plan.rails[:1]
    if second is None:
        index = plan.gid_index if len(plan.rails) == 1 else common_index(first, pinned)
        return Fabric(first, index)
    rails = (*first, second)
    return Fabric(rails, common_index(rails, pinned))


def _seconds(nodes: Sequence[Node], plans: Sequence[Fabric]) -> list[Rail | None]:
    """Return the second rail of each node, or None for all."""
    none: list[Rail | None] = [None] * len(nodes)
    if any(node.wanted.rails == 1 or not node.wanted.rdma for node in nodes):
        return none
    offers = [
        {rail.network: rail for rail in _candidates(node, plan)}
        for node, plan in zip(nodes, plans, strict=True)
    ]
    shared = set.intersection(*(set(offer) for offer in offers))

    def other_ports(network: IPv4Network) -> int:
        ends = zip(offers, plans, strict=True)
        return sum(not _one_port(offer[network], plan.rails[0]) for offer, plan in ends)

    # The cable that is in use first: another port may lead to a storage switch.
    for network in sorted(shared, key=lambda network: (other_ports(network), network)):
        rails = [offer[network] for offer in offers]
        if _fits(rails, nodes):
            return list(rails)
    return none


def _one_port(rail: Rail, first: Rail) -> bool:
    return Interface(name=rail.interface).same_port(Interface(name=first.interface))


def _candidates(node: Node, plan: Fabric) -> Iterator[Rail]:
    """Yield the rails that a node could have beside its first."""
    if len(plan.rails) > 1:
        yield plan.rails[1]
        return
    if node.wanted.hcas:
        return  # pinned to one device
    network, rdma = known(node.facts.network), known(node.facts.rdma)
    first = plan.rails[0]
    for port in rdma or ():
        device = network.named(port.interface or "") if network else None
        if port.device == first.hca or not port.active or device is None or not device.carrier:
            continue
        for address in device.ipv4():
            indexes = tuple(port.indexes(address.ip))
            rail = Rail(device.name, address.ip, address.network, device.mtu, port.device, indexes)
            apart = not rail.network.overlaps(first.network)
            if apart and common_index((first, rail), node.wanted.gid_index) is not None:
                yield rail


def _fits(rails: Sequence[Rail], nodes: Sequence[Node]) -> bool:
    addresses = {rail.address for rail in rails}
    if len(addresses) < len(rails) or len({rail.mtu for rail in rails}) > 1:
        return False
    return not any(
        probe.device == rail.interface and probe.answered is False
        for rail, node in zip(rails, nodes, strict=True)
        if (network := known(node.facts.network)) is not None
        for probe in network.probes
    )


# --- while serving -------------------------------------------------------------------------------


def drift(before: Fabric, after: NodeFacts) -> list[Finding]:
    """Return what is no longer as it was when the ranks were started."""
    network, rdma = known(after.network), known(after.rdma)
    findings: list[Finding] = []
    for rail in before.rails:
        if network is not None:
            findings += _lost_link(rail, network.named(rail.interface))
        port = next((one for one in rdma or () if one.device == rail.hca), None)
        if port is not None:
            findings += _moved_gid(rail, port, before.gid_index)
    return [finding.model_copy(update={"node": after.node}) for finding in findings]


def _lost_link(rail: Rail, device: Interface | None) -> Iterator[Finding]:
    fix = "Look at the cable and at the network configuration of both nodes."
    if device is None or device.carrier is False:
        what = "is gone" if device is None else "has no carrier"
        yield warn("NET_RAIL_DOWN", f"{rail.interface} {what}.", fix, where=rail.interface)
    elif device.addresses is not None and all(i.ip != rail.address for i in device.ipv4()):
        message = f"{rail.interface} lost its address {rail.address}."
        yield warn("NET_RAIL_DOWN", message, fix, where=rail.interface)
    elif None not in (device.mtu, rail.mtu) and device.mtu != rail.mtu:
        message = f"the MTU of {rail.interface} was {rail.mtu} and is {device.mtu}."
        yield fail("NET_MTU_MISMATCH", message, fix, where=rail.interface)


def _moved_gid(rail: Rail, port: RdmaPort, index: int | None) -> Iterator[Finding]:
    if port.active is False:
        message = f"{port.device} port {port.port} is {port.state}."
        yield warn("NET_RAIL_DOWN", message, "Look at the cable.", where=port.device)
    elif index is not None and port.gids is not None and index not in port.indexes(rail.address):
        now = ", ".join(map(str, port.indexes(rail.address))) or "nowhere"
        yield warn(
            "RDMA_GID_DRIFT",
            f"the GID of {rail.address} on {port.device} was at index {index} and is at {now}: "
            "new connections of the ranks would fail.",
            "Restart the pair (`glm53ctl restart`), which finds the index again.",
            *_table(port),
            where=port.device,
        )
