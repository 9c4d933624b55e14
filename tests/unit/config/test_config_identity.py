"""What both nodes must agree on."""

import pytest
from config_texts import drawn, pair
from hypothesis import strategies as st

from glm53ctl.config.catalog import LEAVES
from glm53ctl.config.sources import differences, digest, shared_view

SHARED = {
    "serve.max_model_len": "4096",
    "dense": "fp8",
    "nodes": "[{name: a, address: 10.0.9.1}, {name: b, address: 10.0.9.9}]",
    "engine.extra_env": "{NCCL_IB_TC: 106}",
    "licenses.accept": "[]",
}
LOCAL = {
    "engine.prefix": "/opt/engine",
    "weights.model_dir": "/data/model",
    "paths.state_dir": "/data/state",
    "power.max_gpu_clock_mhz": "2200",
    "api.key_file": "/run/key",
    "link.token_file": "/run/token",
}


@drawn(
    shared=st.sets(st.sampled_from(sorted(SHARED))), local=st.sets(st.sampled_from(sorted(LOCAL)))
)
def test_the_digest_changes_with_shared_settings_only(shared: set[str], local: set[str]) -> None:
    words = [f"{path}={(SHARED | LOCAL)[path]}" for path in sorted(shared | local)]
    same = digest(pair(*words)) == digest(pair())
    assert same == (not shared)
    assert bool(differences(shared_view(pair(*words)), shared_view(pair()))) == bool(shared)


def test_the_view_leaves_out_what_belongs_to_one_node() -> None:
    view = shared_view(pair())
    assert view["nodes.1.address"] == "10.0.9.2"
    assert not {path for path, s in LEAVES.items() if s.knob.node_local} & view.keys()
    lists = {path.rsplit(".", 1)[0] for path in view if path.endswith(".0")}
    assert {path for path, s in LEAVES.items() if not s.knob.node_local} - {"nodes"} - {
        "licenses.accept"
    } <= view.keys() | lists


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["serve.max_model_len=1048576"],
            "serve.max_model_len: 900000 here, 1048576 on rank 1",
        ),
        (["kv.bytes=5"], "kv.bytes: null here, 5 on rank 1"),
        (
            ["engine.extra_env={A: secret}"],
            "engine.extra_env.A: not set here, (not shown) on rank 1",
        ),
    ],
)
def test_a_difference_is_one_line(words: list[str], line: str) -> None:
    assert line in differences(shared_view(pair()), shared_view(pair(*words)))
