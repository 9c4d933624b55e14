"""Rules of the machines, their ports, licences and secrets."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from glm53ctl.config.rules.base import Rule
from glm53ctl.config.schema import Config


def _same_names(config: Config) -> Iterator[str]:
    for name, count in Counter(node.name.lower() for node in config.nodes).items():
        if count > 1:
            yield f"{count} nodes are called {name}"


def _same_addresses(config: Config) -> Iterator[str]:
    if all(node.address.is_loopback for node in config.nodes):
        return  # one host plays all nodes
    for address, count in Counter(node.address for node in config.nodes).items():
        if count > 1:
            yield f"{count} nodes have the address {address}"


def _loopback_master(config: Config) -> Iterator[str]:
    others = [node for node in config.nodes[1:] if not node.address.is_loopback]
    if config.head.address.is_loopback and others:
        yield f"the head's address is {config.head.address}, {others[0].name} is another host"


def _loopback_worker(config: Config) -> Iterator[str]:
    for node in config.nodes[1:]:
        if node.address.is_loopback and not config.head.address.is_loopback:
            yield f"{node.name} has the address {node.address}"


def _no_host_address(config: Config) -> Iterator[str]:
    for node in config.nodes:
        if node.address.is_unspecified or node.address.is_multicast:
            yield f"{node.name} has the address {node.address}"


def _same_ports(config: Config) -> Iterator[str]:
    ports = {
        "fabric.master_port": config.fabric.master_port,
        "fabric.link_port": config.fabric.link_port,
        "api.port": config.api.port,
    }
    if config.weights.source == "hub":
        ports["weights.sync_port"] = config.weights.sync_port
    if config.page.enabled:
        ports["page.port"] = config.page.port
    for port, count in Counter(ports.values()).items():
        if count > 1:
            names = " and ".join(name for name, number in ports.items() if number == port)
            yield f"{names} are both {port}"


def _beats(config: Config) -> Iterator[str]:
    link = config.link
    if link.beat_seconds * 3 > link.silence_grace_seconds:
        yield f"a beat every {link.beat_seconds} s, silence after {link.silence_grace_seconds} s"


def _checkpoint_licence(config: Config) -> Iterator[str]:
    if config.weights.source == "hub" and "ShapleyMCG-1.0" not in config.licenses.accept:
        yield "ShapleyMCG-1.0 is not accepted"


def _revisions(config: Config) -> Iterator[str]:
    weights = config.weights
    said = {
        "weights.revision": weights.revision,
        "weights.fallback_revision": weights.fallback_revision,
        "weights.draft_revision": weights.draft_revision,
    }
    for path, revision in said.items() if weights.source == "hub" else ():
        if revision is not None and not re.fullmatch(r"[0-9a-f]{40}", revision):
            yield f"{path} is no commit"


def _secret_paths(config: Config) -> Iterator[str]:
    files = {
        "api.key_file": config.api.key_file,
        "link.token_file": config.link.token_file,
        "weights.token_file": config.weights.token_file,
    }
    for path, value in files.items():
        if value is not None and not PurePosixPath(value).is_absolute():
            yield f"{path} is no absolute path"


RULES: tuple[Rule, ...] = (
    Rule(
        "same-names",
        "CFG_FORBIDDEN",
        ("nodes",),
        _same_names,
        "status, logs and findings would not say which one they mean.",
        "Give each node its own name.",
    ),
    Rule(
        "same-addresses",
        "CFG_FORBIDDEN",
        ("nodes",),
        _same_addresses,
        "each rank is reached at its own address; only a demo on one host shares one (127.x).",
        "Give each node its own fabric address.",
    ),
    Rule(
        "loopback-master",
        "NET_MASTER_LOOPBACK",
        ("nodes",),
        _loopback_master,
        "the ranks meet at the head's address, so the other rank would wait for itself.",
        "Give the head its address on the ConnectX-7 link.",
    ),
    Rule(
        "loopback-worker",
        "CFG_FORBIDDEN",
        ("nodes",),
        _loopback_worker,
        "the head would connect to itself instead of the worker.",
        "Give it its address on the ConnectX-7 link.",
    ),
    Rule(
        "no-host-address",
        "CFG_FORBIDDEN",
        ("nodes",),
        _no_host_address,
        "this is not the address of one host.",
        "Give it its address on the ConnectX-7 link.",
    ),
    Rule(
        "same-ports",
        "CFG_FORBIDDEN",
        ("fabric.master_port", "fabric.link_port", "api.port", "weights.sync_port", "page.port"),
        _same_ports,
        "all of them listen on the head at the same time.",
        "Give each its own port.",
    ),
    Rule(
        "beats",
        "CFG_TIMING",
        ("link.beat_seconds", "link.silence_grace_seconds"),
        _beats,
        "a live peer would count as silent after one lost beat.",
        "Allow at least three beats.",
    ),
    Rule(
        "checkpoint-licence",
        "CFG_LICENSE",
        ("licenses.accept",),
        _checkpoint_licence,
        "the checkpoint is fetched under this licence.",
        "Read it, then say licenses.accept: [ShapleyMCG-1.0].",
    ),
    Rule(
        "revisions",
        "CFG_FORBIDDEN",
        ("weights.revision", "weights.fallback_revision", "weights.draft_revision"),
        _revisions,
        "a branch or a tag may move, and weights must not.",
        "Give the 40 hexadecimal digits of the commit.",
    ),
    Rule(
        "secret-path",
        "CFG_FORBIDDEN",
        ("api.key_file", "link.token_file", "weights.token_file"),
        _secret_paths,
        "it names the file that holds the secret, not the secret.",
        "Write the secret to a file of mode 0600 and give that file's whole path.",
    ),
)
