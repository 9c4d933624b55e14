"""Devices, addresses and neighbours as iproute2 tells them, and full-size packets."""

import json
from ipaddress import IPv4Address

import pytest
from stand_ins import Programs

from glm53ctl.facts.host import Host, Unknown
from glm53ctl.facts.network import (
    Address,
    Interface,
    Network,
    parse_interfaces,
    parse_neighbours,
    probe_network,
    probe_rail,
    probe_rails,
)

LISTED = [
    {
        "ifname": "lo",
        "flags": ["LOOPBACK", "UP", "LOWER_UP"],
        "mtu": 65536,
        "operstate": "UNKNOWN",
        "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}],
    },
    {
        "ifname": "enp1s0f0np0",
        "flags": ["UP", "LOWER_UP"],
        "mtu": 9000,
        "operstate": "UP",
        "addr_info": [
            {"family": "inet", "local": "10.0.0.1", "prefixlen": 24},
            {"family": "inet6", "local": "fe80::1", "prefixlen": 64},
        ],
    },
    {"ifname": "enp1s0f1np1", "flags": ["NO-CARRIER", "UP"], "operstate": "DOWN", "addr_info": []},
]


def test_devices_with_carrier_mtu_and_addresses():
    lo, rail, dark = parse_interfaces(json.dumps(LISTED))
    assert lo.loopback
    assert (rail.carrier, rail.mtu, dark.carrier) == (True, 9000, False)
    assert [str(address) for address in rail.ipv4()] == ["10.0.0.1/24"]
    assert rail.addresses[1].link_local


def test_without_flags_the_state_decides_and_without_addresses_they_are_unknown():
    (one,) = parse_interfaces('[{"ifname":"enp1s0f0np0","mtu":9000,"operstate":"UP"}]')
    assert one == Interface(name="enp1s0f0np0", mtu=9000, carrier=True, addresses=None)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": 1}', '[{"ifname": 3}]'])
def test_what_is_no_list_of_devices_is_unknown(text):
    assert isinstance(parse_interfaces(text), Unknown)
    assert parse_neighbours(text) == ()


def test_without_ip_nothing_is_known_and_nothing_is_raised():
    assert probe_network(Host(run=Programs())) == Unknown(unknown="ip is not installed")


def test_the_network_of_this_machine_is_read():
    network = probe_network()
    if isinstance(network, Unknown):
        pytest.skip(network.unknown)
    assert [one.name for one in network.holders(IPv4Address("127.0.0.1"))] == ["lo"]


def test_a_rail_is_probed_by_one_packet_of_the_whole_mtu_that_may_not_be_cut():
    programs = Programs(ping="1 received")
    probe = probe_rail("enp1s0f0np0", IPv4Address("10.0.0.2"), 9000, Host(run=programs))
    assert probe.answered
    (argv,) = programs.asked
    words = " ".join(argv)
    assert "-M do -s 8972" in words
    assert "-I enp1s0f0np0 10.0.0.2" in words


def test_no_answer_is_a_fact_and_no_ping_is_none():
    silent = Host(run=Programs(ping=Unknown(unknown="ping ended with 1: ")))
    probe = probe_rail("a", IPv4Address("10.0.0.2"), 9000, silent)
    assert (probe.answered, probe.small) == (False, False)
    probe = probe_rail("a", IPv4Address("10.0.0.2"), 9000, Host(run=Programs()))
    assert (probe.answered, probe.why) == (None, "ping is not installed")


def test_where_the_large_packet_is_not_answered_a_small_one_tells_why():
    def ping(argv):
        return "ok" if "56" in argv else Unknown(unknown="ping ended with 1: ")

    probe = probe_rail("a", IPv4Address("10.0.0.2"), 9000, Host(run=ping))
    assert (probe.answered, probe.small) == (False, True)


def test_only_devices_with_a_link_into_the_peer_s_network_are_probed():
    rail = Interface(
        name="r", mtu=9000, carrier=True, addresses=(Address(address="10.0.0.1", prefix=24),)
    )
    dark = rail.model_copy(update={"name": "d", "carrier": False})
    lan = rail.model_copy(
        update={"name": "l", "addresses": (Address(address="192.168.0.1", prefix=24),)}
    )
    host = Host(run=Programs(ping="ok"))
    network = probe_rails(Network(interfaces=(rail, dark, lan)), [IPv4Address("10.0.0.2")], host)
    assert [(probe.device, probe.target) for probe in network.probes] == [("r", "10.0.0.2")]
