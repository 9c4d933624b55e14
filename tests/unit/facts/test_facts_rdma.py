"""RDMA ports and GID tables from sysfs."""

from ipaddress import IPv4Address

from sysfs_tree import CLASS, add_port, mapped

from glm53ctl.facts.host import Host
from glm53ctl.facts.rdma import RdmaPort, gid_of, probe_rdma

OWN = IPv4Address("10.0.0.1")
LOCAL = "fe80:0000:0000:0000:0200:5eff:fe00:5302"
GIDS = {
    0: (LOCAL, "IB/RoCE v1"),
    1: (LOCAL, "RoCE v2"),
    2: (mapped("10.0.0.1"), "IB/RoCE v1"),
    3: (mapped("10.0.0.1"), "RoCE v2"),
}


def test_a_port_with_its_table_its_device_and_its_function(tmp_path):
    add_port(tmp_path, "rocep1s0f0", "enp1s0f0np0", GIDS)
    (port,) = probe_rdma(Host(tmp_path))
    assert (port.device, port.state, port.netdev) == ("rocep1s0f0", "ACTIVE", "enp1s0f0np0")
    assert port.pci == "0000:rocep1s0f0"
    assert [gid.index for gid in port.gids] == [0, 1, 2, 3]
    assert port.indexes(OWN) == [3]
    assert port.at(4) is None


def test_version_1_and_others_addresses_do_not_count(tmp_path):
    gids = {0: (mapped("10.0.0.1"), "IB/RoCE v1"), 5: (mapped("10.0.0.9"), "RoCE v2")}
    add_port(tmp_path, "rocep1s0f0", "enp1s0f0np0", gids)
    (port,) = probe_rdma(Host(tmp_path))
    assert port.indexes(OWN) == []
    assert port.indexes(None) == [5]


def test_a_port_without_any_gid_is_found_by_its_function(tmp_path):
    add_port(tmp_path, "mlx5_0", "enp1s0f0np0", {}, state="1: DOWN")
    (port,) = probe_rdma(Host(tmp_path))
    assert (port.netdev, port.active, port.gids) == ("enp1s0f0np0", False, ())


def test_unreadable_entries_cost_themselves_only(tmp_path):
    port = add_port(tmp_path, "rocep1s0f0", "enp1s0f0np0", GIDS)
    (port / "gids/2").unlink()
    (port / "gids/2").mkdir()
    (port / "state").unlink()
    (tmp_path / CLASS / "rocep1s0f0/device").unlink()
    (found,) = probe_rdma(Host(tmp_path))
    assert [gid.index for gid in found.gids] == [0, 1, 3]
    assert found.state is None
    assert found.pci is None
    assert found.active is None


def test_no_rdma_and_an_empty_class_are_no_ports(tmp_path):
    assert probe_rdma(Host(tmp_path)) == ()
    (tmp_path / CLASS).mkdir(parents=True)
    assert probe_rdma(Host(tmp_path)) == ()


def test_udev_s_names_tell_the_network_device():
    assert RdmaPort(device="roceP2p1s0f1").interface == "enP2p1s0f1np1"
    assert RdmaPort(device="mlx5_0").interface is None
    assert RdmaPort(device="rocep1s0f0", netdev="eth7").interface == "eth7"


def test_an_ipv4_gid_has_one_spelling_on_every_python():
    assert gid_of(3, mapped("10.0.0.1"), "RoCE v2").value == "::ffff:10.0.0.1"
    assert gid_of(3, "::", "RoCE v2") is None
    assert gid_of(3, "nonsense", "RoCE v2") is None
