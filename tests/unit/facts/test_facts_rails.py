"""What the ports of the fabric carried, from a fake sysfs."""

from ipaddress import IPv4Address
from pathlib import Path

import pytest
from sysfs_tree import add_port

from glm53ctl.facts.host import Host, Unknown
from glm53ctl.facts.rails import RailFacts, probe_rails, read_addresses

OWN = IPv4Address("192.168.177.11")
RAIL, SECOND, LAN = "enp1s0f0np0", "enp1s0f1np1", "enP7s7"
HELD = {RAIL: ["192.168.177.11/24"], LAN: ["10.0.0.5/24"], "lo": ["127.0.0.1/8"]}


def add_device(root: Path, name: str, carried: tuple[int, int] = (0, 0), **files: str) -> Path:
    device = root / "sys/class/net" / name
    (device / "statistics").mkdir(parents=True)
    for file, text in ({"mtu": "9000", "carrier": "1", "speed": "200000"} | files).items():
        (device / file).write_text(f"{text}\n")
    for counter, number in (("rx_bytes", carried[0]), ("tx_bytes", carried[1])):
        (device / "statistics" / counter).write_text(f"{number}\n")
    return device


def add_counters(port: Path, **counts: int) -> None:
    for folder, number in counts.items():
        path = port / folder.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number}\n")


def probe(root: Path, held=HELD, own: IPv4Address = OWN) -> dict[str, RailFacts]:
    found = probe_rails(own, Host(root=root), lambda: held)
    assert not isinstance(found, Unknown)
    return {rail.name: rail for rail in found}


def test_ports_of_the_cable_and_nothing_else_are_rails(tmp_path):
    for name in (RAIL, SECOND, LAN, "lo"):
        add_device(tmp_path, name)
    assert probe(tmp_path).keys() == {RAIL, SECOND}


def test_the_device_with_the_nodes_address_is_a_rail_whatever_its_name(tmp_path):
    add_device(tmp_path, "host0")
    add_device(tmp_path, LAN)
    assert probe(tmp_path, {"host0": ["192.168.177.11/24"]}).keys() == {"host0"}


def test_the_ranks_of_one_host_have_no_rails(tmp_path):
    add_device(tmp_path, "lo")
    assert probe(tmp_path, own=IPv4Address("127.0.0.1")) == {}


def test_rdma_goes_past_the_devices_own_counters(tmp_path):
    add_device(tmp_path, RAIL, (1000, 500))
    port = add_port(tmp_path, "rocep1s0f0", RAIL, {})
    add_counters(port, counters__port_rcv_data=250, counters__port_xmit_data=100)
    rail = probe(tmp_path)[RAIL]
    assert rail.rdma == "rocep1s0f0"
    assert (rail.received_bytes, rail.sent_bytes) == (1000 + 4 * 250, 500 + 4 * 100)
    assert rail.addresses == ("192.168.177.11/24",)
    assert (rail.mtu, rail.speed_mbit, rail.carrier) == (9000, 200_000, True)


def test_errors_of_both_are_added(tmp_path):
    device = add_device(tmp_path, RAIL)
    (device / "statistics/rx_errors").write_text("2\n")
    port = add_port(tmp_path, "rocep1s0f0", RAIL, {})
    add_counters(port, counters__symbol_error=3, hw_counters__packet_seq_err=5)
    assert probe(tmp_path)[RAIL].errors == 10


def test_what_nobody_counts_is_not_0(tmp_path):
    add_device(tmp_path, RAIL)
    assert probe(tmp_path)[RAIL].errors is None


def test_a_device_that_is_down_has_no_carrier(tmp_path):
    device = add_device(tmp_path, RAIL, operstate="down", speed="-1")
    (device / "carrier").unlink()  # reading it answers EINVAL
    rail = probe(tmp_path)[RAIL]
    assert (rail.carrier, rail.speed_mbit) == (False, None)


def test_without_the_right_to_list_addresses_names_decide(tmp_path):
    add_device(tmp_path, RAIL)
    add_device(tmp_path, LAN)
    found = probe_rails(OWN, Host(root=tmp_path), lambda: Unknown(unknown="no netlink"))
    assert not isinstance(found, Unknown)
    assert [(rail.name, rail.addresses) for rail in found] == [(RAIL, None)]


def test_without_sysfs_the_rails_are_unknown(tmp_path):
    assert isinstance(probe_rails(OWN, Host(root=tmp_path), lambda: HELD), Unknown)


def test_addresses_of_this_machine():
    held = read_addresses()
    assert not isinstance(held, Unknown)
    assert "127.0.0.1/8" in held["lo"]


def test_a_sandbox_without_netlink_is_no_crash(monkeypatch):
    def refuse() -> None:
        raise OSError(97, "Address family not supported by protocol")

    monkeypatch.setattr("glm53ctl.facts.rails.psutil.net_if_addrs", refuse)
    found = read_addresses()
    assert isinstance(found, Unknown)
    assert "Address family" in found.unknown


@pytest.mark.parametrize("text", ["", "unknown"])
def test_numbers_that_are_none_are_left_out(tmp_path, text):
    add_device(tmp_path, RAIL, mtu=text)
    assert probe(tmp_path)[RAIL].mtu is None


def test_it_is_counted_how_often_a_carrier_came_up(tmp_path):
    add_device(tmp_path, RAIL, carrier_up_count="2")
    add_device(tmp_path, SECOND, carrier="0")
    found = probe(tmp_path)
    assert (found[RAIL].carrier_ups, found[SECOND].carrier_ups) == (2, None)
