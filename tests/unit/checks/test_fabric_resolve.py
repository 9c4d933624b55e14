"""From the facts of a node, or of two, to what the ranks are told."""

import pytest
from fabric_worlds import gid, interface, spark, table

from glm53ctl.checks.fabric import drift, resolve_fabric, resolve_pair
from glm53ctl.checks.start import check_fabric, fabric_of_pair, have_met, rails_of
from glm53ctl.config.schema import Config
from glm53ctl.facts.host import Unknown
from glm53ctl.facts.network import Network, RailProbe
from glm53ctl.plan import plan_rank

PAIR = Config.model_validate(
    {"nodes": [{"name": "head", "address": "10.0.0.1"}, {"name": "worker", "address": "10.0.0.2"}]}
)


def resolve(node):
    return resolve_fabric(node.facts.network, node.facts.rdma, node.wanted)


def codes(findings):
    return [finding.code for finding in findings]


def changed(node, **facts):
    update = {name: tuple(value) for name, value in facts.items() if name != "interfaces"}
    if "interfaces" in facts:
        replaced = {one.name: one for one in facts["interfaces"]}
        kept = [i for i in node.facts.network.interfaces if i.name not in replaced]
        update["network"] = Network(interfaces=(*kept, *replaced.values()))
    return type(node)(node.facts.model_copy(update=update), node.wanted)


def with_gids(node, device, gids):
    ports = [
        p.model_copy(update={"gids": gids} if p.device == device else {}) for p in node.facts.rdma
    ]
    return changed(node, rdma=ports)


# --- one node ------------------------------------------------------------------------------------


def test_one_node_alone_gets_the_rail_with_its_address():
    fabric = resolve(spark(0)).fabric
    assert (fabric.interface, fabric.hcas, fabric.gid_index) == ("enp1s0f0np0", ("rocep1s0f0",), 3)


def test_the_index_is_found_and_not_assumed():
    assert resolve(spark(0, at=(6, 3))).fabric.gid_index == 6


def test_the_environment_of_the_rank_says_what_was_found():
    plan = plan_rank(resolve(spark(0)).applied_to(PAIR, 0), 0)
    told = {name: plan.env[name] for name in sorted(plan.env) if "IFNAME" in name or "_IB_" in name}
    assert told["GLOO_SOCKET_IFNAME"] == told["NCCL_SOCKET_IFNAME"] == "enp1s0f0np0"
    assert told["NCCL_IB_HCA"] == "rocep1s0f0"
    assert told["NCCL_IB_GID_INDEX"] == "3"
    assert plan.env["VLLM_HOST_IP"] == "10.0.0.1"


def test_without_facts_the_configuration_stays_as_it_is():
    found = resolve_fabric(Unknown(unknown="ip is not installed"), (), spark(0).wanted)
    assert found.fabric is None
    assert found.findings == ()
    assert found.applied_to(PAIR, 0) == PAIR


def test_two_pinned_devices_are_two_rails():
    fabric = resolve(spark(0, hcas=("rocep1s0f0", "roceP2p1s0f0"))).fabric
    assert fabric.hcas == ("rocep1s0f0", "roceP2p1s0f0")
    assert fabric.gid_index == 3


@pytest.mark.parametrize(("rails", "hcas"), [("auto", ("rocep1s0f0",)), (2, None)])
def test_two_rails_without_a_common_index(rails, hcas):
    found = resolve(spark(0, at=(6, 3), hcas=("rocep1s0f0", "roceP2p1s0f0"), rails=rails))
    assert codes(found.findings) == ["NET_FABRIC_DEGRADED"]
    assert "{6} on rocep1s0f0 vs {3} on roceP2p1s0f0" in found.findings[0].message
    assert (found.fabric.hcas if found.fabric else None) == hcas


def test_a_pinned_index_that_is_wrong_is_refused_with_the_right_one():
    found = resolve(spark(0, at=(6, 3), gid_index=3))
    assert found.fabric is None
    assert codes(found.findings) == ["RDMA_GID_EMPTY"]
    assert "index 6" in found.findings[0].message


def test_version_1_of_the_right_address_is_no_version_2():
    node = with_gids(spark(0), "rocep1s0f0", (gid(3, "::ffff:10.0.0.1", "IB/RoCE v1"),))
    assert codes(resolve(node).findings) == ["RDMA_GID_EMPTY"]


def test_the_gid_of_another_address_does_not_count():
    node = with_gids(spark(0), "rocep1s0f0", table("10.0.9.1"))
    assert codes(resolve(node).findings) == ["RDMA_GID_EMPTY"]


def test_a_dark_port_is_named_with_the_one_that_has_the_cable():
    found = resolve(spark(0, interface="enp1s0f1np1", hcas=("rocep1s0f1",)))
    (finding,) = found.findings
    assert finding.code == "NET_IF_DOWN"
    assert "enp1s0f1np1" in finding.message
    assert "enp1s0f0np0" in finding.message
    assert "interface: enp1s0f0np0" in finding.fix


def test_an_address_on_lo_is_none_of_the_fabric():
    node = changed(
        spark(0),
        interfaces=[
            interface("lo", "127.0.0.1/8", "10.0.0.1/32"),
            interface("enp1s0f0np0", "10.0.9.1/24"),
        ],
    )
    assert codes(resolve(node).findings) == ["NET_MASTER_LOOPBACK"]


def test_no_rdma_device_on_the_port_is_said():
    node = changed(spark(0), rdma=[])
    assert codes(resolve(node).findings) == ["NET_HCA_DOWN"]


def test_without_rdma_in_play_the_interface_alone_is_enough():
    fabric = resolve(changed(spark(0, rdma=False), rdma=[])).fabric
    assert (fabric.interface, fabric.hcas) == ("enp1s0f0np0", ())


def test_a_rail_whose_table_nobody_told_is_not_paired_with_another():
    node = with_gids(spark(0, hcas=BOTH), "rocep1s0f0", None)
    fabric = resolve(node).fabric
    assert (fabric.hcas, fabric.gid_index) == (ONE, None)
    assert rails(node, spark(1, hcas=BOTH)) == [ONE, ONE]


# --- two nodes -----------------------------------------------------------------------------------


def rails(*pair):
    return [one.fabric and one.fabric.hcas for one in resolve_pair(pair)]


BOTH = ("rocep1s0f0", "roceP2p1s0f0")
ONE = ("rocep1s0f0",)


def test_a_second_rail_that_is_whole_on_both_nodes_is_used():
    assert rails(spark(0), spark(1)) == [BOTH, BOTH]


def test_each_node_has_its_own_index():
    pair = resolve_pair((spark(0, at=(6, 6)), spark(1)))
    assert [one.fabric.gid_index for one in pair] == [6, 3]


@pytest.mark.parametrize(
    "worker",
    [
        spark(1, second=False),
        spark(1, mtu=(9000, 1500)),
        spark(1, at=(3, 6)),
        spark(1, rails=1),
        spark(
            1,
            probes=(
                RailProbe(device="enP2p1s0f0np0", target="10.0.1.1", mtu=9000, answered=False),
            ),
        ),
    ],
    ids=["no-address", "other-mtu", "no-common-index", "one-asked-for", "no-answer"],
)
def test_a_second_rail_that_one_end_lacks_is_used_by_none(worker):
    assert rails(spark(0), worker) == [ONE, ONE]
    assert rails(spark(0, hcas=BOTH), worker) == [ONE, ONE]


def with_storage(node, address):
    """Return the node with its second QSFP port in another network."""
    device = interface("enp1s0f1np1", f"{address}/24")
    ports = [
        port.model_copy(update={"state": "ACTIVE", "gids": table(address)})
        if port.device == "rocep1s0f1"
        else port
        for port in node.facts.rdma
    ]
    return changed(node, interfaces=[device], rdma=ports)


def test_the_second_rail_is_the_twin_of_the_cabled_port_before_any_other_port():
    pair = [with_storage(spark(rank), f"9.9.9.{rank + 1}") for rank in (0, 1)]
    assert rails(*pair) == [BOTH, BOTH]
    alone = [with_storage(spark(rank, second=False), f"9.9.9.{rank + 1}") for rank in (0, 1)]
    assert rails(*alone) == [("rocep1s0f0", "rocep1s0f1")] * 2


def test_devices_of_other_names_are_the_same_rails():
    worker = spark(1)
    renamed = [
        port.model_copy(update={"device": f"mlx5_{i}"}) for i, port in enumerate(worker.facts.rdma)
    ]
    assert rails(spark(0), changed(worker, rdma=renamed)) == [BOTH, ("mlx5_0", "mlx5_2")]


# --- while serving -------------------------------------------------------------------------------


def test_nothing_drifts_where_nothing_changed():
    assert drift(resolve(spark(0)).fabric, spark(0).facts) == []


def test_an_index_that_moved_is_seen():
    (found,) = drift(resolve(spark(0)).fabric, spark(0, at=(6, 3)).facts)
    assert (found.code, found.node, found.where) == ("RDMA_GID_DRIFT", "head", "rocep1s0f0")
    assert "index 3" in found.message
    assert "at 6" in found.message


@pytest.mark.parametrize(
    ("device", "code"),
    [
        (interface("enp1s0f0np0", "10.0.0.1/24", carrier=False), "NET_RAIL_DOWN"),
        (interface("enp1s0f0np0"), "NET_RAIL_DOWN"),
        (interface("enp1s0f0np0", "10.0.0.1/24", mtu=1500), "NET_MTU_MISMATCH"),
    ],
    ids=["carrier", "address", "mtu"],
)
def test_a_link_that_changed_is_seen(device, code):
    after = changed(spark(0), interfaces=[device]).facts
    assert code in codes(drift(resolve(spark(0)).fabric, after))


# --- as the supervisor asks ----------------------------------------------------------------------


def test_the_pair_is_judged_by_the_facts_of_both():
    fine = [spark(0).facts, spark(1).facts]
    assert check_fabric(PAIR, fine) == []
    assert [one.fabric.hcas for one in fabric_of_pair(PAIR, fine)] == [BOTH, BOTH]
    found = check_fabric(PAIR, [spark(0).facts, spark(1, mtu=(1500, 9000)).facts])
    assert codes(found) == ["NET_MTU_MISMATCH"]


def test_a_single_rail_is_no_reason_to_stay_down_unless_two_are_asked_for():
    facts = [spark(0).facts, spark(1, second=False).facts]
    assert all(found.severity == "warn" for found in check_fabric(PAIR, facts))
    two = PAIR.model_copy(update={"fabric": PAIR.fabric.model_copy(update={"rails": 2})})
    assert "NET_RAIL_DOWN" in codes(check_fabric(two, facts))


def test_what_could_not_be_seen_is_said_and_stops_nothing():
    blind = spark(1).facts.model_copy(update={"network": Unknown(unknown="ip ended with 1")})
    (found,) = check_fabric(PAIR, [spark(0).facts, blind])
    assert (found.code, found.severity, found.node) == ("PROBE_UNKNOWN", "warn", "worker")


def test_nodes_have_met_when_each_has_asked_the_rails_of_the_other():
    def asked(rank: int, *targets: str):
        devices = ("enp1s0f0np0", "enP2p1s0f0np0")
        probes = tuple(
            RailProbe(device=device, target=target, mtu=9000, answered=None)
            for device, target in zip(devices, targets, strict=False)
        )
        return spark(rank, probes=probes).facts

    assert [str(a) for a in rails_of(PAIR, [spark(1).facts])] == ["10.0.0.2", "10.0.1.2"]
    head, worker = asked(0, "10.0.0.2", "10.0.1.2"), asked(1, "10.0.0.1", "10.0.1.1")
    assert have_met(PAIR, [head, worker])
    assert not have_met(PAIR, [head, asked(1, "10.0.0.1")])
    assert not have_met(PAIR, [spark(0).facts, worker])
    blind = worker.model_copy(update={"network": Unknown(unknown="no ip")})
    assert have_met(PAIR, [head, blind])
