"""What must hold on a node before its engine is started.

Each check is cheap enough to be repeated every few seconds, so that a node starts by itself as
soon as what blocked it is gone.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address
from pathlib import Path

from glm53ctl.checks import CHECKS, Node, host, judge, links
from glm53ctl.checks.fabric import Fabric, Resolution, resolve_fabric, resolve_pair
from glm53ctl.checks.wanted import from_config, load_gib
from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError
from glm53ctl.facts.host import known
from glm53ctl.facts.memory import available_gib, gib, probe_memory
from glm53ctl.facts.network import probe_network
from glm53ctl.facts.node import NodeFacts
from glm53ctl.facts.ports import holder, why_not
from glm53ctl.facts.rdma import probe_rdma
from glm53ctl.findings import Finding, Severity
from glm53ctl.plan import plan_rank, read_secrets
from glm53ctl.weights import verdict


def check_start(config: Config, rank: int) -> list[Finding]:
    """Return what forbids a start of `rank` on this node; empty when nothing does."""
    node = config.nodes[rank].name
    findings = [
        *_address(config, rank),
        *_engine(config),
        *verdict(config),
        *_memory(config),
        *_secrets(config, rank),
    ]
    if rank == 0:
        findings += _ports(config)
    return [finding.model_copy(update={"node": node}) for finding in findings]


def fabric_here(config: Config, rank: int) -> Resolution:
    """Return the fabric of this host as it is now; see `resolve_fabric`."""
    return resolve_fabric(probe_network(), probe_rdma(), from_config(config, rank))


_OF_FABRIC = [
    check
    for check in CHECKS
    if check.of_pair is not None
    or check.of_node
    in (
        host.probes,
        links.fabric,
        links.pinned_devices,
        links.pinned_index,
        links.link_local,
        links.reach,
        links.beside,
    )
]


def check_fabric(config: Config, facts: Sequence[NodeFacts]) -> list[Finding]:
    """Return what is wrong by the facts of some nodes, of all at best; what stops a start first."""
    return links.telling(judge(_nodes(config, facts), _OF_FABRIC))


def fabric_of_pair(config: Config, facts: Sequence[NodeFacts]) -> tuple[Resolution, ...]:
    """Return the fabric of each rank from the facts of all: equal rails on every node."""
    return resolve_pair(_nodes(config, facts))


def rails_of(config: Config, facts: Sequence[NodeFacts]) -> tuple[IPv4Address, ...]:
    """Return the addresses of the rails of some nodes: what another node can ask."""
    return tuple(a for node in _nodes(config, facts) for a in links.addresses(node))


def have_met(config: Config, facts: Sequence[NodeFacts]) -> bool:
    """Say whether every node has asked the rails of those it hears: the head's, or the workers'."""
    head, *workers = facts
    return all(
        network.asked(rails_of(config, workers if one is head else [head]))
        for one in facts
        if (network := known(one.network)) is not None
    )


def drifted(
    config: Config, before: Fabric, after: NodeFacts, others: Sequence[NodeFacts]
) -> list[Finding]:
    """Return what of a node's fabric is no longer as it was at the start, as `others` still are."""
    node, *rest = _nodes(config, [after, *others])
    return links.changed(before, node, rest)


def _nodes(config: Config, facts: Sequence[NodeFacts]) -> list[Node]:
    return [Node(one, from_config(config, one.rank or 0)) for one in facts]


def short_of_free_memory(config: Config) -> bool:
    """Say whether memory for a load is available but not free: the page cache has it.

    CUDA on GB10 counts the page cache as used. What `glm53-reclaim.service` frees is enough.
    """
    memory = known(probe_memory())
    if config.engine.platform != "cuda" or memory is None:
        return False
    return gib(memory.free) < load_gib(config, memory) <= gib(memory.available)


def _address(config: Config, rank: int) -> Iterator[Finding]:
    if not config.nodes[rank].address.is_loopback:
        found = fabric_here(config, rank).findings
        yield from (finding for finding in found if finding.severity is Severity.FAIL)


def _engine(config: Config) -> Iterator[Finding]:
    program = Path(config.engine.prefix) / "bin" / "vllm"
    if not os.path.exists(program):  # unlike Path.exists, for any text
        yield _fail(
            "ENGINE_MISSING",
            f"there is no {program}.",
            "Install the engine, or set engine.prefix to where it is.",
        )


def _memory(config: Config) -> Iterator[Finding]:
    available, needed = available_gib(), config.memory.start_gib
    if available < needed:
        yield _fail(
            "MEM_FOREIGN",
            f"{available:.1f} GiB of memory are available, {needed:.1f} are needed.",
            "Stop what else runs on this machine, or lower memory.start_gib.",
        )


def _secrets(config: Config, rank: int) -> Iterator[Finding]:
    """Say before a launch what it would fail on: each attempt is a loss, and many end in HELD."""
    try:
        read_secrets(plan_rank(config, rank), os.environ)
    except UserError as error:
        yield _fail(error.code, error.message, error.fix)


def _ports(config: Config) -> Iterator[Finding]:
    wanted = (
        ("api.port", config.api.host, config.api.port),
        ("fabric.master_port", str(config.head.address), config.fabric.master_port),
    )
    for key, address, port in wanted:
        error = why_not(address, port)
        if error is None:
            continue
        if error.errno == errno.EADDRINUSE:
            yield _fail(
                "PORT_IN_USE",
                f"port {port} on {address} ({key}) is held by {holder(address, port)}.",
                f"Stop that process, or choose another {key}.",
            )
        elif error.errno != errno.EADDRNOTAVAIL or key == "api.port":  # else `_address` says it
            yield _fail(
                "PORT_REFUSED",
                f"nobody can listen on port {port} of {address} ({key}): {error.strerror}.",
                "Correct the address or the port.",
            )


def _fail(code: str, message: str, fix: str) -> Finding:
    return Finding(code=code, severity=Severity.FAIL, message=message, fix=fix)
