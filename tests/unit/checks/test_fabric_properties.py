"""Whatever the ports, tables and addresses: a plan that works, or a reason. Never a wrong index."""

from fabric_worlds import nodes
from hypothesis import given, settings
from hypothesis import strategies as st

from glm53ctl.checks.fabric import Fabric, resolve_fabric, resolve_pair
from glm53ctl.checks.registry import Node
from glm53ctl.findings import Severity


def assert_usable(fabric: Fabric, node: Node) -> None:
    """Judge a plan by the facts alone, with none of the resolver's own code."""
    network, wanted = node.facts.network, node.wanted
    ports = {port.device: port for port in node.facts.rdma}
    first = fabric.rails[0]
    assert first.address == wanted.address
    assert wanted.interface in (None, first.interface) or wanted.address.is_loopback
    for rail in fabric.rails:
        device = next(one for one in network.interfaces if one.name == rail.interface)
        assert device.carrier is not False
        assert str(rail.address) in [one.address for one in device.addresses]
        assert device.name != "lo" or wanted.address.is_loopback
        if rail.hca is None:
            continue
        port = ports[rail.hca]
        assert port.state != "DOWN"
        assert port.netdev in (None, rail.interface)
        if port.gids is None:
            continue
        (entry,) = [one for one in port.gids if one.index == fabric.gid_index]
        assert entry.type == "RoCE v2"
        assert entry.value == f"::ffff:{rail.address}"
    assert len(set(fabric.hcas)) == len(fabric.hcas) <= 2
    assert wanted.rails != 1 or len(fabric.rails) == 1
    if wanted.rdma and not wanted.address.is_loopback:
        assert len(fabric.hcas) == len(fabric.rails)
        assert not wanted.hcas or set(fabric.hcas) <= set(wanted.hcas)


@settings(max_examples=300, deadline=None)
@given(nodes())
def test_one_node_gets_a_usable_plan_or_a_reason(node):
    found = resolve_fabric(node.facts.network, node.facts.rdma, node.wanted)
    if found.fabric is None:
        assert any(finding.severity is Severity.FAIL for finding in found.findings)
        assert all(finding.message and finding.fix for finding in found.findings)
    else:
        assert_usable(found.fabric, node)
        assert not any(finding.severity is Severity.FAIL for finding in found.findings)


@settings(max_examples=300, deadline=None)
@given(st.tuples(nodes(0), nodes(1)))
def test_a_pair_gets_plans_of_equal_rails_that_meet(pair):
    plans = [one.fabric for one in resolve_pair(pair)]
    if None in plans:
        return
    for plan, node in zip(plans, pair, strict=True):
        assert_usable(plan, node)
    here, there = plans
    assert len(here.rails) == len(there.rails)
    for near, far in list(zip(here.rails, there.rails, strict=True))[1:]:
        assert near.network == far.network
        assert near.address != far.address
        assert near.mtu == far.mtu
