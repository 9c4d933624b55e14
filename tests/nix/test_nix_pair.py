"""The VM test of both machines: its nodes evaluate, and its script is one that could run.

Whether it passes needs a builder with KVM: `nix build .#checks.x86_64-linux.pair`.
"""

import ast
import json
from typing import Any

import pytest
from nix_tool import HERE, Nix

from glm53ctl.config.sources import Loaded, load
from glm53ctl.plan.ranks import plan_rank

NODES = ("head", "worker")


@pytest.fixture(scope="module")
def pair(nix: Nix) -> dict[str, Any]:
    found: dict[str, Any] = nix.evaluate(HERE / "pair.nix")
    return found


@pytest.fixture(scope="module")
def configs(pair: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> list[Loaded]:
    """Return what the program makes of each node's file; its rules have judged it."""
    folder = tmp_path_factory.mktemp("pair")
    for name in NODES:
        (folder / name).write_text(json.dumps(pair["nodes"][name]["settings"]))
    return [load(folder / name, environ={}) for name in NODES]


@pytest.mark.parametrize("name", NODES)
def test_a_node_evaluates(name: str, pair: dict[str, Any]) -> None:
    node = pair["nodes"][name]
    assert node["failed"] == []
    assert node["hostName"] == name
    assert f"glm53-rank{NODES.index(name)}.service" in node["units"]
    assert "glm53.pair-token" in "".join(node["etc"])


def test_the_nodes_meet_where_the_test_puts_them(configs: list[Loaded]) -> None:
    """The driver numbers nodes by name, and gives each 192.168.VLAN.NUMBER."""
    addresses = [f"192.168.1.{number}" for number, _ in enumerate(sorted(NODES), 1)]
    for rank, loaded in enumerate(configs):
        assert [str(node.address) for node in loaded.config.nodes] == addresses
        assert loaded.config.nodes[rank].name == NODES[rank]
        plan = plan_rank(loaded.config, rank, "eth1")
        assert "--nnodes 2" in " ".join(plan.argv)


def test_they_run_the_engine_for_cpus(configs: list[Loaded]) -> None:
    for loaded in configs:
        assert "glm53-engine-cpu-0.32.0" in str(loaded.config.engine.prefix)
        assert loaded.config.engine.platform == "cpu"
        assert str(loaded.config.weights.model_dir).endswith("-demo-model")


def test_the_script_is_python_and_asks_for_what_is_served(
    pair: dict[str, Any], configs: list[Loaded]
) -> None:
    script = pair["testScript"]
    names = {node.id for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Name)}
    assert set(NODES) <= names
    api = configs[0].config.api
    assert f"{api.host}:{api.port}/v1/chat/completions" in script
    assert f'"model": "{configs[0].config.serve.model_name}"' in script
