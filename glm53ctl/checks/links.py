"""Checks of the fabric: cables, RDMA devices, GID tables, MTU and reach."""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from glm53ctl.checks.fabric import EUI64, Fabric, drift, resolve_fabric, resolve_pair
from glm53ctl.checks.registry import (
    CHECKS,
    Node,
    fail,
    judge,
    node_check,
    ok,
    pair_check,
    warn,
)
from glm53ctl.facts.host import known
from glm53ctl.facts.network import Interface, RailProbe
from glm53ctl.facts.rdma import RdmaPort
from glm53ctl.findings import Finding, Severity

SMALL_MTU = 1500


def _interfaces(node: Node) -> tuple[Interface, ...]:
    network = known(node.facts.network)
    return network.interfaces if network else ()


def _rails(node: Node) -> list[Interface]:
    """Return the devices that can be rails: with an RDMA port, or named as ConnectX-7 ports are."""
    with_rdma = {port.interface for port in known(node.facts.rdma) or ()}
    return [
        one
        for one in _interfaces(node)
        if one.name in with_rdma
        or one.named_as_cx7
        or any(i.ip == node.wanted.address for i in one.ipv4())
    ]


@node_check(
    "NET_FABRIC",
    "NET_IF_DOWN",
    "NET_ADDRESS_MISSING",
    "NET_MASTER_LOOPBACK",
    "NET_HCA_DOWN",
    "NET_RAIL_DOWN",
    "NET_FABRIC_DEGRADED",
    "RDMA_GID",
    "RDMA_GID_EMPTY",
)
def fabric(node: Node) -> Iterator[Finding]:
    """Check that the node's address has a device with cable, active RDMA port and right GID."""
    wanted = node.wanted
    if wanted.address is None and wanted.interface is None:
        return
    found = resolve_fabric(node.facts.network, node.facts.rdma, wanted)
    yield from found.findings
    if found.fabric is None:
        return
    first = found.fabric.rails[0]
    hcas = ", ".join(found.fabric.hcas)
    message = f"{first.address} is on {first.interface}" + (f", RDMA by {hcas}." if hcas else ".")
    yield ok("NET_FABRIC", message, where=first.interface)
    if found.fabric.gid_index is not None and hcas:
        yield ok("RDMA_GID", f"GID index {found.fabric.gid_index} is right for {hcas}.")


@node_check("NET_HCA_DOWN")
def pinned_devices(node: Node) -> Iterator[Finding]:
    """Check that one of the RDMA devices that the settings name is active."""
    ports = {port.device: port for port in known(node.facts.rdma) or ()}
    pinned = [ports[name] for name in node.wanted.hcas if name in ports]
    if not pinned or any(port.active is not False for port in pinned):
        return
    alive = next((port for port in ports.values() if port.active), None)
    for port in pinned:
        yield fail(
            "NET_HCA_DOWN",
            f"{port.device} port {port.port} is {port.state}, and the settings name it.",
            f"Set {node.wanted.assign('hcas', alive.device)}."
            if alive
            else "Plug in the cable on both ends.",
            *(f"{one.device} is {one.state}" for one in ports.values()),
            where=port.device,
        )


@node_check("RDMA_GID_EMPTY")
def pinned_index(node: Node) -> Iterator[Finding]:
    """Check that a GID index in the settings holds an IPv4 address as RoCE v2 on each device."""
    index, wanted = node.wanted.gid_index, node.wanted
    ports = [p for p in known(node.facts.rdma) or () if p.gids is not None]
    ports = [p for p in ports if not wanted.hcas or p.device in wanted.hcas]
    if index is None:
        return
    tables = {port.device: _right_indexes(port, wanted.address) for port in ports}
    for port in ports:
        if index in tables[port.device] or not wanted.hcas:
            continue
        there = port.at(index)
        state = "empty" if there is None else f"{there.value} ({there.type or 'no type'})"
        right = ", ".join(f"index {i}" for i in tables[port.device]) or "no index"
        yield fail(
            "RDMA_GID_EMPTY",
            f"GID index {index} of {port.device} is {state}; the address is at {right}.",
            _index_fix(node, port, list(tables.values())),
            *_lines(port),
            where=port.device,
        )


def _right_indexes(port: RdmaPort, address: IPv4Address | None) -> list[int]:
    """Return the indexes of the own address on this device, which may be the second rail's."""
    return (port.indexes(address) if address else []) or port.indexes(None)


def _index_fix(node: Node, port: RdmaPort, tables: list[list[int]]) -> str:
    if set.intersection(*map(set, tables)):
        return f"Leave {node.wanted.names.get('gid_index', 'gid_index')} out: the index is found."
    sets = " vs ".join(f"{{{', '.join(map(str, table))}}}" for table in tables)
    moved = EUI64.format(device=port.interface or port.device)
    return f"No common index: {sets}. {moved}, or use one rail."


def _lines(port: RdmaPort) -> list[str]:
    return [f"{port.device} index {g.index}: {g.value} {g.type or '-'}" for g in port.gids or ()]


@node_check("RDMA_GID_EXTRA_LINKLOCAL")
def link_local(node: Node) -> Iterator[Finding]:
    """Check that each RDMA device has one link-local address: more move the others in its table."""
    for port in known(node.facts.rdma) or ():
        locals_ = sorted({gid.value for gid in port.gids or () if gid.link_local})
        if len(locals_) > 1:
            yield warn(
                "RDMA_GID_EXTRA_LINKLOCAL",
                f"{port.device} has {len(locals_)} link-local addresses (fe80::), which moves the "
                "IPv4 address to another GID index, at the next boot perhaps.",
                f"{EUI64.format(device=port.interface or port.device)}.",
                *locals_,
                where=port.device,
            )


@node_check("NET_NEIGH", "NET_NEIGH_FAILED", "NET_MTU_MISMATCH", "NET_RAIL_UNREACHABLE")
def reach(node: Node) -> Iterator[Finding]:
    """Check that packets of the full MTU reach the peer on every rail."""
    network = known(node.facts.network)
    probes = network.probes if network else ()
    neighbours = network.neighbours if network else ()
    beside = {(one.device, one.address): one for one in neighbours}
    silent = [probe for probe in probes if probe.answered is False]
    for probe in probes:
        neighbour = beside.get((probe.device, probe.target))
        state = neighbour.state if neighbour else ""
        sent = f"{probe.target} by {probe.device}"
        if probe.answered is None:
            continue
        if probe.answered:
            message = f"{sent} answers packets of {probe.mtu} bytes."
            yield ok("NET_NEIGH", message, where=probe.device)
        elif not _is_first(node, probe.device):
            # With RDMA, `rails` knows whether this would be one of two, and refuses then.
            say = fail if node.wanted.rails == 2 and not node.wanted.rdma else warn
            yield say(
                "NET_RAIL_UNREACHABLE",
                f"{sent} does not answer packets of {probe.mtu} bytes although the link is up: "
                "this rail is not used.",
                _crossed(silent) or "Look at the cable, the MTU and the address of both ends.",
                probe.why,
                where=probe.device,
            )
        elif probe.small or (probe.small is None and neighbour and neighbour.there):
            yield fail(
                "NET_MTU_MISMATCH",
                f"{sent} is there and does not answer packets of {probe.mtu} bytes.",
                "Give both ends the same MTU (9000).",
                f"neighbour {probe.target}: {state}",
                where=probe.device,
            )
        else:
            yield fail(
                "NET_NEIGH_FAILED",
                f"{sent} does not answer, although the link is up.",
                _crossed(silent) or "Look whether the peer is on and has this address.",
                f"neighbour {probe.target}: {state or 'none'}",
                where=probe.device,
            )


@node_check("NET_NEIGH_FAILED")
def beside(node: Node) -> Iterator[Finding]:
    """Check that the peers' addresses are in the network of the node's own."""
    own = _own(node)
    for peer in node.wanted.peers:
        if own is not None and peer not in own.network:
            yield fail(
                "NET_NEIGH_FAILED",
                f"{own} is the address of this node, and {peer}, its peer's, is not in that "
                "network.",
                "Give both ends of the cable addresses of one network, with the same prefix.",
                where=str(peer),
            )


def _is_first(node: Node, device: str) -> bool:
    return any(
        one.name == device and any(i.ip == node.wanted.address for i in one.ipv4())
        for one in _interfaces(node)
    )


def _crossed(silent: Sequence[RailProbe]) -> str:
    """Say what two silent rails with a carrier have in common."""
    if len(silent) < 2:
        return ""
    return "No rail answers: the cables may be swapped. Use the same port on both ends."


def addresses(node: Node) -> tuple[IPv4Address, ...]:
    """Return the addresses of a node's rails."""
    return tuple(a.ip for one in _rails(node) if not one.loopback for a in one.ipv4())


# --- both nodes ----------------------------------------------------------------------------------


@pair_check("NET_CABLES_SWAPPED")
def cables(nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """Check that no cable joins one rail's port to the other rail's.

    TCP can work all the same: a host answers for each of its addresses on all of its ports. The
    hardware address of the answer says which port it was.
    """
    seen = set()
    for here in nodes:
        for there in nodes:
            for device, port, meant in _misplugged(here, there):
                ends = frozenset({(here.name, device), (there.name, port)})
                if ends in seen:
                    continue
                seen.add(ends)
                finding = fail(
                    "NET_CABLES_SWAPPED",
                    f"the cable in {device} of {here.name} ends in {port} of {there.name} instead "
                    f"of {meant}.",
                    "Plug each cable into the same port on both ends.",
                    where=device,
                )
                yield finding.model_copy(update={"node": here.name})


def _misplugged(here: Node, there: Node) -> Iterator[tuple[str, str, str]]:
    """Yield devices that do not reach an address, the far port they are joined to, and its own."""
    network = known(here.facts.network)
    if here is there or network is None:
        return
    silent = {(p.device, p.target) for p in network.probes if p.answered is False}
    ports = {one.mac: one for one in _rails(there) if one.mac}
    for neighbour in network.neighbours:
        port = ports.get(neighbour.mac)
        address = IPv4Address(neighbour.address)
        if port is None or not neighbour.there or (neighbour.device, str(address)) not in silent:
            continue
        for meant in _rails(there):
            if any(i.ip == address for i in meant.ipv4()) and not meant.same_port(port):
                yield neighbour.device, port.name, meant.name


@pair_check("NET_MTU_MISMATCH", "NET_FABRIC_DEGRADED")
def equal_mtu(nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """Check that both ends of a rail have the same MTU."""
    first, plan = nodes[0], resolve_pair(nodes)[0].fabric
    for other in nodes[1:]:
        for here, there in _ends(first, other):
            if here.mtu is None or there.mtu is None:
                continue
            if here.mtu != there.mtu:
                # A second rail with this is used by no rank; where it is needed, `rails` refuses.
                used = plan is None or plan.interface == here.name
                yield _unequal(first, here, other, there, used=used)
            elif here.mtu <= SMALL_MTU:
                yield warn(
                    "NET_FABRIC_DEGRADED",
                    f"{here.name} has MTU {here.mtu} on both ends: it works, a little slower.",
                    "Set MTU 9000 on both ends.",
                    where=here.name,
                )


def _ends(first: Node, other: Node) -> Iterator[tuple[Interface, Interface]]:
    """Yield the ends of each rail: devices in one network, or of one name where none is known."""
    far = _rails(other)
    for here in _rails(first):
        networks = {i.network for i in here.ipv4()}
        there = next((i for i in far if networks & {a.network for a in i.ipv4()}), None)
        if there is None and here.addresses is None:
            there = next((i for i in far if i.name == here.name), None)
        if there is not None:
            yield here, there


def _unequal(first: Node, here: Interface, other: Node, there: Interface, *, used: bool) -> Finding:
    def side(node: Node, device: Interface) -> str:
        port = next((p for p in known(node.facts.rdma) or () if p.interface == device.name), None)
        rdma = f", RoCE {port.active_mtu}" if port and port.active_mtu else ""
        return f"{device.mtu}{rdma} on {node.name} ({device.name})"

    effect = "Small messages pass, large ones are retried until the rank dies."
    say = fail if used else warn
    return say(
        "NET_MTU_MISMATCH",
        f"the MTU of a rail differs: {side(first, here)}, {side(other, there)}. "
        f"{effect if used else 'This rail is not used.'}",
        "Set the same MTU (9000) on both ends, where it outlives a reboot.",
        where=here.name,
    )


@pair_check("NET_NEIGH_FAILED", "NET_RAIL_DOWN", "NET_RAIL_UNREACHABLE")
def same_networks(nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """Check that the nodes' rails are in the same networks."""
    head = nodes[0]
    plans = [one.fabric for one in resolve_pair(nodes)]
    whole = all(plan is not None and len(plan.rails) == 2 for plan in plans)
    for node in nodes[1:]:
        if not _addressed(head, node):
            continue
        yield from _apart(head, node)
        if not whole:  # else the address is one of another port, of a storage network perhaps
            yield from _lacking(head, node)
            yield from _lacking(node, head)


def _addressed(*nodes: Node) -> bool:
    return all(any(i.ipv4() for i in _rails(node)) for node in nodes)


def _networks(node: Node) -> dict[IPv4Network, Interface]:
    return {a.network: one for one in _rails(node) for a in one.ipv4()}


def _own(node: Node) -> IPv4Interface | None:
    addresses = (a for one in _rails(node) for a in one.ipv4())
    return next((a for a in addresses if a.ip == node.wanted.address), None)


def _apart(head: Node, node: Node) -> Iterator[Finding]:
    here, there = _own(head), _own(node)
    if here is None or there is None or here.network == there.network:
        return
    finding = fail(
        "NET_NEIGH_FAILED",
        f"{here} on {head.name} and {there} on {node.name} are not in one network.",
        "Give both ends of the cable addresses of one network, with the same prefix.",
    )
    yield finding.model_copy(update={"node": node.name})


def _lacking(here: Node, other: Node) -> Iterator[Finding]:
    """Yield the rails that `other` has an address for and `here` has not."""
    mine, primary = _networks(here), _own(other)
    for network, there in _networks(other).items():
        device = next((i for i in _rails(here) if i.name == there.name), None)
        if network in mine or device is None or (primary and primary.network == network):
            continue
        if device.ipv4():
            finding = warn(
                "NET_RAIL_UNREACHABLE",
                f"{device.name} has {device.ipv4()[0]}, {other.name}'s has an address in "
                f"{network}: this rail is not used.",
                "Give both ends addresses of one network.",
                where=device.name,
            )
        else:
            finding = _no_address(here, device, network)
        yield finding.model_copy(update={"node": here.name})


def _no_address(node: Node, device: Interface, network: IPv4Network) -> Finding:
    own = next((a for one in _rails(node) for a in one.ipv4()), None)
    host = int(own.ip) & int(own.hostmask) if own else 0
    address = f"{network[host]}" if host else f"an address in {network}"
    units = [unit for unit in known(node.facts.units) or () if "rail" in unit.id]
    left = ",".join(node.wanted.hcas[:1]) or "the first rail's device"
    say = fail if node.wanted.rails == 2 else warn
    return say(
        "NET_RAIL_DOWN",
        f"{device.name} has no IPv4 address; the other node expects {address}. One rail is left.",
        f"Add {address}/{network.prefixlen} again. Until then: effective NCCL_IB_HCA={left} on "
        "both ranks.",
        *(
            f"{unit.id} says {unit.get('ActiveState')} ({unit.get('SubState')}), which proves "
            "nothing about the address"
            for unit in units
        ),
        where=device.name,
    )


@pair_check("NET_TWIN_RAILS", "NET_FABRIC_DEGRADED")
def rails(nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """Check how many rails both nodes can use."""
    plans = [one.fabric for one in resolve_pair(nodes)]
    counts = {len(plan.rails) for plan in plans if plan is not None and plan.hcas}
    if None in plans or not counts:
        return
    if counts == {2}:
        names = "; ".join(
            f"{', '.join(plan.hcas)} on {node.name}"
            for plan, node in zip(plans, nodes, strict=True)
            if plan is not None
        )
        yield ok("NET_TWIN_RAILS", f"two rails: {names}.")
    elif any(node.wanted.rails == 2 for node in nodes):
        yield fail(
            "NET_FABRIC_DEGRADED",
            "two rails are asked for and only one is whole on both nodes.",
            f"Mend the second, or set {nodes[0].wanted.assign('rails', 'auto')}.",
        )


# --- what is told --------------------------------------------------------------------------------

_WHEN_SWAPPED = {"NET_NEIGH_FAILED", "NET_RAIL_UNREACHABLE", "NET_MTU_MISMATCH"}
"""What swapped cables look like from one end."""


def telling(findings: Iterable[Finding]) -> list[Finding]:
    """Return what an operator should see: nothing that is well, no effect beside its cause."""
    found = [finding for finding in findings if finding.severity is not Severity.OK]
    swapped = any(finding.code == "NET_CABLES_SWAPPED" for finding in found)
    return [f for f in found if not (swapped and f.code in _WHEN_SWAPPED)]


def changed(before: Fabric, after: Node, others: Sequence[Node]) -> list[Finding]:
    """Return what is no longer as it was when the ranks were started; `others` are from then."""
    here = [check for check in CHECKS if check.of_node is reach]
    return telling([*cables((after, *others)), *drift(before, after.facts), *judge([after], here)])
