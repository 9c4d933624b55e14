"""What must hold on a node before its engine is started."""

import os
import socket
from pathlib import Path

import pytest

from glm53ctl.checks import start
from glm53ctl.checks.start import check_start
from glm53ctl.config.schema import Config
from glm53ctl.findings import Finding, Severity

ELSEWHERE = "192.0.2.1"
"""An address for documentation: no machine has it."""


class Node:
    """A machine on which everything holds, and what a test changes of it."""

    def __init__(self, root: Path, ports: tuple[int, int]) -> None:
        (root / "engine/bin").mkdir(parents=True)
        (root / "engine/bin/vllm").touch()
        (root / "model").mkdir()
        (root / "model/config.json").write_text("{}")
        self.root = root
        self.settings = {
            "nodes": [
                {"name": "a", "address": "127.0.0.1"},
                {"name": "b", "address": "127.0.0.1"},
            ],
            "engine": {"prefix": str(root / "engine")},
            "weights": {"source": "local", "model_dir": str(root / "model")},
            "memory": {"start_gib": 10, "floor_gib": 1},
            "api": {"port": ports[0]},
            "fabric": {"master_port": ports[1]},
        }

    def findings(self, rank: int = 0, **changes) -> list[Finding]:
        return check_start(Config.model_validate(self.settings | changes), rank)

    def codes(self, rank: int = 0, **changes) -> list[str]:
        return [finding.code for finding in self.findings(rank, **changes)]


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node with 11.5 GiB of free memory and two ports that nobody else gets meanwhile."""
    monkeypatch.setattr(start, "available_gib", lambda: 11.5)
    with socket.socket() as api, socket.socket() as master:
        for taken in (api, master):
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", 0))  # not listening: a server with SO_REUSEADDR may still
        made = Node(tmp_path, (api.getsockname()[1], master.getsockname()[1]))
        made.api, made.master = api, master
        yield made


@pytest.mark.parametrize("rank", [0, 1])
def test_nothing_forbids_a_start_where_everything_holds(node, rank):
    assert node.findings(rank) == []


def test_everything_that_is_wrong_is_said_at_once_with_the_node_and_a_way_out(node):
    found = node.findings(
        engine={"prefix": "/nowhere"},
        weights={"source": "local", "model_dir": "/nowhere"},
        memory={"start_gib": 12},
    )
    assert [f.code for f in found] == ["ENGINE_MISSING", "WEIGHTS_MISSING", "MEM_FOREIGN"]
    assert all(f.node == "a" and f.severity is Severity.FAIL and f.fix for f in found)


def test_a_finding_names_the_node_of_the_rank(node):
    assert [f.node for f in node.findings(1, engine={"prefix": "/nowhere"})] == ["b"]


# --- secrets -------------------------------------------------------------------------------------


def test_a_secret_that_cannot_be_read_forbids_a_start_of_the_head(node):
    api = node.settings["api"] | {"key_file": str(node.root / "key")}
    (found,) = node.findings(api=api)
    assert found.code == "PLAN_SECRET"
    assert str(node.root / "key") in found.message
    assert node.findings(1, api=api) == []
    (node.root / "key").write_text("sk-x\n")
    assert node.findings(api=api) == []


# --- engine and weights --------------------------------------------------------------------------


def test_a_prefix_without_the_engine_is_named(node):
    (found,) = node.findings(engine={"prefix": str(node.root / "other")})
    assert found.code == "ENGINE_MISSING"
    assert str(node.root / "other/bin/vllm") in found.message


def test_a_directory_without_a_checkpoint_is_named(node):
    (node.root / "model/config.json").unlink()
    (found,) = node.findings()
    assert found.code == "WEIGHTS_MISSING"
    assert str(node.root / "model") in found.message


@pytest.mark.parametrize("path", ["x" * 5000, "/dev/null"])
def test_a_path_that_cannot_be_one_is_missing_and_no_crash(node, path):
    found = node.codes(engine={"prefix": path}, weights={"source": "local", "model_dir": path})
    assert found == ["ENGINE_MISSING", "WEIGHTS_MISSING"]


# --- memory --------------------------------------------------------------------------------------


def test_too_little_memory_is_said_with_both_figures(node):
    (found,) = node.findings(memory={"start_gib": 110})
    assert found.code == "MEM_FOREIGN"
    assert "11.5 GiB" in found.message
    assert "110.0" in found.message


def test_just_enough_memory_is_enough(node):
    assert node.codes(memory={"start_gib": 11.5}) == []


# --- addresses -----------------------------------------------------------------------------------


def two_nodes(first: str, second: str) -> list[dict[str, str]]:
    return [{"name": "a", "address": first}, {"name": "b", "address": second}]


def test_an_address_that_no_device_has_is_said_and_not_called_taken(node):
    (found,) = node.findings(nodes=two_nodes(ELSEWHERE, "127.0.0.1"))
    assert found.code == "NET_ADDRESS_MISSING"
    assert ELSEWHERE in found.message
    assert "nodes[0].address" in found.message


def test_only_the_own_address_must_be_on_this_host(node):
    assert node.codes(1, nodes=two_nodes(ELSEWHERE, "127.0.0.1")) == []
    assert node.codes(1, nodes=two_nodes("127.0.0.1", ELSEWHERE)) == ["NET_ADDRESS_MISSING"]


def test_an_api_address_that_this_host_lacks_is_said_and_not_called_taken(node):
    (found,) = node.findings(api={"host": ELSEWHERE, "port": node.api.getsockname()[1]})
    assert found.code == "PORT_REFUSED"
    assert ELSEWHERE in found.message
    assert "api.port" in found.message


def test_an_api_address_that_is_none_is_said(node):
    assert node.codes(api={"host": "no such host", "port": 8888}) == ["PORT_REFUSED"]
    assert node.codes(api={"host": f"{'a' * 70}.b", "port": 8888}) == ["PORT_REFUSED"]


# --- ports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("holder", "key"), [("api", "api.port"), ("master", "fabric.master_port")])
def test_a_port_that_is_taken_is_named_with_its_holder(node, holder, key):
    taken = getattr(node, holder)
    taken.listen()
    (found,) = node.findings()
    assert found.code == "PORT_IN_USE"
    assert f"port {taken.getsockname()[1]} on 127.0.0.1 ({key})" in found.message
    assert f"(pid {os.getpid()})" in found.message
    assert key in found.fix


def test_both_ports_can_be_taken_at_once(node):
    node.api.listen()
    node.master.listen()
    assert node.codes() == ["PORT_IN_USE", "PORT_IN_USE"]


def test_a_worker_needs_no_port_of_the_head(node):
    node.api.listen()
    node.master.listen()
    assert node.codes(1) == []


def test_a_port_is_free_again_as_soon_as_its_holder_is_gone(node):
    node.api.listen()
    assert node.codes() == ["PORT_IN_USE"]
    node.api.close()
    assert node.codes() == []
