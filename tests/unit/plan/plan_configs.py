"""Configurations that the tests of the plan start from."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from glm53ctl.config.profiles import PROFILES
from glm53ctl.config.schema import Config

NODES = [
    {
        "name": "spark-head",
        "address": "10.0.0.1",
        "interface": "enp1s0f0np0",
        "hcas": ["rocep1s0f0", "roceP2p1s0f0"],
        "gid_index": 3,
    },
    {"name": "spark-worker", "address": "10.0.0.2", "interface": "enp1s0f1np1"},
]


def merged(*trees: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings, later trees winning."""
    out: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            inner = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
            out[key] = merged(out[key], value) if inner else value
    return out


def config(profile: str = "vllm-recipe", /, **changes: Any) -> Config:
    """Return the configuration of a profile; `changes` are sections as nested settings."""
    base = {"profile": profile, "nodes": NODES}
    return Config.model_validate(merged(base, PROFILES[profile], changes))


def with_dflash(**changes: Any) -> Config:
    """Return the recipe with the draft's licence accepted."""
    return config("vllm-recipe", **merged({"licenses": {"accept": ["CC-BY-NC-ND-4.0"]}}, changes))


words = st.text("abcdefgh", min_size=1, max_size=6)


@st.composite
def nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw one to four nodes that differ in everything a node may differ in."""
    loopback = draw(st.booleans())
    return [
        {
            "name": f"n{rank}",
            "address": "127.0.0.1" if loopback else f"10.0.0.{rank + 1}",
            "interface": draw(st.none() | words),
            "hcas": draw(st.lists(words, max_size=2)),
            "gid_index": draw(st.none() | st.integers(0, 255)),
            "cpus": draw(st.sampled_from([None, "0", "0-3,8"])),
        }
        for rank in range(draw(st.integers(1, 4)))
    ]


configs = st.builds(
    Config.model_validate,
    st.fixed_dictionaries(
        {"nodes": nodes()},
        optional={
            "engine": st.fixed_dictionaries(
                {},
                optional={
                    "platform": st.sampled_from(["cuda", "cpu"]),
                    "enforce_eager": st.booleans(),
                    "extra_args": st.lists(words.map("--x-{}".format), max_size=2),
                    "extra_env": st.dictionaries(words, words, max_size=2),
                },
            ),
            "serve": st.fixed_dictionaries(
                {},
                optional={
                    "max_num_seqs": st.integers(1, 16),
                    "prefix_caching": st.booleans(),
                    "default_max_tokens": st.none() | st.integers(1, 1000),
                },
            ),
            "kv": st.fixed_dictionaries({}, optional={"bytes": st.none() | st.integers(1, 2**40)}),
            "licenses": st.sampled_from([{}, {"accept": ["CC-BY-NC-ND-4.0"]}]),
            "spec": st.fixed_dictionaries(
                {"method": st.sampled_from(["dflash", "mtp", "none"])},
                optional={
                    "tokens": st.none() | st.integers(1, 16),
                    "draft_attention": st.none() | words,
                    "draft_tensor_parallel_size": st.none() | st.integers(1, 4),
                },
            ),
            "media": st.fixed_dictionaries(
                {},
                optional={
                    "enable": st.booleans(),
                    "skip_profiling": st.booleans(),
                    "urls": st.booleans(),
                    "url_domains": st.lists(words, max_size=2),
                },
            ),
            "thinking": st.fixed_dictionaries(
                {},
                optional={
                    "parser": st.sampled_from([None, "glm45"]),
                    "tool_parser": st.sampled_from([None, "glm47"]),
                    "default_effort": st.sampled_from([None, "none", "low", "high", "max"]),
                    "chat_template": st.none() | words,
                },
            ),
            "ablit": st.fixed_dictionaries({}, optional={"enable": st.booleans()}),
            "api": st.fixed_dictionaries(
                {},
                optional={
                    "host": st.sampled_from(["127.0.0.1", "0.0.0.0", "::", "10.0.0.1"]),
                    "key_file": st.none() | words,
                },
            ),
        },
    ),
)
