"""RDMA as two kernels with soft-RoCE showed it: `rxe.json`, taken in a guest of `make rdma`."""

import errno
import json
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from glm53ctl.facts.captures import facts_of
from glm53ctl.facts.host import Host
from glm53ctl.facts.rdma import probe_rdma

TAKEN = json.loads(Path(__file__).with_name("rxe.json").read_text())


@pytest.fixture
def tree(tmp_path):
    """The tree of sysfs. An entry that refuses to be read is a folder here; a fake."""
    for name, said in TAKEN["sysfs"].items():
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if said == errno.errorcode[errno.EINVAL]:
            path.mkdir()
        else:
            path.write_text(said)
    return Host(tmp_path)


def test_the_tree_of_a_real_kernel(tree):
    ports = probe_rdma(tree)
    assert [(port.device, port.netdev) for port in ports] == [
        ("rocep1s0f0", "enp1s0f0np0"),
        ("rocep1s0f1", "enp1s0f1np1"),
    ]
    for port, own in zip(ports, ("10.0.0.1", "10.0.1.1"), strict=True):
        assert port.active
        assert port.pci is None  # a device of software alone has no card
        assert [gid.index for gid in port.gids] == [0, 1]
        assert port.gids[0].link_local
        assert port.indexes(IPv4Address(own)) == [1]


@pytest.mark.parametrize("listing", ["rdma link show", "rdma -d link show"])
def test_what_rdma_link_prints_for_these_is_the_same(tree, listing):
    """It ends its lines with a blank, and with `-d` says more."""
    pasted = facts_of("head", {"rdma-link.txt": TAKEN[listing]})
    assert [(port.device, port.state, port.netdev) for port in pasted.rdma] == [
        (port.device, port.state, port.netdev) for port in probe_rdma(tree)
    ]
