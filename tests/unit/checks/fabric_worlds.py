"""Nodes with made-up ports, cables, addresses and GID tables."""

from ipaddress import IPv4Address, IPv4Interface

from hypothesis import strategies as st

from glm53ctl.checks.registry import Node
from glm53ctl.checks.wanted import Wanted
from glm53ctl.facts.network import Address, Interface, Network, RailProbe
from glm53ctl.facts.node import NodeFacts
from glm53ctl.facts.rdma import Gid, RdmaPort

PORTS = ("p1s0f0", "p1s0f1", "P2p1s0f0", "P2p1s0f1")
"""The four PCI functions of a Spark's two ports."""


def netdev(path: str) -> str:
    return f"en{path}np{path[-1]}"


def interface(name: str, *addresses: str, mtu: int = 9000, carrier: bool | None = True):
    parsed = [IPv4Interface(a) for a in addresses]
    told = tuple(Address(address=str(i.ip), prefix=i.network.prefixlen) for i in parsed)
    return Interface(name=name, mtu=mtu, carrier=carrier, addresses=told)


def gid(index: int, value: str, kind: str = "RoCE v2") -> Gid:
    return Gid(index=index, value=value, type=kind)


def table(address: str, at: int = 3) -> tuple[Gid, ...]:
    """A table as mlx5 fills it: two link-local entries, then v1 and v2 of the address."""
    mapped = f"::ffff:{address}"
    return (
        gid(0, "fe80::200:5eff:fe00:5302", "IB/RoCE v1"),
        gid(1, "fe80::200:5eff:fe00:5302"),
        gid(at - 1, mapped, "IB/RoCE v1"),
        gid(at, mapped),
    )


def spark(
    rank: int,
    *,
    name: str = "",
    at: tuple[int, int] = (3, 3),
    second: bool = True,
    probes: tuple[RailProbe, ...] = (),
    mtu: tuple[int, int] = (9000, 9000),
    **wanted,
) -> Node:
    """A healthy Spark: one cable in port 0, two rails on it, and a LAN."""
    host = rank + 1
    own, other = f"10.0.0.{host}", f"10.0.1.{host}"
    interfaces = [
        interface("lo", "127.0.0.1/8", mtu=65536),
        interface("enP7s7", f"192.168.1.{host}/24", mtu=1500),
        interface("enp1s0f0np0", f"{own}/24", mtu=mtu[0]),
        interface("enp1s0f1np1", carrier=False, mtu=1500),
        interface("enP2p1s0f0np0", *([f"{other}/24"] if second else []), mtu=mtu[1]),
        interface("enP2p1s0f1np1", carrier=False, mtu=1500),
    ]
    ports = (
        RdmaPort(device="rocep1s0f0", state="ACTIVE", netdev="enp1s0f0np0", gids=table(own, at[0])),
        RdmaPort(device="rocep1s0f1", state="DOWN", netdev="enp1s0f1np1", gids=()),
        RdmaPort(
            device="roceP2p1s0f0",
            state="ACTIVE",
            netdev="enP2p1s0f0np0",
            gids=table(other, at[1]) if second else (),
        ),
        RdmaPort(device="roceP2p1s0f1", state="DOWN", netdev="enP2p1s0f1np1", gids=()),
    )
    settings = {"rank": rank, "address": IPv4Address(own)} | wanted
    return Node(
        NodeFacts(
            node=name or ("head", "worker")[rank],
            rank=rank,
            network=Network(interfaces=tuple(interfaces), probes=probes),
            rdma=ports,
        ),
        Wanted(**settings),
    )


# --- anything ------------------------------------------------------------------------------------


def _shifted(port: RdmaPort, by: int) -> RdmaPort:
    moved = [entry.model_copy(update={"index": entry.index + by}) for entry in port.gids or ()]
    return port.model_copy(update={"gids": tuple(moved)})


def _filled(port: RdmaPort, number: int) -> RdmaPort:
    """Put another entry before the right one: an address of somebody else, or version 1."""
    other = ("::ffff:10.0.0.1", "::ffff:10.0.0.2", "::ffff:10.0.1.1", "fe80::9")[number % 4]
    kind = ("RoCE v2", "IB/RoCE v1", "")[number % 3]
    kept = [entry for entry in port.gids or () if entry.index != number % 3]
    return port.model_copy(update={"gids": (gid(number % 3, other, kind), *kept)})


_OF_PORT = {
    "moved": _shifted,
    "filled": _filled,
    "emptied": lambda port, number: port.model_copy(
        update={"gids": tuple(e for e in port.gids or () if e.index != number % 8)}
    ),
    "no table": lambda port, number: port.model_copy(update={"gids": None}),
    "state": lambda port, number: port.model_copy(update={"state": ("DOWN", None)[number % 2]}),
    "netdev": lambda port, number: port.model_copy(
        update={"netdev": (None, netdev(PORTS[number % 4]))[number % 2]}
    ),
}
_OF_DEVICE = {
    "carrier": lambda one, number: one.model_copy(update={"carrier": (False, None)[number % 2]}),
    "bare": lambda one, number: one.model_copy(update={"addresses": ()}),
    "address": lambda one, number: one.model_copy(
        update={"addresses": interface("x", f"10.0.{number % 2}.{number % 3 + 1}/24").addresses}
    ),
    "mtu": lambda one, number: one.model_copy(update={"mtu": (1500, 4200)[number % 2]}),
}


def _spoiled(node: Node, kind: str, place: int, number: int) -> Node:
    """Return the node with one thing about one of its four functions changed."""
    facts = node.facts
    if kind in _OF_PORT:
        ports = list(facts.rdma)
        ports[place] = _OF_PORT[kind](ports[place], number)
        facts = facts.model_copy(update={"rdma": tuple(ports)})
    elif kind in _OF_DEVICE:
        devices = list(facts.network.interfaces)
        devices[2 + place] = _OF_DEVICE[kind](devices[2 + place], number)
        facts = facts.model_copy(update={"network": Network(interfaces=tuple(devices))})
    elif kind == "silent":
        probe = RailProbe(device=netdev(PORTS[place]), target="10.0.1.9", mtu=9000, answered=False)
        network = facts.network.model_copy(update={"probes": (probe,)})
        facts = facts.model_copy(update={"network": network})
    elif kind == "mlx5":  # the names of a distribution without udev's
        ports = [p.model_copy(update={"device": f"mlx5_{i}"}) for i, p in enumerate(facts.rdma)]
        facts = facts.model_copy(update={"rdma": tuple(ports)})
    return Node(facts, node.wanted)


_KINDS = [*_OF_PORT, *_OF_DEVICE, "silent", "mlx5"]
_PINS = [
    (),
    (),
    (),
    (),
    (),
    (),
    ("rocep1s0f0",),
    ("rocep1s0f0", "roceP2p1s0f0"),
    ("mlx5_2",),
    ("rocep1s0f1",),
]


@st.composite
def nodes(draw, rank: int = 0) -> Node:
    """A Spark with up to four faults, and settings that match it or not."""
    node = spark(
        rank,
        at=draw(st.sampled_from([(3, 3), (3, 3), (4, 4), (3, 5), (6, 3)])),
        hcas=draw(st.sampled_from(_PINS)),
        rails=draw(st.sampled_from(["auto"] * 5 + [1, 2])),
        gid_index=draw(st.sampled_from([None] * 6 + [3, 5])),
        interface=draw(st.sampled_from([None] * 6 + [*map(netdev, PORTS[:2])])),
        rdma=draw(st.sampled_from([True] * 6 + [False])),
    )
    # Mostly the two functions that matter: those of the port with the cable.
    spoils = st.tuples(
        st.sampled_from(_KINDS), st.sampled_from([0, 0, 2, 2, 1, 3]), st.integers(0, 11)
    )
    for spoil in draw(st.lists(spoils, max_size=3)):
        node = _spoiled(node, *spoil)
    return node
