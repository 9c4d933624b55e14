"""Ports for servers that are started later, and again."""

import pytest

from glm53ctl.facts import ports


@pytest.mark.parametrize(
    ("handed_out", "given"),
    [("20050\t60999\n", range(10_000, 20_050)), ("1024\t65535\n", range(10_000, 65_536))],
    ids=["some", "all"],
)
def test_free_ports_are_none_that_the_kernel_hands_out(tmp_path, monkeypatch, handed_out, given):
    said = tmp_path / "ip_local_port_range"
    said.write_text(handed_out)
    monkeypatch.setattr(ports, "_HANDED_OUT", said)
    found = ports.free_ports(20)
    assert len(set(found)) == 20
    assert set(found) <= set(given)
    assert all(ports.can_listen("127.0.0.1", port) for port in found)
