"""Machines that must evaluate, and machines that must not, each with the reason to be given."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Settings = Mapping[str, Any]

NODES = [
    {"name": "spark-head", "address": "10.0.9.1"},
    {"name": "spark-worker", "address": "10.0.9.2"},
]
RAIL_1 = {"path": "pci-0000:01:00.0"}
RAIL_2 = {"path": "pci-0002:01:00.0", "addresses": ["10.0.10.1", "10.0.10.2"]}
STORE = "@STORE@"
"""Stands for the store of the Nix that evaluates."""
ACCEPTED = {"licenses": {"accept": ["ShapleyMCG-1.0", "CC-BY-NC-ND-4.0"]}}


class Machine(NamedTuple):
    """A configuration of NixOS, and words of the reason if it is refused."""

    name: str
    module: Mapping[str, Any]
    reason: str = ""


def merged(first: Settings, second: Settings) -> dict[str, Any]:
    """Return nested settings, the second's where both speak."""
    both = {**first, **second}
    for key in first.keys() & second.keys():
        if isinstance(first[key], dict) and isinstance(second[key], dict):
            both[key] = merged(first[key], second[key])
    return both


def appliance(settings: Settings | None = None, **options: Any) -> dict[str, Any]:
    """Return a machine with a whole pair, and what is said on top."""
    whole = merged({"nodes": NODES, **ACCEPTED}, settings or {})
    return {"services": {"glm53": {"enable": True, "rank": 0, "settings": whole, **options}}}


def fabric(*rails: Settings, **options: Any) -> dict[str, Any]:
    """Return the fabric option."""
    return {"enable": True, "rails": list(rails), **options}


def good(name: str, settings: Settings | None = None, **options: Any) -> Machine:
    """Return a machine that must evaluate."""
    return Machine(name, appliance(settings, **options))


def bad(name: str, reason: str, settings: Settings | None = None, **options: Any) -> Machine:
    """Return a machine that must be refused for this reason."""
    return Machine(name, appliance(settings, **options), reason)


def typed(path: str, value: Any, words: str) -> Machine:
    """Return a machine with one setting of the wrong type or out of range."""
    tree = value
    for key in reversed(path.split(".")):
        tree = {key: tree}
    last = path.rpartition(".")[2]
    reason = f"settings.{path}' is not of type `null or {words}"
    return bad(f"type: {path} = {value!r} ({last})", reason, tree)


ADDRESSES_3 = [*NODES, {"name": "spark-3", "address": "10.0.9.3"}]

GOOD: Sequence[Machine] = (
    good("a pair"),
    good("the worker", rank=1),
    good("disabled", enable=False),
    good("one node", {"nodes": NODES[:1]}),
    good("three nodes", {"nodes": ADDRESSES_3}, rank=1),
    good("profile long", {"profile": "long", "kv": {"bytes": 15_032_385_536}}),
    good("profile demo", {"profile": "demo"}),
    good("demo's own nodes", {"profile": "demo", "nodes": None}),
    good("local weights", {"weights": {"source": "local"}, "licenses": {"accept": []}}),
    good("no draft", {"spec": {"method": "none"}}),
    good("mtp", {"spec": {"method": "mtp", "tokens": 2}}),
    good("forced draft", {"spec": {"tokens": 5, "force_tokens": True}}),
    good("both limits of a range", {"serve": {"max_num_seqs": 256}, "media": {"images": 0}}),
    good("a whole number for a number", {"kv": {"bytes": 1}, "memory": {"floor_gib": 3}}),
    good("either of auto, 1 and 2", {"fabric": {"rails": 1}}),
    good("more arguments", {"engine": {"extra_args": ["--seed", "3"]}}),
    good("more environment", {"engine": {"extra_env": {"NCCL_IB_TC": "106"}}}),
    good(
        "a node in full",
        {"nodes": [{**NODES[0], "hcas": ["rocep1s0f0"], "gid_index": 3}, NODES[1]]},
    ),
    good("open on purpose", {"api": {"host": "0.0.0.0", "open": True}}),
    good("a key by file", {"api": {"host": "0.0.0.0", "key_file": "/etc/glm53/key"}}),
    good(
        "a key by credential",
        {"api": {"host": "0.0.0.0"}},
        credentials={"apiKey": "/etc/credstore/glm53.api-key"},
    ),
    good(
        "secrets of a secrets module",
        credentials={"apiKey": "/run/agenix/key", "pairToken": "/run/agenix/pair"},
    ),
    good("one rail", fabric=fabric(RAIL_1)),
    good("two rails", {"fabric": {"rails": 2}}, fabric=fabric(RAIL_1, RAIL_2)),
    good("a rail by MAC", fabric=fabric({"mac": "4c:bb:47:00:00:01"})),
    good("a rail with a name", fabric=fabric({**RAIL_1, "name": "cx7"})),
    good("small frames", fabric=fabric(RAIL_1, mtu=1500)),
    good(
        "two rails in the halves of a network",
        fabric=fabric(
            RAIL_1, {**RAIL_2, "addresses": ["10.0.9.129", "10.0.9.130"]}, prefixLength=25
        ),
    ),
    good("clients from the LAN", apiInterfaces=["enP7s7"]),
    good("closures over ssh", closureKeys=["ssh-ed25519 AAAA root@spark-head"]),
    good("a limited pull", {"weights": {"sync_mb_per_second": 500}}),
    good("no scrub", weights={"scrub": False}),
    good("the page on the LAN", pageInterfaces=["enP7s7"]),
    good("the page at an address", {"page": {"host": ["127.0.0.1", "192.168.1.5"], "port": 9000}}),
    good("no watchdog", {"watchdog": {"enabled": False}}),
    good(
        "clock cap and reserve",
        {"power": {"max_gpu_clock_mhz": 2200}, "memory": {"reserve_gib": 4}},
    ),
)

TYPES = (
    typed("serve.max_num_seqs", 0, "a whole number from 1 to 256"),
    typed("serve.max_num_seqs", 257, "a whole number from 1 to 256"),
    typed("serve.max_num_seqs", "4", "a whole number from 1 to 256"),
    typed("serve.max_num_seqs", 1.5, "a whole number from 1 to 256"),
    typed("serve.max_num_seqs", True, "a whole number from 1 to 256"),
    typed("serve.max_model_len", 1_048_577, "a whole number from 1 to 1048576"),
    typed("api.port", 0, "a whole number from 1 to 65535"),
    typed("api.port", 99_999, "a whole number from 1 to 65535"),
    typed("kv.gpu_memory_utilization", 0, "a number, more than 0 and at most 0.95"),
    typed("kv.gpu_memory_utilization", 0.96, "a number, more than 0 and at most 0.95"),
    typed("kv.dtype", "fp4", "one of auto, fp8, bfloat16, nvfp4"),
    typed("fabric.rails", 3, "one of auto, 1, 2"),
    typed("spec.method", "eagle", "one of dflash, mtp, none"),
    typed("dense", 8, "one of bf16, fp8, q4"),
    typed("media.enable", "yes", "true or false"),
    typed("media.images", -1, "a whole number from 0 to 999"),
    typed("ablit.layers", "15", "text, like 15-45"),
    typed("engine.extra_args", "--seed 3", "a list (text)"),
    bad("no licence", "is not of type `one of ShapleyMCG-1.0", {"licenses": {"accept": ["MIT"]}}),
    typed("power.max_gpu_clock_mhz", 200, "a whole number from 300 to 4000"),
    typed("profile", "fast", "one of vllm-recipe, long, demo"),
    typed("serve.model_name", "", "text, not empty"),
    typed("watchdog.stalled_percent", 101, "a number, more than 0 and at most 100"),
    bad("nodes as text", "settings.nodes' is not of type", {"nodes": "spark-head"}),
)


def node(**fields: Any) -> Settings:
    """Return settings with a head that has these fields."""
    return {"nodes": [{**NODES[0], **fields}, NODES[1]]}


RULES = (
    bad(
        "kv type",
        "CFG_FORBIDDEN: kv.dtype is bfloat16, only fp8 works",
        {"kv": {"dtype": "bfloat16"}},
    ),
    bad(
        "marlin",
        "Marlin kernels cannot read EXL3 experts",
        {"engine": {"extra_args": ["--moe-backend", "marlin"]}},
    ),
    bad(
        "batched tokens",
        "overflow the shared memory of the indexer",
        {"serve": {"max_num_batched_tokens": 8192}},
    ),
    bad("draft kv", "acceptance collapses", {"spec": {"draft_kv_dtype": "fp8"}}),
    bad(
        "draft attention",
        "masks the draft's block causally",
        {"spec": {"draft_attention": "TRITON_ATTN"}},
    ),
    bad("draft tokens", "DFlash2 was trained to draft 7", {"spec": {"tokens": 5}}),
    bad("pipeline", "no pipeline stages", {"serve": {"pipeline_parallel_size": 2}}),
    bad("tensor parallel", "exactly one rank", {"serve": {"tensor_parallel_size": 4}}),
    bad("ablit size", "edits the wrong space", {"ablit": {"enable": True, "hidden_size": 5120}}),
    bad("wildcard without a key", "API_NO_KEY: api.host 0.0.0.0", {"api": {"host": "0.0.0.0"}}),
    bad("licence", "CFG_LICENSE: ShapleyMCG-1.0 is not accepted", {"licenses": {"accept": []}}),
    bad(
        "profiling media", "exhausts a Spark's unified memory", {"media": {"skip_profiling": False}}
    ),
    bad("one port twice", "are both 29521", {"fabric": {"link_port": 29521}}),
    bad("a secret itself", "not the secret", {"api": {"key_file": "sk-EXAMPLE"}}),
    bad(
        "a secret in the environment",
        "readable by everybody on the machine",
        {"engine": {"extra_env": {"HF_TOKEN": "x"}}},
    ),
    bad(
        "a variable of the plan",
        "make ranks differ",
        {"engine": {"extra_env": {"NCCL_SOCKET_IFNAME": "x"}}},
    ),
    bad("a flag of the plan", "the last flag wins", {"engine": {"extra_args": ["--nnodes", "2"]}}),
    bad("a key in argv", "API_KEY_IN_ARGV", {"engine": {"extra_args": ["--api-key", "x"]}}),
    bad("backoff", "CFG_TIMING", {"supervise": {"backoff_max_seconds": 1}}),
    bad("memory", "CFG_MEMORY", {"memory": {"start_gib": 1}}),
    bad(
        "an unknown key",
        "CFG_UNKNOWN_KEY: There is no setting kv.dtyp. Did you mean kv.dtype?",
        {"kv": {"dtyp": "fp8"}},
    ),
    bad("a key elsewhere", "Did you mean serve.max_model_len?", {"max_model_len": 1000}),
    bad("an unknown section", "There is no setting colours. Remove it.", {"colours": {"a": 1}}),
    bad("an unknown key of a node", "There is no setting nodes.0.addres", node(addres="10.0.9.1")),
    bad("five nodes", "CFG_RANGE: `nodes` lists 5, at most 4", {"nodes": [*ADDRESSES_3, *NODES]}),
    bad("no nodes", "CFG_MISSING: nodes is missing", {"nodes": None}),
    bad(
        "one address twice",
        "has the address",
        {"nodes": [NODES[0], {**NODES[1], "address": "10.0.9.1"}]},
    ),
    bad(
        "one name twice",
        "is called spark-head",
        {"nodes": [NODES[0], {**NODES[1], "name": "spark-head"}]},
    ),
    bad("head on loopback", "NET_MASTER_LOOPBACK", node(address="127.0.0.1")),
    bad("no address", "is not of type `an IPv4 address'", node(address="10.0.9.256")),
    bad("a bad name", "is not of type `text, like spark-head'", node(name="spark head")),
    bad(
        "a node without an address",
        "address' was accessed but has no value",
        {"nodes": [{"name": "a"}]},
    ),
)

HOSTS = (
    # Stricter than the program, which takes a number of YAML for its text.
    bad(
        "no text",
        "engine.extra_env.A' is not of type `text'",
        {"engine": {"extra_env": {"A": 1}}},
    ),
    bad("rank beyond nodes", "RANK_UNKNOWN: there is no rank 2", rank=2),
    bad("rank beyond four", "not of type `integer between 0 and 3", rank=4),
    bad(
        "a rank without a unit",
        "services.glm53.rank: RANK_UNKNOWN: there is no services/glm53-rank2.service",
        {"nodes": ADDRESSES_3},
        rank=2,
    ),
    bad("a fabric of nothing", "CFG_MISSING: there is no rail", fabric=fabric()),
    bad("a rail without a place", "by its PCI path or by its MAC", fabric=fabric({})),
    bad(
        "a rail with two places",
        "by its PCI path or by its MAC",
        fabric=fabric({**RAIL_1, "mac": "4c:bb:47:00:00:01"}),
    ),
    bad("no MAC", "mac' is not of type", fabric=fabric({"mac": "4C-BB-47-00-00-01"})),
    bad("a long device name", "name' is not of type", fabric=fabric({**RAIL_1, "name": "a" * 16})),
    bad(
        "one name for two rails",
        "two rails have one name",
        fabric=fabric({**RAIL_1, "name": "cx7"}, {**RAIL_2, "name": "cx7"}),
    ),
    bad(
        "two rails in one network",
        "CFG_FORBIDDEN: two rails of this machine are in one network",
        fabric=fabric(RAIL_1, {**RAIL_2, "addresses": ["10.0.9.11", "10.0.9.12"]}),
    ),
    bad(
        "two rails in one half of a network",
        "two rails of this machine are in one network",
        fabric=fabric(
            RAIL_1, {**RAIL_2, "addresses": ["10.0.9.126", "10.0.9.127"]}, prefixLength=25
        ),
    ),
    bad(
        "a rail's address that is none",
        'addresses."[definition 1-entry 1]"\' is not of type',
        fabric=fabric(RAIL_1, {**RAIL_2, "addresses": ["worker", "10.0.10.2"]}),
    ),
    bad(
        "a rail for one node",
        "CFG_MISSING: 1 addresses for 2 nodes",
        fabric=fabric(RAIL_1, {**RAIL_2, "addresses": ["10.0.10.1"]}),
    ),
    bad(
        "ranks that meet elsewhere",
        "NET_ADDRESS_MISSING",
        fabric=fabric({**RAIL_1, "addresses": ["10.9.9.1", "10.9.9.2"]}),
    ),
    bad(
        "a second rail that is not there",
        "CFG_MISSING: settings.fabric.rails is 2",
        {"fabric": {"rails": 2}},
        fabric=fabric(RAIL_1),
    ),
    bad("frames too large", "integer between 1280 and 9216", fabric=fabric(RAIL_1, mtu=9300)),
    bad(
        "a secret in the store",
        "the file is in the store",
        credentials={"apiKey": f"{STORE}/x-key"},
    ),
    bad("a secret, not its file", "it is no absolute path", credentials={"pairToken": "0123abcd"}),
)
BAD: Sequence[Machine] = (*TYPES, *RULES, *HOSTS)
