"""The fabric's facts and plans on real verbs: two kernels with soft-RoCE on two rails.

What is read without the product (`ibv_devinfo -v`, `rdma link`) is held against what the product
says, in good and in bad states; and traffic is sent by the device and the index it chose.
"""

from ipaddress import IPv6Address

import pytest
from pair.bed.layout import RAIL1, RAIL2
from pair.bed.run import BedError

from glm53ctl.checks.doctor import examine, read_facts, recorded
from glm53ctl.checks.fabric import drift
from glm53ctl.facts.captures import facts_of
from glm53ctl.findings import Severity

from .guests import HCAS
from .product import Product, config, ranks, save
from .verbs import devices, packets_sent, ping_pong

ROCE_MTU = {9000: 4096, 1500: 1024}
"""RoCE messages come in packets of a power of two that fits into the MTU of the network."""


def by_name(rdma):
    return {port.device: port for port in rdma}


def table(port):
    return tuple((gid.index, IPv6Address(gid.value), gid.type) for gid in port.gids)


def agree(facts, seen):
    """Assert that the product's facts of one node are what the tools see."""
    ports = by_name(facts.rdma)
    assert ports.keys() == seen.keys()
    for name, port in ports.items():
        device = seen[name]
        assert device.state == f"PORT_{port.state}"
        assert device.link_state == port.state
        assert device.netdev == port.netdev == port.interface
        assert device.gids == table(port)
        assert device.active_mtu == ROCE_MTU[facts.network.named(port.netdev).mtu]


def codes(findings, severity=None):
    return {finding.code for finding in findings if severity in (None, finding.severity)}


def judged(facts, tmp_path):
    """Return what `glm53ctl doctor --facts` finds in the facts of both."""
    (group,) = recorded(read_facts([save(one, tmp_path) for one in facts]))
    return examine(group).findings


# --- as it should be ----------------------------------------------------------------------------


def test_the_probe_agrees_with_ibv_devinfo_and_rdma_link(whole_guests, healthy):
    for facts, machine in zip(healthy, whole_guests.machines.values(), strict=True):
        seen = devices(machine)
        assert set(seen) == set(HCAS.values())
        agree(facts, seen)
        for port, hca in HCAS.items():
            own = port.address(machine.spark)
            index = seen[hca].index_of(own)
            assert index is not None
            held = [gid for gid in by_name(facts.rdma)[hca].gids if str(gid.ipv4) == own]
            assert [gid.index for gid in held] == [index]
            assert facts.network.named(port.name).mtu == port.mtu
            assert facts.network.named(port.name).carrier


def test_what_people_paste_is_read_alike(whole_guests, healthy):
    """`rdma link show -d` and `ibv_devinfo` of a report tell the same as the probe."""
    machine = whole_guests.head
    probed = by_name(healthy[0].rdma)
    for listing in (("rdma", "link", "show"), ("rdma", "-d", "link", "show")):
        pasted = facts_of(
            "head",
            {
                "rdma-link.txt": machine.output(*listing),
                "ibv_devinfo.txt": machine.output("ibv_devinfo", "-v"),
            },
        )
        read = by_name(pasted.rdma)
        assert read.keys() == probed.keys()
        for name, port in read.items():
            assert (port.state, port.netdev) == (probed[name].state, probed[name].netdev)
            assert port.active_mtu == ROCE_MTU[RAIL1.mtu]


def test_each_rank_is_told_its_own_devices(whole_guests, healthy):
    for rank, machine in zip(ranks(healthy), whole_guests.machines.values(), strict=True):
        seen = devices(machine)
        index = seen[HCAS[RAIL1]].index_of(RAIL1.address(machine.spark))
        told = {
            "VLLM_HOST_IP": RAIL1.address(machine.spark),
            "GLOO_SOCKET_IFNAME": RAIL1.name,
            "NCCL_SOCKET_IFNAME": RAIL1.name,
            "NCCL_IB_HCA": ",".join(HCAS.values()),
            "NCCL_IB_GID_INDEX": str(index),
        }
        assert told.items() <= rank.env.items()
        assert rank.codes() == []


def test_the_doctor_has_nothing_against_the_fabric(whole_guests, healthy, tmp_path):
    found = Product(whole_guests).doctor(whole_guests.head)
    assert {"NET_FABRIC", "RDMA_GID", "NET_NEIGH"} <= codes(found, Severity.OK)
    assert not {code for code in codes(found, Severity.FAIL) if code.startswith(("NET_", "RDMA_"))}
    pair = judged(healthy, tmp_path)
    assert "NET_TWIN_RAILS" in codes(pair, Severity.OK)
    assert {code for code in codes(pair) if code.startswith("NET_")} == {
        "NET_FABRIC",
        "NET_NEIGH",
        "NET_TWIN_RAILS",
    }


@pytest.mark.parametrize("port", HCAS, ids=lambda port: port.network)
def test_traffic_flows_by_the_device_and_the_index_that_were_chosen(whole_guests, healthy, port):
    machines = list(whole_guests.machines.values())
    indexes = {
        machine: int(rank.env["NCCL_IB_GID_INDEX"])
        for machine, rank in zip(machines, ranks(healthy), strict=True)
    }
    for server, client in (machines, machines[::-1]):
        before = packets_sent(client, HCAS[port])
        said = ping_pong(server, client, port, indexes)
        for machine in machines:
            assert f"GID ::ffff:{port.address(machine.spark)}" in said
        # 50 messages of 64 KiB in packets of 4 KiB at most.
        assert packets_sent(client, HCAS[port]) - before >= 50 * 16


# --- broken -------------------------------------------------------------------------------------


def test_without_its_address_a_node_has_no_gid_and_no_plan(guests, product, healthy):
    before = ranks(healthy)
    index = int(before[1].env["NCCL_IB_GID_INDEX"])
    own = RAIL1.address(guests.worker.spark)
    guests.worker.exec("ip", "address", "del", f"{own}/24", "dev", RAIL1.name)

    facts = product.record()
    seen = devices(guests.worker)
    agree(facts[1], seen)
    assert seen[HCAS[RAIL1]].index_of(own) is None
    plans = ranks(facts)
    assert plans[1].resolution.fabric is None
    assert plans[1].codes() == ["NET_ADDRESS_MISSING"]
    assert "NCCL_IB_GID_INDEX" not in plans[1].env
    assert "NET_ADDRESS_MISSING" in codes(product.doctor(guests.worker), Severity.FAIL)
    found = drift(before[1].resolution.fabric, facts[1])
    assert [finding.code for finding in found] == ["NET_RAIL_DOWN", "RDMA_GID_DRIFT"]
    # And it is true: the index that was right has no GID.
    with pytest.raises(BedError):
        ping_pong(guests.worker, guests.head, RAIL1, {guests.head: index, guests.worker: index})


def test_a_second_rail_without_address_leaves_one(guests, product, tmp_path):
    own = RAIL2.address(guests.worker.spark)
    guests.worker.exec("ip", "address", "del", f"{own}/24", "dev", RAIL2.name)
    facts = product.record()
    assert [rank.env["NCCL_IB_HCA"] for rank in ranks(facts)] == [HCAS[RAIL1]] * 2
    (down,) = (one for one in judged(facts, tmp_path) if one.code == "NET_RAIL_DOWN")
    assert (down.node, down.severity) == (guests.worker.name, Severity.WARN)
    assert f"Add {own}/24 again" in down.fix


def test_a_device_that_is_down(guests, product):
    guests.head.exec("ip", "link", "set", RAIL1.name, "down")
    facts = product.record()
    seen = devices(guests.head)
    assert seen[HCAS[RAIL1]].state == "PORT_DOWN"
    agree(facts[0], seen)
    head = ranks(facts)[0]
    assert head.resolution.fabric is None
    assert head.codes() == ["NET_IF_DOWN"]
    assert "NET_IF_DOWN" in codes(product.doctor(guests.head), Severity.FAIL)


def test_a_network_device_without_its_rdma_device(guests, product):
    guests.head.exec("rdma", "link", "delete", HCAS[RAIL1])
    facts = product.record()
    agree(facts[0], devices(guests.head))
    head = ranks(facts)[0]
    assert head.resolution.fabric is None
    assert head.codes() == ["NET_HCA_DOWN"]


def test_an_unequal_mtu_is_named_with_both_ends(guests, product, tmp_path):
    guests.worker.exec("ip", "link", "set", RAIL1.name, "mtu", "1500")
    facts = product.record()
    agree(facts[1], devices(guests.worker))
    (found,) = (one for one in judged(facts, tmp_path) if one.code == "NET_MTU_MISMATCH")
    assert found.severity is Severity.FAIL
    assert f"9000 on {guests.head.name}" in found.message
    assert f"1500 on {guests.worker.name}" in found.message


# --- an index that moves ------------------------------------------------------------------------


def flap(machine, port):
    """Take an address away, let another one come first, and give it back: its index moves on."""
    own = f"{port.address(machine.spark)}/24"
    machine.exec("ip", "address", "del", own, "dev", port.name)
    machine.exec("ip", "address", "add", "fe80::5:1/64", "dev", port.name, "nodad")
    machine.exec("ip", "address", "add", own, "dev", port.name)


def test_an_index_that_moved_is_followed_and_named(guests, product, healthy):
    before = ranks(healthy)
    old = int(before[1].env["NCCL_IB_GID_INDEX"])
    for port in (RAIL1, RAIL2):
        flap(guests.worker, port)

    facts = product.record()
    seen = devices(guests.worker)
    agree(facts[1], seen)
    new = seen[HCAS[RAIL1]].index_of(RAIL1.address(guests.worker.spark))
    assert new > old

    # At a start: the new index, on both rails, only on the node where it moved.
    plans = ranks(facts)
    assert [rank.env["NCCL_IB_GID_INDEX"] for rank in plans] == [str(old), str(new)]
    assert [rank.env["NCCL_IB_HCA"] for rank in plans] == [",".join(HCAS.values())] * 2
    indexes = {guests.head: old, guests.worker: new}
    said = ping_pong(guests.head, guests.worker, RAIL1, indexes)
    assert f"GID ::ffff:{RAIL1.address(guests.worker.spark)}" in said

    # With the old index in the settings: refused, with both indexes.
    (pinned,) = ranks(facts, config({}, {"gid_index": old}))[1].resolution.findings
    assert pinned.code == "RDMA_GID_EMPTY"
    assert f"GID index {old} of {HCAS[RAIL1]} is fe80::5:1" in pinned.message
    assert pinned.message.endswith(f"is at index {new}.")

    # While serving: named, and where it came from.
    moved = drift(before[1].resolution.fabric, facts[1])
    assert [finding.code for finding in moved] == ["RDMA_GID_DRIFT"] * 2
    assert f"was at index {old} and is at {new}" in moved[0].message
    assert "RDMA_GID_EXTRA_LINKLOCAL" in codes(product.doctor(guests.worker), Severity.WARN)


def test_an_index_that_moved_on_one_rail_costs_the_other(guests, product):
    """NCCL takes one index for all devices of a rank."""
    flap(guests.worker, RAIL2)
    assert [rank.env["NCCL_IB_HCA"] for rank in ranks(product.record())] == [HCAS[RAIL1]] * 2
